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

    def __init__(self, filename, text):
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


def solution_module(path, filename, text):
    """The importable module `solution`, not executed yet."""
    spec = ModuleSpec("solution", TextLoader(filename, text), origin=path)
    spec.has_location = True
    module = ModuleType("solution")
    module.__spec__ = spec
    module.__loader__ = spec.loader
    module.__package__ = ""
    module.__file__ = path
    module.__builtins__ = vars(builtins)
    sys.modules["solution"] = module
    sys.meta_path.insert(0, TextFinder(spec))
    show_lines(filename, text)
    return module


def main_module(path, loader=None):
    """A fresh __main__. Its text stays unreadable unless a loader has it."""
    module = ModuleType("__main__")
    module.__loader__ = loader
    module.__file__ = path
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    return module
