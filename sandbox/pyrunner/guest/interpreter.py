"""What an ordinary interpreter has ready before a program starts, and what it
does at its end."""

import builtins
import site
import sys
from _signal import SIG_UNBLOCK, SIGALRM, alarm, pthread_sigmask, signal
from _thread import stack_size
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from os import _exit, listdir, path, write
from sys import getrecursionlimit, setrecursionlimit

from sandboxd_guest.pristine import builtins_copy as __builtins__

FLUSH_SECONDS_MAX = 1
_SPARE_RECURSION = 400
_RECURSION_MAX = 2**31 - 1

# Kept: freeing them in a forked child would copy the pages they lie on.
_replaced = (sys.stdin, sys.stdout, sys.stderr, sys.modules["__main__"])

if not hasattr(builtins, "exit"):  # an interpreter started with -S
    for _add in (site.setquit, site.setcopyright, site.sethelper):
        _add()


# An output is a pipe, whatever the descriptor is while an interpreter waits for
# its run. bool and no function, which would lead from sys.stdout to us.
_PipeEnd = type("FileIO", (FileIO,), {"__module__": "_io", "seekable": bool})


def _standard_streams():
    """Standard streams over descriptors 0 to 2. Both outputs write each line
    through, so that a killed program's last words are kept, and escape what
    UTF-8 cannot carry instead of losing it."""
    return _reader(0, "<stdin>"), _writer(1, "<stdout>"), _writer(2, "<stderr>")


def _reader(fd, name):
    raw = FileIO(fd, "r", closefd=False)
    raw.name = name
    stream = TextIOWrapper(BufferedReader(raw), "utf-8", "surrogateescape", "\n")
    stream.mode = "r"
    return stream


def _writer(fd, name):
    raw = _PipeEnd(fd, "w", closefd=False)
    raw.name = name
    stream = TextIOWrapper(BufferedWriter(raw), "utf-8", "backslashreplace", "\n", line_buffering=True)
    stream.mode = "w"
    return stream


try:
    # Ahead of the run: they name descriptors, and hold nothing of what is there.
    _ready = _standard_streams()
except OSError:
    _ready = None  # an interpreter that waits without standard streams


def prepare(plan, script_name):
    """Makes the interpreter look freshly started for this program. Returns the
    two output streams."""
    workspace = plan["workspace"]
    sys.argv = [script_name] + plan.get("args", [])
    sys.orig_argv = ["python3"] + sys.argv
    if sys.path[:1] != [workspace]:
        sys.path.insert(0, workspace)
    try:
        stack_size(plan["thread_stack_bytes"])
    except ValueError:
        pass  # smaller than this platform allows
    # Siblings of one pre-booted interpreter must not share their dice.
    for name in ("random", "numpy.random"):
        module = sys.modules.get(name)
        if module is not None:
            module.seed()
    try:
        entries = listdir(workspace)
    except OSError:
        entries = ()
    if entries:
        _give_way(workspace, entries)
    reader, out, err = _ready or _standard_streams()
    sys.stdin = sys.__stdin__ = reader
    sys.stdout = sys.__stdout__ = out
    sys.stderr = sys.__stderr__ = err
    return out, err


def write_error(text):
    """Past sys.stderr, which user code may have replaced or closed."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[write(2, data) :]
    except OSError:
        pass


def bound(code):
    """Ends the process with code when it has not ended itself soon."""
    _late_code.append(code)
    signal(SIGALRM, _end_late)
    alarm(FLUSH_SECONDS_MAX)
    pthread_sigmask(SIG_UNBLOCK, (SIGALRM,))


_late_code = []


def _end_late(*_):
    _exit(_late_code[-1])


def _give_way(workspace, entries):
    """Forgets loaded modules of the names of files in the workspace, which is
    first in sys.path: the program's own import finds these, as in an
    interpreter that has loaded nothing else yet."""
    names = set()
    for entry in entries:
        name, dot, kind = entry.partition(".")
        if dot and kind.endswith(("py", "so")) or path.isfile(workspace + "/" + entry + "/__init__.py"):
            names.add(name)
    if names:
        names -= _ALWAYS_LOADED
        names.difference_update(sys.builtin_module_names)
        for name in [name for name in sys.modules if name.partition(".")[0] in names]:
            del sys.modules[name]


# What any interpreter has loaded before the program's first line.
_ALWAYS_LOADED = frozenset((
    "__main__", "_abc", "_codecs", "_collections_abc", "_distutils_hack", "_frozen_importlib",
    "_frozen_importlib_external", "_imp", "_io", "_signal", "_sitebuiltins", "_stat", "_thread", "_warnings",
    "_weakref", "abc", "builtins", "codecs", "encodings", "genericpath", "importlib", "io", "marshal", "os", "posix",
    "posixpath", "site", "stat", "sys", "time", "zipimport"))


class RoomToRecurse:
    """User code can stand at the recursion limit when its assertion fails, or
    have set a limit too low for the report."""

    __slots__ = ("_before", "_raised")

    def __enter__(self):
        self._before = getrecursionlimit()
        self._raised = min(self._before + _SPARE_RECURSION, _RECURSION_MAX)
        setrecursionlimit(self._raised)

    def __exit__(self, *_):
        if getrecursionlimit() == self._raised:
            try:
                setrecursionlimit(self._before)
            except RecursionError:
                pass  # lower than where we stand
