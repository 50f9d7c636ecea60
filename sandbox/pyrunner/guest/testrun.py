"""A run of a solution and its tests.

A generator: it yields code for the driver to execute and is suspended
meanwhile, so that no frame of it lies under user code. The tests' text enters
the process only after the solution was loaded.
"""

import __future__
import sys
import warnings
from ast import PyCF_ONLY_AST, Assert, Constant, Expr, Module
from gc import disable as gc_disable, enable as gc_enable, isenabled as gc_is_enabled

from sandboxd_guest import asserts, interpreter, reporting, textmodule
from sandboxd_guest.pristine import builtins_copy as __builtins__
from sandboxd_guest.sourcetext import SourceText, without_mark
from sandboxd_guest.tracebacks import middle_cut

SOLUTION, TESTS = "solution.py", "tests.py"
REPR_CHARS = 4096
FAILURES_MAX = 200
SHOWN_CHARS = 2048  # of a failed assertion's traceback, on stderr

_FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag
_NO_WARNINGS = ("ignore", None, Warning, None, 0)


def session(plan, send, receive_tests, outcomes, own, harness):
    """outcomes: the list to which the driver adds, after each step, None or the
    exception that came out; own: the module dictionaries of the harness;
    harness: its modules, kept alive because freeing them would cost time."""
    streams = interpreter.prepare(plan, TESTS)
    report = reporting.Report(plan, send, streams, (SOLUTION, TESTS), own, outcomes, harness["exposed"])
    tests = _Tests(plan, report, own)
    solution, main = _modules(plan, report)
    phase = "solution"
    try:
        try:
            code = compile(without_mark(plan["solution"]), SOLUTION, "exec", dont_inherit=True, optimize=0)
        except BaseException as error:
            yield from report.fatal(error, phase)
        # They would show a thread the frames that work between two statements.
        for name in ("_current_frames", "_current_exceptions"):
            if hasattr(sys, name):
                setattr(sys, name, dict)  # a callable that shows nothing
        interpreter.hide()
        yield code, solution, True
        error = report.outcome()
        if error is not None:
            yield from report.fatal(error, phase)
        _export(solution, main)
        send({"event": "loaded"})
        phase = "tests"
        yield from tests.load(receive_tests())
        while tests.pending:
            yield tests.next(), main, True
            yield from tests.judge(report.outcome())
        tests.done()
        yield from report.leave(0)
    except BaseException as error:
        yield from report.failed_itself(error, phase)


def _modules(plan, report):
    """The dictionaries of solution and __main__."""
    text, folder = plan["solution"], plan["workspace"]
    report.hold(SOLUTION, text)
    main = textmodule.main_module(folder + "/" + TESTS)
    solution = textmodule.solution_module(folder + "/" + SOLUTION, SOLUTION, text)
    return vars(solution), vars(main)


def _export(solution, main):
    """Public names, from the module's dictionary and not through the module,
    which can replace itself in sys.modules or define __getattr__."""
    for name, value in list(solution.items()):
        if type(name) is str and name[:1] != "_":
            main[name] = value


class _Tests:
    """The statements of the tests and the account of their assertions. Made
    before user code starts, for the reason given at SourceText."""

    def __init__(self, plan, report, own):
        self._report = report
        self._fail_fast = plan.get("fail_fast", False)
        self._source = SourceText()
        full = plan.get("failures_max", FAILURES_MAX)
        self._probes = asserts.Probes(report.exposed["reprs"], plan.get("repr_bytes") or REPR_CHARS, report.room, full)
        own.append(self._probes.space)
        self._recorder = asserts.Recorder(report.send, self._source, self._probes, full, report.is_first_process)
        self._failures_max = full
        self.pending = []  # (code, site or None, line), last first
        self._site, self._line = None, 0

    def load(self, text):
        text = without_mark(text)
        self._source.fill(text)
        self._report.hold(TESTS, text)
        collecting = gc_is_enabled()
        gc_disable()  # a syntax tree is many objects and no garbage
        failure = None
        try:
            flags = compile(text, TESTS, "exec", dont_inherit=True, optimize=0).co_flags & _FUTURE_FLAGS
            body, instrumented = self._split(text, flags)
        except BaseException as error:
            failure = error
        finally:
            if collecting:
                gc_enable()
        if failure is not None:
            yield from self._report.fatal(failure, "tests")
        self._recorder.expect(instrumented)
        self._report.send({"event": "sites", "top": instrumented.top, "all": len(instrumented.sites)})
        body.reverse()
        self.pending.extend(body)

    def _split(self, text, flags):
        # Warnings about this text were given when it was compiled whole.
        filters = warnings.filters if type(warnings.filters) is list else []
        filters.insert(0, _NO_WARNINGS)
        try:
            tree = compile(text, TESTS, "exec", PyCF_ONLY_AST | flags, dont_inherit=True)
            asserted = [type(node) is Assert for node in tree.body]
            instrumented = asserts.instrument(tree.body)
            probes = self._probes.by_mark(instrumented.mark)
            body, site = [], 0
            for index, node in enumerate(tree.body):
                if index and _is_text(node):
                    continue  # on its own it would be compiled as the docstring
                code = compile(Module([node], []), TESTS, "exec", flags, dont_inherit=True, optimize=0)
                code = asserts.inject(code, probes)
                body.append((code, site if asserted[index] else None, node.lineno))
                site += asserted[index]
            return body, instrumented
        finally:
            filters[:] = [item for item in filters if item is not _NO_WARNINGS]

    def next(self):
        code, self._site, self._line = self.pending.pop()
        return code

    def judge(self, error):
        """After a statement: error is what came out of it, or None."""
        recorder = self._recorder
        recorder.collect()
        if error is not None:
            if not issubclass(type(error), AssertionError):
                yield from self._report.fatal(error, "tests")
            yield from self._count(error)
            yield from self._report.drop()
        if recorder.trash or self._probes.operands:
            yield from self._report.drop(recorder.end_statement())
        if self._fail_fast and recorder.failures:
            self.pending.clear()

    def _count(self, error):
        """An AssertionError left the statement."""
        message = self._recorder.message_of(error)
        if message is None or self._recorder.failures <= self._failures_max:
            _, said, traceback, places, _ = yield from self._report.describe(error, message)
            if message is None:
                lines = [line for file, line, _ in places if file == TESTS]
                self._recorder.foreign(self._site, lines[-1] if lines else self._line, said)
            if self._recorder.failures <= self._failures_max:
                # Two hundred of them at full length would fill the stream.
                yield from self._report.print(error, middle_cut(traceback, SHOWN_CHARS))

    def done(self):
        self._recorder.finish()
        if self._report.is_first_process():
            event = {"event": "done"}
            if self._recorder.unreported:
                event["unreported"] = self._recorder.unreported
            self._report.send(event)


def _is_text(node):
    return type(node) is Expr and type(node.value) is Constant and type(node.value.value) is str
