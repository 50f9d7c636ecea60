"""Makes an interpreter ready for forks that run one program each.

In a forked child a page costs when it is first written, and Python writes
wherever it looks: counts of references, caches of types, counters in code. So
runs are rehearsed here until the code is specialised and the caches are full,
and what children will need is laid out densely."""

import gc
import json
import linecache
import os
import sys
from _signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask
from _thread import stack_size
from types import CodeType, FunctionType

from sandboxd_guest import channel, program

_TIMES = 24  # CPython specialises code that has run some ten times
_SOLUTION = """
import sys
from collections import deque

class Pile:
    def __init__(self, items=()):
        self.items = list(items)

    def add(self, item, *, twice=False):
        self.items += [item, item] if twice else [item]
        return len(self.items)

def total(values):
    result = 0
    for value in values:
        if value is None or not isinstance(value, (int, float)):
            continue
        result += value
    return result

def words(text):
    found = {}
    for word in text.lower().split():
        found[word] = found.get(word, 0) + 1
    return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))

def safely(call, *arguments):
    try:
        return call(*arguments)
    except ZeroDivisionError as error:
        return f"{type(error).__name__}: {error}"
"""
_TESTS = """
def check(candidate):
    assert candidate([1, 2, None]) == 3, "total"
    assert candidate([]) == 0
    for n in range(3):
        assert candidate([n, n]) == 2 * n
check(total)
pile = Pile([1])
assert pile.add(2) == 2
assert pile.add(3, twice=True) > 3 and pile.items == [1, 2, 3, 3]
assert words("b a b") == [("b", 2), ("a", 1)]
assert safely(lambda n: 1 / n, 0).startswith("Zero")
assert abs(total([0.1, 0.2]) - 0.3) < 1e-9 and isinstance(sys.path, list)
assert 1 in deque([1]) and None not in {}
"""


def rehearse():
    """Call it once, last of all, when nothing has been frozen (gc.freeze) yet.
    Leaves no trace that a run could see."""
    gc.collect()
    tidy_memory()
    _move_together(_used_code())
    for _ in range(_TIMES):
        with _Unchanged():
            _run_once()
    program._harness["ready"] = None
    channel._made_ahead.clear()
    gc.collect()
    tidy_memory()
    _make_ahead(program._harness)
    channel.make_ahead()


def _make_ahead(harness):
    """As program does when it is imported: what was made then is not where it
    is to lie."""
    modes = harness["scriptrun"], harness["testrun"]
    harness["ready"] = {mode: mode.made_ahead(*harness["parts"], {}) for mode in modes}


def _used_code():
    """The code objects that a run uses, by their ids."""
    used = {}

    def note(frame, event, _):
        if event == "call":
            used[id(frame.f_code)] = frame.f_code

    with _Unchanged():
        sys.setprofile(note)
        try:
            _run_once()
        finally:
            sys.setprofile(None)
    return used


def _run_once():
    harness = dict(program._harness)
    _make_ahead(harness)
    interpreter, reporting = harness["interpreter"], harness["reporting"]
    plan = {"mode": "tests", "solution": _SOLUTION, "program": "", "args": [], "fail_fast": False,
            "workspace": "/nonexistent", "site_packages": [], "thread_stack_bytes": 512 << 10}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    tests, feed = os.pipe()
    text = json.dumps({"tests": _TESTS}).encode("ascii")
    os.write(feed, len(text).to_bytes(4, "big") + text)
    os.close(feed)
    outcomes, held = [], (interpreter.bound, interpreter.hide)
    # The first step of the end fails, with no frame of its own, and so does what
    # the session tries then.
    interpreter.bound, interpreter.hide = {}.__getitem__, _nothing
    try:
        line = program.Channel(nowhere, tests, "0" * 32)
        outcomes.append(program._begin(dict(plan), line, outcomes, harness))
        program._drive(outcomes, exec, BaseException, sys.gettrace, sys.settrace, _nothing, _nothing,
                       pthread_sigmask, SIG_BLOCK, SIG_SETMASK, program._SIGNALS)
    except KeyError as error:
        if error.args != (channel.EXIT_CHANNEL_BROKEN,):
            raise
        exec(reporting._END, dict(reporting._FILES_SPACE, objects=list, sys=None, streams=()))
    finally:
        interpreter.bound, interpreter.hide = held
        os.close(nowhere)


def _nothing():
    pass


def _move_together(used):
    """Lays the code that runs have used side by side. used: ids of code objects."""
    harness, (_, exposed) = program._harness, program._harness["parts"]
    spaces = [vars(program), vars(channel)]
    spaces.extend(vars(thing) for thing in (*harness.values(), *exposed.values()) if type(thing) is type(sys))
    own = set(map(id, spaces))
    spaces.extend([vars(thing) for space in spaces for thing in space.values() if type(thing) is type])
    functions = {
        id(thing): thing for space in spaces for thing in space.values()
        if type(thing) is FunctionType and id(thing.__globals__) in own}
    moved = {}
    for function in functions.values():
        _move(function.__code__, used, moved)
    for function in functions.values():
        function.__code__ = moved[id(function.__code__)][1]


def _move(code, used, moved):
    """Notes for code, and for all within it, what is to take its place. moved:
    by id, the old one and the new."""
    if id(code) in moved:
        return moved[id(code)][1]
    inner = tuple(
        _move(constant, used, moved) if type(constant) is CodeType else constant for constant in code.co_consts)
    same = all(new is old for new, old in zip(inner, code.co_consts))
    new = code if same and id(code) not in used else code.replace(co_consts=inner)
    moved[id(code)] = code, new
    return new


class _Unchanged:
    """Puts back what a run changes in its interpreter."""

    def __enter__(self):
        self.sys = dict(vars(sys))
        self.lists = [(kept, kept[:]) for kept in (sys.path, sys.meta_path)]
        self.dicts = [(kept, dict(kept)) for kept in (sys.modules, linecache.cache)]
        self.stack_size = stack_size()
        self.mask = pthread_sigmask(SIG_BLOCK, ())
        self.dice = [(module, get(module)) for module, get, _ in _dice()]

    def __exit__(self, *_):
        for kept, before in self.lists:
            kept[:] = before
        for kept, before in self.dicts:
            for key in [key for key in kept if key not in before]:
                del kept[key]
            kept.update(before)
        for name in [name for name in vars(sys) if name not in self.sys]:
            delattr(sys, name)
        for name, value in self.sys.items():
            if vars(sys).get(name, self) is not value:
                setattr(sys, name, value)
        stack_size(self.stack_size)
        for (module, _, put), (_, state) in zip(_dice(), self.dice):
            put(module, state)
        pthread_sigmask(SIG_SETMASK, self.mask)


def _dice():
    for name, get, put in (("random", "getstate", "setstate"), ("numpy.random", "get_state", "set_state")):
        module = sys.modules.get(name)
        if module is not None:
            yield module, lambda module, get=get: getattr(module, get)(), \
                lambda module, state, put=put: getattr(module, put)(state)


_CLASS_BYTES_MAX, _HEAP_BYTES_MAX = 256 << 10, 4 << 20
_SMALL_MAX = 512  # bytes; what is larger comes from malloc
_POOL, _POOL_HEAD = 16 << 10, 48
_LARGE = 100_000  # and yet from the heap
_FILL = b"."


class _Fillings:
    """A list that does not grow, which would leave gaps again."""

    def __init__(self):
        self.kept = [None] * (1 << 15)
        self.free = len(self.kept)

    def keep(self, thing):
        if self.free:
            self.free -= 1
            self.kept[self.free] = thing
        return self.free


_fillings = _Fillings()


def tidy_memory():
    """Fills the gaps that freed objects have left between others, so that what
    is allocated from now on lies together, on pages of its own. Costs a megabyte
    or two, once. Where objects lie otherwise than in CPython's pools and on
    glibc's heap, it does no good and no harm."""
    head = sys.getsizeof(b"")
    for size in range(16, _SMALL_MAX + 1, 16):
        for number in range(_CLASS_BYTES_MAX // size):
            filling = object() if size == 16 else 1.5 + number if size == 32 else _FILL * (size - head)
            if not _fillings.keep(filling) or id(filling) % _POOL == _POOL_HEAD:
                break  # the first of a new pool
    _fill_heap(head)


def _fill_heap(head):
    end, left = _heap_end(), _HEAP_BYTES_MAX
    while end and left > 0:
        left -= _LARGE
        filling = _FILL * _LARGE
        if id(filling) + _LARGE > end:
            end = id(filling)  # the heap has grown for it, and shrinks again
            break
        _fillings.keep(filling)
    filling = None
    sizes = [_LARGE * 3**step // 4**step for step in range(17)]
    sizes.extend(range(1040, _SMALL_MAX, -16))  # each has a list of free chunks
    for size in sizes:
        while left > 0:
            filling = _FILL * (size - head)  # bytes(n) would clear it, and leave what malloc caches
            if id(filling) >= end or not _fillings.keep(filling):
                break
            left -= size


def _heap_end():
    """0 where it is not known."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                if line.endswith(b"[heap]\n"):
                    return int(line.partition(b"-")[2].split()[0], 16)
    except OSError:
        pass
    return 0
