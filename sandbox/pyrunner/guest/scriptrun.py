"""A run of one program, ended the way an ordinary interpreter ends."""

import atexit
import gc
import sys
import threading

from sandboxd_guest import interpreter, reporting, textmodule, tracebacks
from sandboxd_guest.pristine import builtins_copy as __builtins__
from sandboxd_guest.sourcetext import BYTE_ORDER_MARK

PROGRAM = "program.py"

# As an interpreter ends: what the program's modules alone hold alive is freed,
# which runs finalisers and writes files out.
_END_MODULES = compile("""
for name in names:
    try: modules.pop(name, None)
    except anything: pass
collect()
""", tracebacks.HARNESS, "exec")

_join_threads = threading._shutdown
_run_exit_handlers = atexit._run_exitfuncs
_usual_hook = sys.__excepthook__


def made_ahead(own, exposed, options):
    return reporting.Report(reporting.message_room(options), (PROGRAM,), own, exposed)


def session(report, plan, send, receive_tests, outcomes, harness):
    """A generator with one step; see testrun.session. report: what made_ahead
    made."""
    streams = interpreter.prepare(plan, PROGRAM)
    report.begin(plan, send, outcomes, streams)
    text = plan["program"]
    report.hold(PROGRAM, text)
    textmodule.show_lines(PROGRAM, text)
    loader = textmodule.TextLoader(PROGRAM, text)
    gc.freeze()  # hides what exists from gc.get_objects() and gc.get_referrers()
    # After that, so that the collector can free it at the end.
    sys.modules["__main__"] = main = textmodule.main_module(plan["workspace"] + "/" + PROGRAM, loader)
    try:
        code = compile(text.removeprefix(BYTE_ORDER_MARK), PROGRAM, "exec", dont_inherit=True, optimize=0)
    except BaseException as error:
        yield from report.fatal(error, "program")
    try:
        steps = _steps(code, vars(main))
        del main, code  # so that they end when the program does
        yield from steps
        yield from _finish(report)
    except BaseException as error:
        yield from report.failed_itself(error, "program")


def _steps(code, space):
    yield code, space, True


def _finish(report):
    code, error = 0, report.outcome()
    if error is not None and not _is_plain_exit(error):
        event = yield from report.exception(error, "program")
        code = event.get("exit_code", 1)
        yield from _show(report, error, event["traceback"])
    for last in (_join_threads, _run_exit_handlers):
        _, late = yield from report.call(last, interrupted=True)
        if late is not None:
            yield from _show(report, late)
    error = late = None
    yield from report.drop()
    yield from report.write_files()
    yield _END_MODULES, {"__builtins__": {}, "modules": sys.modules, "collect": gc.collect,
                         "names": _own_modules(report.workspace), "anything": BaseException}, True
    report.outcome()
    if code == 0:
        report.tell({"event": "done"})
    yield from report.end(code)


def _own_modules(workspace):
    names = ["__main__"]
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if type(module) is type(sys) else None
        if type(file) is str and type(name) is str and file.startswith(workspace + "/") and name != "__main__":
            names.append(name)
    return names


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
