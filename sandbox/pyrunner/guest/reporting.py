"""What both kinds of run share: telling of an exception and ending the
process.

Whatever runs user code (str, repr, flush) is yielded to the driver, so that no
frame under it leads to the way out. So most of this are generators."""

import atexit
import gc
import io
import sys
from os import getpid

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
found = [thing for thing in objects() if below(kind(thing), (Base, ZipFile))]
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
"""
_WRITE_FILES = compile(_WRITE_FILES, tracebacks.HARNESS, "exec")
_FILES_SPACE = {
    "__builtins__": {}, "objects": gc.get_objects, "below": issubclass, "kind": type, "anything": BaseException,
    "Base": io.IOBase, "Text": io.TextIOWrapper, "Raw": io.RawIOBase, "ZipFile": (),
    "Buffer": (io.BufferedWriter, io.BufferedRandom, io.BufferedReader, io.BufferedRWPair, io.BytesIO, io.StringIO),
}
_run_exit_handlers = atexit._run_exitfuncs

_exit_value_of = SystemExit.__dict__["code"].__get__


class Report:
    """The way out of one run. filenames: the texts to show lines of; own: the
    module dictionaries whose frames no traceback shows; exposed: the modules
    that user code may see at work."""

    def __init__(self, plan, send, streams, filenames, own, outcomes, exposed):
        self.send = send
        self._pid = getpid()
        self._streams = streams
        self._outcomes = outcomes
        self.exposed = exposed
        self.workspace = plan["workspace"]
        self.room = min(plan.get("message_bytes") or MESSAGE_CHARS, MESSAGE_CHARS)
        self._shown = {name: exposed["sourcetext"].SourceText() for name in filenames}
        self._formatter = exposed["tracebacks"].Formatter(self._shown, own, self.room)
        self._describe = self._formatter.describe
        self._say = exposed["reprs"].message
        self._lines = tracebacks.Formatter({}, own, self.room).user_lines
        self._trash = []

    def hold(self, name, text):
        """text is shown where a traceback names a line of the file `name`."""
        self._shown[name].fill(text)

    def outcome(self):
        """What came out of the last code driven: None, or the exception. The
        driver always leaves something; if not, user code has reached in. The
        exception is kept until drop: it can have a finaliser."""
        taken = self._outcomes[:]
        self._outcomes.clear()
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
        if self.is_first_process():
            self.send(event)
        return event

    def describe(self, error, message=None):
        """As Formatter.describe; whatever user code made of it, it is of plain
        types and of bounded size."""
        told, failure = yield from self.call(self._describe, error, message)
        if failure is not None and issubclass(type(failure), MemoryError):
            # The frames hold what filled the memory.
            yield _CLEAR, {"__builtins__": {}, "error": error, "anything": BaseException,
                           "trace_of": tracebacks.traceback_of}, False
            self.outcome()
            told, failure = yield from self.call(self._describe, error, message)
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
            text, _ = yield from self.call(self._say, value, self.room)
            traceback = text + "\n" if type(text) is str else ""
        self._streams.write_error(traceback)

    def is_first_process(self):
        """False in a child that user code forked and that came back to us."""
        return getpid() == self._pid

    def end(self, code):
        self._streams.end(code)

    def leave(self, code):
        """Never returns. Lets files be whole that the program left open, in
        bounded time: the verdict is sent."""
        self._streams.bound(code)
        yield from self.call(_run_exit_handlers)
        yield from self.write_files(False)
        self.end(code)

    def write_files(self, interrupted):
        """Makes the files whole that the program left open. Freeing them is not
        enough: in a cycle, a file can be closed before what buffers it."""
        space = dict(_FILES_SPACE)
        zipfile = sys.modules.get("zipfile")
        kind = vars(zipfile).get("ZipFile") if type(zipfile) is type(sys) else None
        if type(kind) is type:
            space["ZipFile"] = kind
        yield _WRITE_FILES, space, interrupted
        self.outcome()

    def failed_itself(self, error, phase):
        """Never returns: error came out of the harness. When user code is in
        it, a signal handler's exception hit between two statements; otherwise
        the harness is broken, and says nothing more, so never a pass."""
        if self._lines(error):
            yield from self.fatal(error, phase)
        self.end(EXIT_CHANNEL_BROKEN)


def exit_code(error):
    """The exit code Python would end with on this SystemExit."""
    value = _exit_value_of(error)
    if value is None:
        return 0
    if issubclass(type(value), int):
        # CPython takes it for a C long, and for -1 where it is none.
        return int.__and__(value, 0xFF) if -(2**63) <= int.__index__(value) < 2**63 else 255
    return 1
