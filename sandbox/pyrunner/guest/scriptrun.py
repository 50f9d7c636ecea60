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
    report = reporting.Report(plan, send, interpreter.prepare(plan, PROGRAM), (PROGRAM,), own)
    text = plan["program"]
    report.held[PROGRAM].fill(text)
    loader = textmodule.TextLoader(PROGRAM, text)
    main = textmodule.main_module(plan["workspace"] + "/" + PROGRAM, loader)
    try:
        code = compile(without_mark(text), PROGRAM, "exec", dont_inherit=True, optimize=0)
    except BaseException as error:
        report.fatal(error, "program")
    try:
        interpreter.hide()
        yield code, vars(main)
        _finish(report, reporting.outcome_of(outcomes))
    except BaseException as error:
        report.failed_itself(error, "program")


def _finish(report, error):
    code = 0
    if error is not None and not _is_plain_exit(error):
        event = report.exception(error, "program")
        code = event.get("exit_code", 1)
        _show(report, error, event["traceback"])
    for last in (_join_threads, _run_exit_handlers):
        try:
            last()
        except BaseException as late:
            _show(report, late, report.formatter.format(late))
    if code == 0 and report.is_first_process():
        report.send({"event": "done"})
    report.end(code)


def _is_plain_exit(error):
    return issubclass(type(error), SystemExit) and reporting.exit_code(error) == 0


def _show(report, error, traceback):
    hook = getattr(sys, "excepthook", _usual_hook)
    if hook is _usual_hook or issubclass(type(error), SystemExit):
        report.print(error, traceback)
        return
    try:
        hook(type(error), error, error.__traceback__)
    except BaseException as second:
        report.print(second, report.formatter.format(second))
        report.print(error, traceback)
