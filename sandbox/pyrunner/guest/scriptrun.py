"""A run of one program, ended the way an ordinary interpreter ends."""

import atexit
import sys
import threading

from sandboxd_guest import interpreter, reporting, textmodule
from sandboxd_guest.pristine import builtins_copy as __builtins__
from sandboxd_guest.sourcetext import without_mark

PROGRAM = "program.py"

_join_threads = threading._shutdown
_run_exit_handlers = atexit._run_exitfuncs
_usual_hook = sys.__excepthook__


def session(plan, send, receive_tests, outcomes, own, harness):
    """A generator with one step; see testrun.session."""
    streams = interpreter.prepare(plan, PROGRAM)
    report = reporting.Report(plan, send, streams, (PROGRAM,), own, outcomes, harness["exposed"])
    text = plan["program"]
    report.hold(PROGRAM, text)
    loader = textmodule.TextLoader(PROGRAM, text)
    main = textmodule.main_module(plan["workspace"] + "/" + PROGRAM, loader)
    try:
        code = compile(without_mark(text), PROGRAM, "exec", dont_inherit=True, optimize=0)
    except BaseException as error:
        yield from report.fatal(error, "program")
    try:
        interpreter.hide()
        yield code, vars(main), True
        yield from _finish(report, report.outcome())
    except BaseException as error:
        yield from report.failed_itself(error, "program")


def _finish(report, error):
    code = 0
    if error is not None and not _is_plain_exit(error):
        event = yield from report.exception(error, "program")
        code = event.get("exit_code", 1)
        yield from _show(report, error, event["traceback"])
    for last in (_join_threads, _run_exit_handlers):
        _, late = yield from report.call(last, interrupted=True)
        if late is not None:
            yield from _show(report, late)
    if code == 0 and report.is_first_process():
        report.send({"event": "done"})
    report.end(code)


def _is_plain_exit(error):
    return issubclass(type(error), SystemExit) and reporting.exit_code(error) == 0


def _show(report, error, traceback=None):
    if traceback is None:
        traceback = (yield from report.describe(error))[2]
    hook = getattr(sys, "excepthook", _usual_hook)
    if hook is _usual_hook or issubclass(type(error), SystemExit):
        yield from report.print(error, traceback)
        return
    _, second = yield from report.call(hook, type(error), error, error.__traceback__, interrupted=True)
    if second is not None:
        told = (yield from report.describe(second))[2]
        yield from report.print(second, "Error in sys.excepthook:\n" + told + "\nOriginal exception was:\n")
        yield from report.print(error, traceback)
