"""Counting the assertions of the tests text.

Each assert statement becomes an if statement that tells a recorder how it went
and, when it failed, raises what Python would have raised, from where it
stands. Nothing is bound to a name: operands are passed through the recorder on
their way to the comparison, and the recorder itself is put into the compiled
code as a constant. So locals(), class dictionaries, metaclasses and scopes see
exactly what they see in a plain run.

    assert LEFT == RIGHT, MESSAGE

becomes, @ being the recorder,

    if @.first(LEFT) == @.then(RIGHT):
        @.passed(SITE)
    else:
        raise @.failed(@.failing(SITE), MESSAGE)

and without failing() where the message is missing or a constant.
"""

from ast import (
    Assert, Attribute, Call, Compare, Constant, Expr, If, Load, Raise,
    Eq, Gt, GtE, In, Is, IsNot, Lt, LtE, NotEq, NotIn)
from os import urandom
from sys import _getframe
from types import CodeType

from sandboxd_guest import interpreter, reprs
from sandboxd_guest.pristine import builtins_copy as __builtins__

NO_MESSAGE = "AssertionError (no message)"
_LOST_MESSAGE = "<message could not be shown: its expression raised an exception>"

_OPERATORS = {
    Eq: "==", NotEq: "!=", Lt: "<", LtE: "<=", Gt: ">", GtE: ">=",
    Is: "is", IsNot: "is not", In: "in", NotIn: "not in",
}
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_NOTHING = object()
_LOAD = Load()


class Instrumented:
    """sites: one tuple an assert statement, those of the top level first;
    top: how many of those there are; mark: stands for the recorder."""

    __slots__ = ("sites", "top", "mark")

    def __init__(self):
        self.sites = []
        self.top = 0
        # The text under test must not be able to contain it.
        self.mark = "@" + urandom(16).hex()


def instrument(body):
    """Rewrites the statements of a module in place. Every assert is a
    statement, so expressions need not be walked."""
    result = Instrumented()
    pending = []
    for index, node in enumerate(body):
        if type(node) is Assert:
            body[index] = _rewrite(node, result)
        else:
            pending.append(node)
    result.top = len(result.sites)
    # A list and not recursion: a long elif chain nests as deep as it is long.
    while pending:
        node = pending.pop()
        for block in _BLOCKS:
            children = getattr(node, block, None)
            if type(children) is not list:
                continue
            for index, child in enumerate(children):
                if type(child) is Assert:
                    children[index] = _rewrite(child, result)
                else:
                    pending.append(child)
    return result


def _rewrite(node, result):
    site, test = len(result.sites), node.test
    where = _place(node)
    # One node for all uses: a syntax tree may share them, and making nodes is
    # what instrumenting costs.
    recorder = Constant(value=result.mark, **where)
    operators, constant = (), _NOTHING
    if type(test) is Compare:
        operators = tuple(_OPERATORS[type(operator)] for operator in test.ops)
        constant = _record_operands(test, recorder)
    result.sites.append((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, operators, constant))
    number = Constant(value=site, **where)
    failed = [number]
    if node.msg is not None:
        if type(node.msg) is not Constant:
            failed = [_call(recorder, "failing", failed, where)]
        failed.append(node.msg)
    return If(
        test=test,
        body=[Expr(value=_call(recorder, "passed", [number], where), **where)],
        orelse=[Raise(exc=_call(recorder, "failed", failed, where), cause=None, **where)],
        **where)


def _place(node):
    return {
        "lineno": node.lineno, "col_offset": node.col_offset,
        "end_lineno": node.end_lineno, "end_col_offset": node.end_col_offset,
    }


def _call(recorder, method, arguments, where):
    function = Attribute(value=recorder, attr=method, ctx=_LOAD, **where)
    return Call(func=function, args=arguments, keywords=[], **where)


def _record_operands(test, recorder):
    """Leads the operands through the recorder. A constant side of a plain
    comparison is known already: returns (is it the left one, its value)."""
    operands = test.comparators
    if len(operands) == 1:
        if type(operands[0]) is Constant:
            test.left = _call(recorder, "first", [test.left], _place(test.left))
            return False, operands[0].value
        if type(test.left) is Constant:
            operands[0] = _call(recorder, "first", operands[:], _place(operands[0]))
            return True, test.left.value
    test.left = _call(recorder, "first", [test.left], _place(test.left))
    operands[:] = [_call(recorder, "then", [operand], _place(operand)) for operand in operands]
    return _NOTHING


def inject(code, mark, recorder):
    """code with the recorder in the place of its mark. A constant needs no
    name that the program could see, rebind or clear away."""
    constants = tuple(
        recorder if constant == mark and type(constant) is str
        else inject(constant, mark, recorder) if type(constant) is CodeType
        else constant
        for constant in code.co_consts)
    if all(new is old for new, old in zip(constants, code.co_consts)):
        return code
    code = code.replace(co_consts=constants)
    recorder.trust(code)
    return code


class Recorder:
    """Hears of every evaluation of every site, from any thread.

    An evaluation in progress is known by its frame: one frame is in one
    statement at a time, while threads, recursion and coroutines switch between
    frames. Frames are remembered by id, so as not to keep them alive."""

    __slots__ = (
        "_send", "_source", "_repr_room", "_room", "_full_reports", "_sites", "_operands",
        "_trusted", "_passed", "_failed", "_raised", "_unsettled", "failures", "unreported")

    def __init__(self, send, source, repr_room, room, full_reports):
        self._send = send
        self._source = source
        self._repr_room = repr_room
        self._room = room
        self._full_reports = full_reports
        self._sites = []
        self._operands = {}
        self._trusted = {}
        self._passed = set()
        self._failed = set()
        self._raised = {}
        self._unsettled = {}
        self.failures = 0
        self.unreported = 0

    def expect(self, sites):
        self._sites.extend(sites)

    def trust(self, code):
        """Only code instrumented here may tell of a pass: the solution can find
        the recorder in the constants of a frame above its own."""
        self._trusted[id(code)] = code  # kept, so that its id stays its own

    # Called by instrumented code.

    def first(self, operand):
        self._operands[id(_getframe(1))] = (operand,)
        return operand

    def then(self, operand):
        frame = id(_getframe(1))
        self._operands[frame] = self._operands.get(frame, ()) + (operand,)
        return operand

    def passed(self, site):
        if self._operands:
            self._operands.pop(id(_getframe(1)), None)
        if site not in self._passed and id(_getframe(1).f_code) in self._trusted:
            self._passed.add(site)
            self._send({"event": "passed", "site": site})

    def failing(self, site):
        """The site's test was false; its message is not evaluated yet, and may
        raise something else than AssertionError."""
        return self._begin(site, id(_getframe(1)))

    def failed(self, begun, *message):
        """The AssertionError to raise. begun: what failing() gave, or the site."""
        event = self._begin(begun, id(_getframe(1))) if type(begun) is int else begun
        text = ""
        if message and "source" in event:
            with interpreter.RoomToRecurse():
                text = reprs.message(message[0], self._room)
        event["message"] = text or NO_MESSAGE
        self._settle(event)
        error = AssertionError(*message)
        self._raised[id(error)] = (text, event["line"])
        return error

    def _begin(self, site, frame):
        operands = self._operands.pop(frame, ())
        event = self._event(site)
        if "source" in event:
            with interpreter.RoomToRecurse():
                self._compare(event, self._sites[site], operands)
        self._unsettled[id(event)] = event
        return event

    # Called between statements.

    def message_of(self, error, line):
        """The message of an error that came from the site at line and was
        reported then; else None. An id alone can be that of a dead error."""
        message, raised_at = self._raised.get(id(error), (None, 0))
        return message if raised_at == line else None

    def foreign(self, site, line, message):
        """An AssertionError that no site raised left a statement: of the top
        level assert `site`, or of another statement at `line`."""
        event = self._event(site)
        event["message"] = message or NO_MESSAGE
        if site is None:
            event["line"] = line
            if "source" in event:
                event["source"] = reprs.cut(self._source.line(line).strip(), self._repr_room)
        self._unsettled[id(event)] = event
        self._settle(event)

    def end_statement(self):
        """Forgets what an exception left behind half-way, so that it keeps no
        object alive, and reports failures whose message never came."""
        if self._operands:
            self._operands.clear()
        if self._raised:
            self._raised.clear()
        for event in list(self._unsettled.values()):
            event.setdefault("message", _LOST_MESSAGE)
            self._settle(event)

    def _event(self, site):
        """A failure as far as it is known. One more than is reported in full
        has no source."""
        self.failures += 1
        event = {"event": "failed", "site": site}
        if site is not None:
            event["line"] = self._sites[site][0]
        if self.failures <= self._full_reports:
            text = "" if site is None else self._source.segment(*self._sites[site][:4])
            event["source"] = reprs.cut(text, self._repr_room)
        return event

    def _settle(self, event):
        if self._unsettled.pop(id(event), None) is None:
            return
        site = event["site"]
        if "source" not in event and site is not None and site in self._failed:
            self.unreported += 1  # says nothing new
            return
        self._failed.add(site)
        self._send(event)

    def _compare(self, event, site, operands):
        operators, constant = site[4], site[5]
        if constant is not _NOTHING and operands:
            is_left, value = constant
            operands = (value, operands[0]) if is_left else (operands[0], value)
        if len(operands) < 2:
            return
        event["op"] = operators[len(operands) - 2]
        event["left"] = reprs.show(operands[-2], self._repr_room)
        event["right"] = reprs.show(operands[-1], self._repr_room)
