"""Modules made of text that is in no file.

User code can reach this module through __loader__, so it holds nothing of the
harness.
"""

import builtins
import linecache
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType


class TextLoader:
    """What linecache, inspect and pickle ask a module for. inspect.getsource
    reads through it lazily."""

    def __init__(self, filename, text=""):
        self._filename = filename
        self._text = text

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(self.get_code(module.__name__), module.__dict__)  # in importlib.reload

    def get_code(self, name):
        return compile(self._text, self._filename, "exec", dont_inherit=True)

    def get_source(self, name):
        return self._text

    def get_filename(self, name):
        return self._filename

    def is_package(self, name):
        return False


class TextFinder:
    """Finds the one module that spec is of, for reload and import."""

    def __init__(self, spec):
        self._spec = spec

    def find_spec(self, name, path=None, target=None):
        return self._spec if name == self._spec.name else None


def show_lines(filename, text):
    """Lets tracebacks that Python itself prints show the lines of a text."""
    linecache.cache[filename] = (text.__str__,)


class Solution:
    """The importable module `solution`, made before its text is known."""

    def __init__(self, filename):
        self._filename = filename
        self._loader = TextLoader(filename)
        self._spec = ModuleSpec("solution", self._loader)
        self._spec.has_location = True
        self._finder = TextFinder(self._spec)
        self.module = module = _module("solution", None, self._loader, vars(builtins))
        module.__spec__ = self._spec
        module.__package__ = ""

    def appear(self, path, text):
        """Lets the module be found, not executed yet."""
        self._loader._text = text
        self._spec.origin = self.module.__file__ = path
        sys.modules["solution"] = self.module
        sys.meta_path.insert(0, self._finder)
        linecache.cache[self._filename] = (text.__str__,)  # as show_lines does


def main_module(path, loader=None):
    """A fresh __main__. Its text stays unreadable unless a loader has it."""
    return _module("__main__", path, loader, builtins)


def _module(name, path, loader, names):
    module = ModuleType(name)
    module.__loader__ = loader
    module.__file__ = path
    module.__builtins__ = names
    return module
