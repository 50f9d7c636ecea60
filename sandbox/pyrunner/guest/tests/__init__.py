"""Makes the guest's folder importable as the package it is in a sandbox."""

import importlib.machinery
import os
import sys
import types

GUEST = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

if "sandboxd_guest" not in sys.modules:
    _package = types.ModuleType("sandboxd_guest")
    _package.__path__ = [GUEST]
    _package.__spec__ = importlib.machinery.ModuleSpec("sandboxd_guest", None, is_package=True)
    sys.modules["sandboxd_guest"] = _package
