"""What an ordinary interpreter has ready before a program starts, and what it
does at its end."""

import builtins
import gc
import site
import sys
from _signal import ITIMER_REAL, SIG_UNBLOCK, SIGALRM, pthread_sigmask, setitimer, signal
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from os import _exit, path, scandir, write
from sys import getrecursionlimit, setrecursionlimit
from threading import stack_size

from sandboxd_guest.pristine import builtins_copy as __builtins__

FLUSH_SECONDS_MAX = 1.0
_SPARE_RECURSION = 400
_RECURSION_MAX = 2**31 - 1

# Kept: freeing them in a forked child would copy the pages they lie on.
_replaced = (sys.stdin, sys.stdout, sys.stderr, sys.modules["__main__"])


class Streams:
    """Standard streams over descriptors 0 to 2. Both outputs write each line
    through, so that a killed program's last words are kept, and escape what
    UTF-8 cannot carry instead of losing it."""

    __slots__ = ("_outs", "_bounded")

    def __init__(self):
        reader, out, err = _ready or _standard_streams()
        sys.stdin = sys.__stdin__ = reader
        sys.stdout = sys.__stdout__ = out
        sys.stderr = sys.__stderr__ = err
        self._outs = (out, err)
        self._bounded = False

    def write_error(self, text):
        """Past sys.stderr, which user code may have replaced or closed."""
        data = text.encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[write(2, data) :]
        except OSError:
            pass

    def bound(self, code):
        """Ends the process with code when it has not ended itself soon."""
        self._bounded = True
        signal(SIGALRM, lambda *_: _exit(code))
        setitimer(ITIMER_REAL, FLUSH_SECONDS_MAX)
        pthread_sigmask(SIG_UNBLOCK, (SIGALRM,))

    def end(self, code):
        """Flushes within a bounded time and ends the process."""
        try:
            if not self._bounded:
                self.bound(code)
            theirs = [getattr(sys, "stdout", None), getattr(sys, "stderr", None)]
            theirs = [stream for stream in theirs if not any(stream is out for out in self._outs)]
            for stream in theirs:
                _flush(stream)
            for stream in self._outs:
                _flush(stream)
        finally:
            _exit(code)


# An output is a pipe, whatever the descriptor is while an interpreter waits for
# its run. bool and no function, which would lead from sys.stdout to us.
_PipeEnd = type("FileIO", (FileIO,), {"__module__": "_io", "seekable": bool})


def _standard_streams():
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


def _flush(stream):
    try:
        stream.flush()
    except BaseException:
        pass  # closed, replaced or hostile


def prepare(plan, script_name):
    """Makes the interpreter look freshly started for this program."""
    sys.argv = [script_name] + plan.get("args", [])
    sys.orig_argv = ["python3"] + sys.argv
    if sys.path[:1] != [plan["workspace"]]:
        sys.path.insert(0, plan["workspace"])
    try:
        stack_size(plan["thread_stack_bytes"])
    except ValueError:
        pass  # smaller than this platform allows
    _seed()
    _give_way(plan["workspace"])
    if not hasattr(builtins, "exit"):  # an interpreter started with -S
        for add in (site.setquit, site.setcopyright, site.sethelper):
            add()
    return Streams()


def hide():
    """Last, before user code: what exists now can no longer be found through
    gc.get_objects() and gc.get_referrers()."""
    gc.freeze()


def _give_way(workspace):
    """Forgets loaded modules of the names of files in the workspace, which is
    first in sys.path: the program's own import finds these, as in an
    interpreter that has loaded nothing else yet."""
    names = set()
    try:
        with scandir(workspace) as entries:
            for entry in entries:
                name, dot, kind = entry.name.partition(".")
                if dot and kind.endswith(("py", "so")) or path.isfile(entry.path + "/__init__.py"):
                    names.add(name)
    except OSError:
        return
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


def _seed():
    """Siblings of one pre-booted interpreter must not share their dice."""
    for name in ("random", "numpy.random"):
        module = sys.modules.get(name)
        if module is not None:
            module.seed()


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
