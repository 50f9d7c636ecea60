"""A run of a solution and its tests.

A generator: it yields code for the driver to execute and is suspended
meanwhile, so that no frame of it lies under user code. The tests' text enters
the process only after the solution was loaded.
"""

import __future__
import sys
import warnings
from ast import PyCF_ONLY_AST, Assert, Constant, Expr, Module
from gc import disable as gc_disable, enable as gc_enable, freeze as gc_freeze, isenabled as gc_is_enabled

from sandboxd_guest import asserts, interpreter, reporting, textmodule
from sandboxd_guest.pristine import builtins_copy as __builtins__
from sandboxd_guest.sourcetext import BYTE_ORDER_MARK, SourceText
from sandboxd_guest.tracebacks import middle_cut

SOLUTION, TESTS = "solution.py", "tests.py"
REPR_CHARS = 4096
FAILURES_MAX = 200
SHOWN_CHARS = 2048  # of a failed assertion's traceback, on stderr

_FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag
_HAS_CURRENT_EXCEPTIONS = hasattr(sys, "_current_exceptions")  # from Python 3.10
_NO_WARNINGS = ("ignore", None, Warning, None, 0)


def made_ahead(own, exposed, options):
    return Tests(own, exposed, options)


def session(tests, plan, send, receive_tests, outcomes, harness):
    """tests: what made_ahead made; outcomes: the list to which the driver adds,
    after each step, None or the exception that came out; harness: its modules,
    kept alive because freeing them would cost time."""
    report, recorder = tests.report, tests.recorder
    report.begin(plan, send, outcomes, interpreter.prepare(plan, TESTS))
    text, main = plan["solution"], tests.main
    tests.begin(plan)
    phase = "solution"
    try:
        try:
            code = compile(text.removeprefix(BYTE_ORDER_MARK), SOLUTION, "exec", dont_inherit=True, optimize=0)
        except BaseException as error:
            yield from report.fatal(error, phase)
        # They would show a thread the frames that work between two statements;
        # a dict is a callable that shows nothing.
        sys._current_frames = dict
        if _HAS_CURRENT_EXCEPTIONS:
            sys._current_exceptions = dict
        gc_freeze()  # what exists now is hidden from gc.get_objects() and gc.get_referrers()
        yield code, tests.solution, True
        error = report.outcome()
        if error is not None:
            yield from report.fatal(error, phase)
        _export(tests.solution, main)
        send({"event": "loaded"})
        phase = "tests"
        pending = tests.load(receive_tests())
        if pending is None:
            yield from report.fatal(tests.error, phase)
        while pending:
            code, site, line = pending.pop()
            yield code, main, True
            error = report.outcome()
            if recorder.collect() or error is not None:
                yield from tests.settle(error, site, line)
                if recorder.failures and plan.get("fail_fast"):
                    break
        report.tell(recorder.finish())
        yield from report.leave(0)
    except BaseException as error:
        yield from report.failed_itself(error, phase)


def _export(solution, main):
    """Public names, from the module's dictionary and not through the module,
    which can replace itself in sys.modules or define __getattr__."""
    for name, value in list(solution.items()):
        if type(name) is str and name[:1] != "_":
            main[name] = value


class Tests:
    """The statements of the tests and the account of their assertions. All of
    it is made before user code starts, for the reason given at SourceText, and
    before there is a run: what a forked child makes itself costs it more."""

    def __init__(self, own, exposed, options):
        room, full = reporting.message_room(options), options.get("failures_max", FAILURES_MAX)
        self._instrumented = asserts.Instrumented()
        self._probes = asserts.Probes(
            self._instrumented.shown, exposed["reprs"], options.get("repr_bytes") or REPR_CHARS, room, full)
        own = own + [self._probes.space]
        self.report = reporting.Report(room, (SOLUTION, TESTS), own, exposed)
        self._source = SourceText()
        self.recorder = asserts.Recorder(self.report.tell, self._source, self._instrumented, self._probes, full)
        self._failures_max = full
        self._solution, self._main = textmodule.Solution(SOLUTION), textmodule.main_module("")
        self.solution, self.main = vars(self._solution.module), vars(self._main)
        self.error = None

    def begin(self, plan):
        text, folder = plan["solution"], plan["workspace"]
        self.report.hold(SOLUTION, text)
        self.main["__file__"] = folder + "/" + TESTS
        sys.modules["__main__"] = self._main
        self._solution.appear(folder + "/" + SOLUTION, text)

    def load(self, text):
        """The code of each statement, its assertion's site or None, its line;
        the last statement first. None when there is an error."""
        text = text.removeprefix(BYTE_ORDER_MARK)
        self._source.fill(text)
        self.report.hold(TESTS, text)
        collecting = gc_is_enabled()
        gc_disable()  # a syntax tree is many objects and no garbage
        try:
            tree = compile(text, TESTS, "exec", PyCF_ONLY_AST, dont_inherit=True)
            # Whole, for its warnings and for what is wrong only then.
            code = compile(tree, TESTS, "exec", dont_inherit=True, optimize=0)
            body = self._split(tree, code.co_flags & _FUTURE_FLAGS)
        except BaseException as error:
            self.error = error
        finally:
            if collecting:
                gc_enable()
        if self.error is not None:
            if type(self.error) is RecursionError:
                self._ask_python(text)
            return None
        self.report.send({
            "event": "sites", "top": self._instrumented.top, "all": len(self._instrumented.sites)})
        body.reverse()
        return body

    def _ask_python(self, text):
        """A text nested too deep has another message when its tree is compiled
        than when it is compiled itself, if that fails too."""
        try:
            compile(text, TESTS, "exec", dont_inherit=True, optimize=0)
        except BaseException as error:
            self.error = error

    def _split(self, tree, flags):
        # Warnings about this text were given when it was compiled whole.
        filters = warnings.filters if type(warnings.filters) is list else []
        filters.insert(0, _NO_WARNINGS)
        try:
            plain, instrumented = tree.body[:], self._instrumented
            asserts.instrument(tree.body, instrumented)
            probes = self._probes.by_mark(instrumented.mark)
            body, site, single = [], 0, [None]
            module = Module(single, [])
            for index, node in enumerate(tree.body):
                if index and _is_text(node):
                    continue  # on its own it would be compiled as the docstring
                single[0] = node
                code = compile(module, TESTS, "exec", flags, dont_inherit=True, optimize=0)
                asserted = type(plain[index]) is Assert
                body.append((asserts.inject(code, probes), site if asserted else None, node.lineno))
                site += asserted
            return body
        finally:
            if filters and filters[0] is _NO_WARNINGS:
                del filters[0]
            else:  # a thread has been at them
                filters[:] = [item for item in filters if item is not _NO_WARNINGS]

    def settle(self, error, site, line):
        recorder = self.recorder
        if error is not None:
            if not issubclass(type(error), AssertionError):
                yield from self.report.fatal(error, "tests")
            yield from self._count(error, site, line)
            yield from self.report.drop()
        if recorder.trash or self._probes.operands:
            yield from self.report.drop(recorder.end_statement())

    def _count(self, error, site, line):
        """An AssertionError left the statement."""
        message = self.recorder.message_of(error)
        if message is None or self.recorder.failures <= self._failures_max:
            _, said, traceback, places, _ = yield from self.report.describe(error, message)
            if message is None:
                lines = [at for file, at, _ in places if file == TESTS]
                self.recorder.foreign(site, lines[-1] if lines else line, said)
            if self.recorder.failures <= self._failures_max:
                # Two hundred of them at full length would fill the stream.
                yield from self.report.print(error, middle_cut(traceback, SHOWN_CHARS))


def _is_text(node):
    return type(node) is Expr and type(node.value) is Constant and type(node.value.value) is str
