"""Counting the assertions of the tests text.

Each assert statement becomes an if statement that tells probes how it went and,
when it failed, raises what Python would have raised, from where it stands.
Nothing is bound to a name: operands are passed through probes on their way to
the comparison, and the probes are put into the compiled code as constants. So
locals(), class dictionaries, metaclasses and scopes see
exactly what they see in a plain run.

    assert LEFT == RIGHT, MESSAGE

becomes, the names being the probes themselves,

    if first(LEFT) == then(RIGHT):
        passed(TOKEN)
    else:
        raise failed(failing(fails(), SITE), MESSAGE)
"""

from ast import (
    AST, Assert, Call, Compare, Constant, Expr, If, Raise,
    Eq, Gt, GtE, In, Is, IsNot, Lt, LtE, NotEq, NotIn)
from collections import deque
from functools import _lru_cache_wrapper
from itertools import count
from os import urandom
from sys import _getframe, getrecursionlimit, setrecursionlimit
from types import CodeType, FunctionType

from sandboxd_guest import reprs
from sandboxd_guest.pristine import builtins_copy as __builtins__

NO_MESSAGE = "AssertionError (no message)"
FAILURES_TOLD_MAX = 1000
_NOTE_GONE = "<an assertion failed and the note of it is gone>"
_LOST_MESSAGE = "<message could not be shown: its expression raised an exception>"

_OPERATORS = {
    Eq: "==", NotEq: "!=", Lt: "<", LtE: "<=", Gt: ">", GtE: ">=",
    Is: "is", IsNot: "is not", In: "in", NotIn: "not in",
}
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_NOTHING = object()
_RECENT = 64  # failures without a note whose error is still recognised
_SPARE_RECURSION = 400


class Instrumented:
    """sites: one tuple an assert statement, those of the top level first;
    top: how many of those there are; shown: of each site, what is known of its
    operands; mark: begins what stands for a probe; tokens: the sites by what
    tells of their passes."""

    __slots__ = ("sites", "top", "shown", "mark", "tokens")

    def __init__(self):
        self.sites, self.shown, self.tokens = [], [], {}
        self.top = 0
        self.mark = ""


def instrument(body, result):
    """Rewrites the statements of a module in place, and fills in result. Every
    assert is a statement, so expressions need not be walked."""
    # The text under test must not be able to contain it.
    result.mark = "@" + urandom(16).hex()
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


def _rewrite(node, result):
    site, test, mark = len(result.sites), node.test, result.mark
    operators, constant, made = (), _NOTHING, []
    if type(test) is Compare:
        operators = tuple(map(_OPERATORS.get, map(type, test.ops)))
        constant = _record_operands(test, mark)
    result.sites.append((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset))
    result.shown.append((operators, constant))
    token = int.from_bytes(urandom(7), "big")
    result.tokens[token] = site
    fails = _call(mark + "fails", [], made)
    failing = _call(mark + "failing", [fails, _constant(site, made)], made)
    raised, passes, branch = _new(Raise), _new(Expr), _new(If)
    raised.exc = _call(mark + "failed", [failing] if node.msg is None else [failing, node.msg], made)
    passes.value = _call(mark + "passed", [_constant(token, made)], made)
    branch.test, branch.body, branch.orelse = test, [passes], [raised]
    made += raised, passes, branch
    _place(made, node)
    return branch


def _place(nodes, node):
    """Lets nodes be where node is."""
    line, column, end_line, end_column = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
    for made in nodes:
        made.lineno, made.col_offset, made.end_lineno, made.end_col_offset = line, column, end_line, end_column


# Nodes are made without their types' __init__, which looks up and compares the
# names of all fields; optional fields are None in the types. Each node made is
# added to a list, to get its place.
_new = AST.__new__
_NO_KEYWORDS = []


def _constant(value, made):
    node = _new(Constant)
    node.value = value
    made.append(node)
    return node


def _call(probe, arguments, made):
    node, function = _new(Call), _new(Constant)
    function.value = probe
    node.func, node.args, node.keywords = function, arguments, _NO_KEYWORDS
    made += node, function
    return node


def _led_through(probe, operand):
    made = []
    call = _call(probe, [operand], made)
    _place(made, operand)
    return call


def _record_operands(test, mark):
    """Leads the operands through the probes. A constant side of a plain
    comparison is known already: returns (is it the left one, its value)."""
    operands, left = test.comparators, test.left
    if len(operands) == 1 and type(left) is Constant and type(operands[0]) is not Constant:
        operands[0] = _led_through(mark + "first", operands[0])
        return True, left.value
    test.left = _led_through(mark + "first", left)
    if len(operands) == 1 and type(operands[0]) is Constant:
        return False, operands[0].value
    for index, operand in enumerate(operands):
        operands[index] = _led_through(mark + "then", operand)
    return _NOTHING


def inject(code, probes):
    """code with the probes in the places of their marks. A constant needs no
    name that the program could see, rebind or clear away."""
    constants, changed = list(code.co_consts), False
    for index, constant in enumerate(constants):
        if type(constant) is str:
            new = probes.get(constant, constant)
        elif type(constant) is CodeType:
            new = inject(constant, probes)
        else:
            continue
        if new is not constant:
            constants[index], changed = new, True
    return code.replace(co_consts=tuple(constants)) if changed else code


class Probes:
    """What the instrumented code calls, from any thread. User code can reach
    all of it: through the constants of a frame above its own, as a tracer, from
    a repr. So nothing here leads to the rest of the harness, and these functions
    see neither its modules nor the built-ins it uses. They only take notes:

    - told: tokens of sites that passed;
    - fails: a counter that nothing can set back, so that a test that was false
      once cannot be made undone;
    - log: what there is to show of failures, which is no more than that.

    The recorder reads the notes between two statements.

    An evaluation in progress is known by its frame: one frame is in one
    statement at a time, while threads, recursion and coroutines switch between
    frames. Frames are remembered by id, so as not to keep them alive."""

    __slots__ = ("space", "told", "log", "recent", "operands", "fails", "_named")

    def __init__(self, shown, shower, repr_room, room, full_reports):
        """shown: what is known of each site's operands, filled in later."""
        self.space = {"__builtins__": {}}
        self.told, self.log, self.operands = set(), [], {}
        self.recent = deque(maxlen=_RECENT)
        self.fails = count().__next__
        functions = _operand_probes(self.operands, self.told.add)
        functions += _failure_probes(
            self.operands, self.log, self.recent, shown, shower, repr_room, room, full_reports)
        self._named = {function.__name__: self._opaque(function) for function in functions}
        self._named["fails"] = self.fails

    def _opaque(self, function):
        """A callable whose attributes do not lead to function, which could be
        given another code."""
        bare = FunctionType(function.__code__, self.space, function.__name__, None, function.__closure__)
        return _lru_cache_wrapper(bare, 0, False, tuple)

    def by_mark(self, mark):
        return dict(zip(map(mark.__add__, self._named), self._named.values()))


def _operand_probes(operands, tell):
    frame_at, identity = _getframe, id

    def first(operand):
        operands[identity(frame_at(1))] = (operand,)
        return operand

    def then(operand):
        frame = identity(frame_at(1))
        operands[frame] = operands.get(frame, ()) + (operand,)
        return operand

    def passed(token):
        if operands:
            operands.pop(identity(frame_at(1)), None)
        tell(token)

    return [first, then, passed]


def _failure_probes(operands, log, recent, sites, shower, repr_room, room, full_reports):
    frame_at, identity, failure, size = _getframe, id, AssertionError, len
    limit_now, set_limit, too_deep = getrecursionlimit, setrecursionlimit, RecursionError
    smallest, limit_max = min, 2**31 - 1
    show, say, brief, nothing = shower.show, shower.message, shower.brief, _NOTHING
    spare, chars_max, log_max = _SPARE_RECURSION, 2 * reprs.RUN_BYTES_MAX, FAILURES_TOLD_MAX
    noted, spent, begun = set(), [0], [0]

    def text_of(make, value, limit):
        text = make(value, limit)
        if spent[0] > chars_max:
            return brief(text)
        spent[0] += size(text)
        return text

    def fill(note, site, values):
        operators, constant = sites[site]
        if constant is not nothing and values:
            is_left, value = constant
            values = (value, values[0]) if is_left else (values[0], value)
        if size(values) >= 2:
            note[1] = operators[size(values) - 2]
            note[2] = text_of(show, values[-2], repr_room)
            note[3] = text_of(show, values[-1], repr_room)

    def failing(number, site):
        """The site's test was false; its message is not evaluated yet, and may
        raise something else than AssertionError."""
        values = operands.pop(identity(frame_at(1)), ())
        note = [site, None, None, None, None, None]
        begun[0] += 1
        full = begun[0] <= full_reports
        if not full and (site in noted or size(noted) >= log_max):
            return None
        noted.add(site)
        log.append(note)
        before = limit_now()
        set_limit(smallest(before + spare, limit_max))
        raised = limit_now()
        try:
            if full:
                fill(note, site, values)
        finally:
            if limit_now() == raised:
                try:
                    set_limit(before)
                except too_deep:
                    pass  # lower than where we stand
        return note

    def failed(note, *message):
        """The AssertionError to raise. note: what failing() gave."""
        error = failure(*message)
        if note is None:
            recent.append(error)
            return error
        before = limit_now()
        set_limit(smallest(before + spare, limit_max))
        raised = limit_now()
        try:
            note[4] = text_of(say, message[0], room) if message else ""
        finally:
            if limit_now() == raised:
                try:
                    set_limit(before)
                except too_deep:
                    pass
        note[5] = error
        return error

    return [failing, failed]


class Recorder:
    """Makes events of what the probes noted. It works between statements only,
    and believes no more of the notes than it must."""

    def __init__(self, send, source, instrumented, probes, full_reports):
        self._send = send
        self._source = source
        self._probes = probes
        self._full_reports = full_reports
        self._budget = reprs.Budget()
        self._sites, self._by_token = instrumented.sites, instrumented.tokens
        self._passed, self._failed = set(), set()
        self._raised = []  # (error, message) of this statement
        self._counted = 0  # what the next look at the counter would give
        self._evaluated = self._noted = self._told = 0
        self.trash = []
        self.failures = 0
        self.unreported = 0

    def collect(self):
        """Sends what was noted since. Returns whether there is more to see to:
        failures, or things to forget."""
        told = self._probes.told
        if told:
            sites = []
            while told:
                token = told.pop()
                site = self._by_token.get(token) if type(token) is int else self.trash.append(token)
                if site is not None and site not in self._passed:
                    sites.append(site)
            sites.sort()
            self._passed.update(sites)
            for site in sites:
                self._send({"event": "passed", "site": site})
        now = self._probes.fails()
        failed, self._counted = now - self._counted, now + 1
        if failed or self._probes.log:
            self._evaluated += failed
            self.failures += failed
            self._take_log()
        return self.failures or self.trash or self._probes.operands

    def _take_log(self):
        log = self._probes.log
        notes = log[:]
        del log[: len(notes)]
        for note in notes:
            self.trash.append(note)
            if type(note) is list and len(note) == 6 and type(note[0]) is int and 0 <= note[0] < len(self._sites):
                self._noted += 1
                self._tell(*note)

    def _tell(self, site, op, left, right, message, error):
        event = {"event": "failed", "site": site, "line": self._sites[site][0]}
        if self._told < self._full_reports:
            event["source"] = self._budget.take(self._source.segment(*self._sites[site]))
            if type(op) is str and type(left) is str and type(right) is str:
                event["op"] = op[:10]
                event["left"], event["right"] = self._budget.take(left), self._budget.take(right)
        known = message if type(message) is str else _LOST_MESSAGE
        event["message"] = self._message(known)
        if error is not None:
            self._raised.append((error, known))
        self._deliver_failure(event)

    def _message(self, text):
        if self._told >= self._full_reports:
            text = reprs.brief(text)
        return self._budget.take(text or NO_MESSAGE)

    def message_of(self, error):
        """The message of an error that came from a site in this statement."""
        for held, message in self._raised:
            if held is error:
                return message
        return "" if any(held is error for held in self._probes.recent) else None

    def foreign(self, site, line, message):
        """An AssertionError that no site raised left a statement: of the top
        level assert `site`, or of another statement at `line`."""
        self.failures += 1
        event = {"event": "failed", "site": site, "line": line if site is None else self._sites[site][0]}
        if self._told < self._full_reports:
            text = self._source.line(line).strip() if site is None else self._source.segment(*self._sites[site])
            event["source"] = self._budget.take(text)
        event["message"] = self._message(message)
        self._deliver_failure(event)

    def _deliver_failure(self, event):
        site = event["site"]
        if self._told >= self._full_reports and site is not None and site in self._failed \
                or self._told >= FAILURES_TOLD_MAX:
            self.unreported += 1  # says nothing new
            return
        self._failed.add(site)
        self._told += 1
        self._send(event)

    def end_statement(self):
        """Forgets what the statement left, and returns it: an exception can
        leave operands behind half-way, which must be kept alive no longer."""
        things, self.trash = self.trash, []
        things.extend(self._raised)
        things.extend(self._probes.operands.values())
        things.extend(self._probes.recent)
        self._raised = []
        self._probes.operands.clear()
        self._probes.recent.clear()
        return things

    def finish(self):
        """The last event. Failing evaluations of which no note is left are
        those that said nothing new, or that user code has taken away."""
        self.collect()
        missing = self._evaluated - self._noted
        if missing > 0:
            if self._told < self._full_reports:
                self.foreign(None, 0, _NOTE_GONE)
                missing -= 1
                self.failures -= 1
            self.unreported += missing
        return {"event": "done", "unreported": self.unreported} if self.unreported else {"event": "done"}
