"""What both kinds of run share: telling of an exception and ending the
process."""

from os import getpid

from sandboxd_guest import interpreter, reprs, tracebacks
from sandboxd_guest.channel import EXIT_CHANNEL_BROKEN
from sandboxd_guest.pristine import builtins_copy as __builtins__
from sandboxd_guest.sourcetext import SourceText

MESSAGE_CHARS = 65536

_exit_value_of = SystemExit.__dict__["code"].__get__


class Report:
    """The way out of one run. filenames: the texts to show lines of; own: the
    module dictionaries whose frames no traceback shows."""

    def __init__(self, plan, send, streams, filenames, own):
        self._deliver = send
        self._pid = getpid()
        self._streams = streams
        self.held = {name: SourceText() for name in filenames}
        self.room = plan.get("message_bytes") or MESSAGE_CHARS
        self.formatter = tracebacks.Formatter(self.held, own, self.room)

    def send(self, event):
        self._deliver(event)

    def fatal(self, error, phase):
        """Never returns: error ends the run."""
        event = self.exception(error, phase)
        self.print(error, event["traceback"])
        self.end(event.get("exit_code", 1))

    def exception(self, error, phase):
        """Sends the event of an exception, and returns it."""
        with interpreter.RoomToRecurse():
            try:
                event = self._describe(error, phase)
            except MemoryError:
                # The frames hold what filled the memory.
                _clear_frames(error)
                event = self._describe(error, phase)
            if self.is_first_process():
                self.send(event)
            return event

    def _describe(self, error, phase):
        kind = type(error)
        event = {"event": "exception", "phase": phase, "type": reprs.type_name(kind)}
        event["message"] = self.formatter.message(error)
        event["traceback"] = self.formatter.format(error, event["message"])
        if issubclass(kind, SystemExit):
            event["exit_code"] = exit_code(error)
        if issubclass(kind, SyntaxError):
            line = self.formatter.syntax_line(error)
            if line is not None:
                event["syntax_line"] = line
        return event

    def print(self, error, traceback):
        """To stderr, what Python would print if error left the program."""
        with interpreter.RoomToRecurse():
            self._streams.flush_errors()
            if issubclass(type(error), SystemExit):
                value = _exit_value_of(error)
                if value is None or issubclass(type(value), int):
                    return
                traceback = reprs.message(value, self.room) + "\n"
            self._streams.write_error(traceback)

    def print_failure(self, error, message):
        """An assertion that ended its statement; its message is known."""
        with interpreter.RoomToRecurse():
            traceback = self.formatter.format(error, message)
        self.print(error, traceback)

    def is_first_process(self):
        """False in a child that user code forked and that came back to us."""
        return getpid() == self._pid

    def end(self, code):
        self._streams.end(code)

    def failed_itself(self, error, phase):
        """Never returns: error came out of the harness. When user code is in
        it, a signal handler's exception hit between two statements; otherwise
        the harness is broken, and says nothing more, so never a pass."""
        if self.formatter.user_lines(error):
            self.fatal(error, phase)
        self.end(EXIT_CHANNEL_BROKEN)


def outcome_of(outcomes):
    """What came out of the last code driven: None, or the exception. The
    driver always leaves something; if not, user code has reached in."""
    taken = outcomes[:]
    outcomes.clear()
    if not taken:
        raise LookupError("no outcome")
    errors = [error for error in taken if error is not None]
    return errors[-1] if errors else None


def exit_code(error):
    """The exit code Python would end with on this SystemExit."""
    value = _exit_value_of(error)
    if value is None:
        return 0
    if issubclass(type(value), int):
        return int.__and__(value, 0xFF)
    return 1


def _clear_frames(error):
    trace = tracebacks.traceback_of(error)
    while trace is not None:
        try:
            trace.tb_frame.clear()
        except RuntimeError:
            pass  # still running
        trace = trace.tb_next
