"""What both kinds of run share: telling of an exception and ending the
process.

Whatever runs user code (str, repr, flush) is yielded to the driver, so that no
frame under it leads to the way out. So most of this are generators."""

import atexit
import gc
import sys
from _io import _IOBase, _RawIOBase
from abc import ABCMeta
from io import BufferedRandom, BufferedReader, BufferedRWPair, BufferedWriter, BytesIO, StringIO, TextIOWrapper
from os import _exit, getpid

from sandboxd_guest import interpreter, reprs, tracebacks
from sandboxd_guest.channel import EXIT_CHANNEL_BROKEN
from sandboxd_guest.pristine import builtins_copy as __builtins__

MESSAGE_CHARS = 65536

_CALL = compile("result = call(*arguments)", tracebacks.HARNESS, "exec")
_FLUSH = compile("try: sys.stderr.flush()\nexcept anything: pass", tracebacks.HARNESS, "exec")
_DROP = compile("trash.clear()", tracebacks.HARNESS, "exec")
_CLEAR = """
trace = trace_of(error)
while trace is not None:
    try:
        trace.tb_frame.clear()
    except anything:
        pass
    trace = trace.tb_next
trace = None
"""
_CLEAR = compile(_CLEAR, tracebacks.HARNESS, "exec")

# Outermost first: what a text stream holds belongs into what it wraps.
_WRITE_FILES = """
try:
    found = [thing for thing in objects() if below(kind(thing), Base)]
    if found:
        for thing in found:
            if below(kind(thing), Text):
                try: thing.flush()
                except anything: pass
        for thing in found:
            if not below(kind(thing), (Text, Raw, Buffer)):
                try: thing.close()
                except anything: pass
        for thing in found:
            if below(kind(thing), (Text, Buffer)):
                try: thing.flush()
                except anything: pass
except anything: pass
"""
_FLUSH_STREAMS = """
try: sys.stdout.flush()
except anything: pass
try: sys.stderr.flush()
except anything: pass
for stream in streams:
    try: stream.flush()
    except anything: pass
"""
_END = compile(_WRITE_FILES + _FLUSH_STREAMS, tracebacks.HARNESS, "exec")
_WRITE_FILES = compile(_WRITE_FILES, tracebacks.HARNESS, "exec")
_FLUSH_STREAMS = compile(_FLUSH_STREAMS, tracebacks.HARNESS, "exec")
# The types from which every class of the kind derives, and not io.IOBase: that
# is an abstract one, which asks a lot for each type, and remembers the answers.
_FILES_SPACE = {
    "__builtins__": {}, "objects": gc.get_objects, "below": issubclass, "kind": type, "anything": BaseException,
    "sys": sys, "Base": _IOBase, "Text": TextIOWrapper, "Raw": _RawIOBase,
    "Buffer": (BufferedWriter, BufferedRandom, BufferedReader, BufferedRWPair, BytesIO, StringIO),
}
# Files of other making: the module, if it is loaded, and what its classes are.
_MORE_FILES = {
    "zipfile": {"ZipFile": "Base"},
    "_pyio": {"IOBase": "Base", "RawIOBase": "Raw", "BufferedIOBase": "Buffer", "TextIOWrapper": "Text"},
}
_modules = sys.modules
_run_exit_handlers, _count_exit_handlers = atexit._run_exitfuncs, atexit._ncallbacks

_exit_value_of = SystemExit.__dict__["code"].__get__


def message_room(options):
    return min(options.get("message_bytes") or MESSAGE_CHARS, MESSAGE_CHARS)


class Report:
    """The way out of one run, made before there is one. room: characters of a
    message; filenames: the texts to show lines of; own: the module dictionaries
    whose frames no traceback shows; exposed: the modules that user code may see
    at work."""

    def __init__(self, room, filenames, own, exposed):
        self.exposed = exposed
        self.room = room
        self._shown = {name: exposed["sourcetext"].SourceText() for name in filenames}
        self._formatter = exposed["tracebacks"].Formatter(self._shown, own, room)
        self._lines = tracebacks.Formatter({}, own, room).user_lines
        self._trash = []

    def begin(self, plan, send, outcomes, streams):
        self.send = send
        self._outcomes = outcomes
        self._streams = streams
        self._pid = getpid()
        self.workspace = plan["workspace"]

    def hold(self, name, text):
        """text is shown where a traceback names a line of the file `name`."""
        self._shown[name].fill(text)

    def outcome(self):
        """What came out of the last code driven: None, or the exception. The
        driver always leaves something; if not, user code has reached in. The
        exception is kept until drop: it can have a finaliser."""
        taken = self._outcomes[:]
        self._outcomes.clear()
        if len(taken) == 1 and taken[0] is None:
            return None
        if not taken:
            raise LookupError("no outcome")
        errors = [error for error in taken if error is not None]
        self._trash.extend(errors)
        return errors[-1] if errors else None

    def drop(self, things=()):
        """Frees user objects where no frame of the harness is under their
        finalisers."""
        self._trash.extend(things)
        if self._trash:
            yield _DROP, {"__builtins__": {}, "trash": self._trash}, False
            self.outcome()

    def call(self, function, *arguments, interrupted=False):
        """What function returns, and the exception that came out instead."""
        space = {"__builtins__": {}, "call": function, "arguments": arguments}
        with interpreter.RoomToRecurse():
            yield _CALL, space, interrupted
        return space.get("result"), self.outcome()

    def fatal(self, error, phase):
        """Never returns: error ends the run."""
        event = yield from self.exception(error, phase)
        yield from self.print(error, event["traceback"])
        yield from self.leave(event.get("exit_code", 1))

    def exception(self, error, phase):
        """Sends the event of an exception, and returns it."""
        kind, message, traceback, _, line = yield from self.describe(error)
        event = {"event": "exception", "phase": phase, "type": kind, "message": message, "traceback": traceback}
        if issubclass(type(error), SystemExit):
            event["exit_code"] = exit_code(error)
        if line is not None:
            event["syntax_line"] = line
        self.tell(event)
        return event

    def describe(self, error, message=None):
        """As Formatter.describe; whatever user code made of it, it is of plain
        types and of bounded size."""
        told, failure = yield from self.call(self._formatter.describe, error, message)
        if failure is not None and issubclass(type(failure), MemoryError):
            # The frames hold what filled the memory.
            yield _CLEAR, {"__builtins__": {}, "error": error, "anything": BaseException,
                           "trace_of": tracebacks.traceback_of}, False
            self.outcome()
            told, failure = yield from self.call(self._formatter.describe, error, message)
        try:
            kind, said, traceback, places, line = told
            texts = (kind, said, traceback)
            if any(type(text) is not str for text in texts) or type(line) is not int and line is not None:
                raise TypeError
            places = [(file, at, name) for file, at, name in places if type(file) is str and type(at) is int]
        except (TypeError, ValueError):
            kind, said, traceback, places, line = reprs.type_name(type(error)), "", "", [], None
        room = reprs.TEXT_BYTES_MAX
        return reprs.fit(reprs.cut(kind, 1000), 1000), reprs.fit(said), reprs.fit(traceback, room + 100), places, line

    def print(self, error, traceback):
        """To stderr, what Python would print if error left the program."""
        yield _FLUSH, {"__builtins__": {}, "sys": sys, "anything": BaseException}, False
        self.outcome()
        if issubclass(type(error), SystemExit):
            value = _exit_value_of(error)
            if value is None or issubclass(type(value), int):
                return
            text, _ = yield from self.call(self.exposed["reprs"].message, value, self.room)
            traceback = text + "\n" if type(text) is str else ""
        interpreter.write_error(traceback)

    def tell(self, event):
        """Sends event, unless this is a child that user code forked and that
        came back to us."""
        if getpid() == self._pid:
            self.send(event)

    def leave(self, code):
        """Never returns. Lets files be whole that the program left open, in
        bounded time: the verdict is sent."""
        interpreter.bound(code)
        if _count_exit_handlers():
            yield from self.call(_run_exit_handlers)
        yield _END, self._files(), False
        _exit(code)

    def end(self, code):
        """Never returns. Flushes within a bounded time."""
        interpreter.bound(code)
        yield _FLUSH_STREAMS, self._files(), False
        _exit(code)

    def write_files(self):
        """Makes the files whole that the program left open. Freeing them is not
        enough: in a cycle, a file can be closed before what buffers it."""
        yield _WRITE_FILES, self._files(), True
        self.outcome()

    def _files(self):
        """The space of the code that writes files."""
        space = dict(_FILES_SPACE, streams=self._streams)
        for name in () if _modules.keys().isdisjoint(_MORE_FILES) else _MORE_FILES:
            module, kinds = _modules.get(name), _MORE_FILES[name]
            if type(module) is type(sys):
                for name, place in kinds.items():
                    kind = vars(module).get(name)
                    if type(kind) in (type, ABCMeta):
                        space[place] = space[place], kind
        return space

    def failed_itself(self, error, phase):
        """Never returns: error came out of the harness. When user code is in
        it, a signal handler's exception hit between two statements; otherwise
        the harness is broken, and says nothing more, so never a pass."""
        if self._lines(error):
            yield from self.fatal(error, phase)
        yield from self.end(EXIT_CHANNEL_BROKEN)


def exit_code(error):
    """The exit code Python would end with on this SystemExit."""
    value = _exit_value_of(error)
    if value is None:
        return 0
    if issubclass(type(value), int):
        # CPython takes it for a C long, and for -1 where it is none.
        return int.__and__(value, 0xFF) if -(2**63) <= int.__index__(value) < 2**63 else 255
    return 1
