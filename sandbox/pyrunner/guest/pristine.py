"""A private copy of the builtins for the modules that report on user code.

A module that imports `builtins_copy as __builtins__` before its first
definition resolves len, str, isinstance, AssertionError and the like here,
whatever user code does to the real module. Modules whose frames stay below
user code must not use it: frame.f_builtins would hand the copy out.
"""

import builtins

builtins_copy = dict(vars(builtins))
