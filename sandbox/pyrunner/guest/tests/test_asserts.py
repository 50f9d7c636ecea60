import ast
import gc
import json
import sys
import threading
import types
import unittest
import warnings
import weakref

import tests  # noqa: F401
from sandboxd_guest import asserts, reprs
from sandboxd_guest.sourcetext import SourceText


class Instrumented:
    """A text compiled whole with its assertions counted."""

    def __init__(self, text, full_reports=200):
        self.events = []
        source = SourceText(text)
        self.plan = asserts.Instrumented()
        self.probes = asserts.Probes(self.plan.shown, reprs, 4096, 65536, full_reports)
        self.recorder = asserts.Recorder(self.events.append, source, self.plan, self.probes, full_reports)
        tree = ast.parse(text)
        asserts.instrument(tree.body, self.plan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            code = compile(tree, "tests.py", "exec", dont_inherit=True)
        self.code = asserts.inject(code, self.probes.by_mark(self.plan.mark))

    def run(self, **names):
        space = {"__name__": "tests", "__builtins__": __builtins__, **names}
        try:
            exec(self.code, space)
        except BaseException as error:
            self.error = error
        else:
            self.error = None
        self.recorder.collect()
        return space

    def of(self, kind):
        return [event for event in self.events if event["event"] == kind]


def run(text, **rooms):
    result = Instrumented(text, **rooms)
    result.run()
    return result


# Each text leaves `out` behind; run plain and instrumented it must be the same.
SAME_MEANING = {
    "operands once, left to right": """
out = []
def say(x):
    out.append(x)
    return x
assert say(1) < say(2) < say(3)
assert say(4) == say(4), say("never")
try:
    assert say(5) < say(5) < say(6), say("once")
except AssertionError as e:
    out.append(e.args)
""",
    "and, or, not are lazy": """
out = []
def say(x):
    out.append(x)
    return x
assert say(0) or say(1)
assert not (say(0) and say(2))
assert say(1) if say(1) else say(2)
""",
    "message kinds": """
out = []
class E(Exception): pass
for make in (lambda: None, lambda: "", lambda: ("a", 1), lambda: {"k": 1}, lambda: E("x"), lambda: 1 / 0):
    try:
        assert not 1, make()
    except BaseException as e:
        out.append((type(e), e.args[0] if make else None) if not isinstance(e, AssertionError) else repr(e.args))
try:
    assert 0
except AssertionError as e:
    out.append(e.args)
""",
    "tuple is true": "out = [1]\nassert (out.append(2), 'msg')\nassert (0, 0)\n",
    "walrus": """
out = []
assert (n := 5) == 5 and (m := n + 1) == 6
def f():
    assert (k := 3) < 4 < (j := 9)
    return k, j, sorted(locals())
out.append((n, m, f()))
""",
    "nonlocal, global, closures, del": """
out, counter = [], 0
def outer():
    x = 1
    def inner():
        nonlocal x
        global counter
        x += 1
        counter += 1
        assert x == 2, x
        del x
        try:
            assert x == 1
        except NameError as e:
            out.append(str(e))
        x = 7
    inner()
    return x
out.append((outer(), counter))
""",
    "comprehension and lambda scopes": """
out = []
x = "outer"
assert [x for x in range(3)] == [0, 1, 2]
assert (lambda x: x)(4) == 4
assert all(x == 1 for x in [1]) and x == "outer"
out.append(x)
""",
    "class bodies": """
out = []
class Names(dict):
    def __setitem__(self, key, value):
        out.append(("set", key))
        super().__setitem__(key, value)
    def __delitem__(self, key):
        out.append(("del", key))
        super().__delitem__(key)
class Meta(type):
    @classmethod
    def __prepare__(cls, name, bases):
        return Names()
class A(metaclass=Meta):
    value = 3
    assert value == 3 and sorted(vars())[-1] == "value", value
    class __B:
        __hidden = 1
        assert __hidden == 1
    assert "__B" not in vars() and "_A__B" in vars()
import enum
class Color(enum.Enum):
    RED = 1
    assert RED == 1
out.append(list(Color))
""",
    "nothing in the namespace": """
out = sorted(k for k in globals() if k != "out")
name = None
for name in globals():
    assert name in globals()
    assert len(globals()) == len(vars())
def f(a):
    assert a == 1 == a, locals()
    assert locals() == {"a": 1}
    return locals()
out.append(f(1))
name = None
out.append(sorted(k for k in globals()))
""",
    "generators": """
out = []
def gen():
    assert (yield 1) == (yield 2), (yield 3)
    assert (yield 4) in (yield 5)
g = gen()
out.append(next(g))
out.append(g.send("a"))
try:
    out.append(g.send("b"))
    g.send("why")
except AssertionError as e:
    out.append(e.args)
def two():
    assert (yield) == 1
    assert 2 > (yield)
h = two(); next(h); h.send(1)
try:
    h.send(0)
except StopIteration:
    out.append("stop")
def delegating():
    assert (yield from iter([1, 2])) is None
out.append(list(delegating()))
""",
    "async functions": """
import asyncio
out = []
async def value(x):
    await asyncio.sleep(0)
    return x
async def check(x):
    assert await value(x) == x, await value("m")
    assert x < await value(3) < await value(9), await value(x)
    return x
async def main():
    return await asyncio.gather(*(check(i) for i in range(5)), return_exceptions=True)
out.append([repr(r) for r in asyncio.run(main())])
async def each():
    async for x in numbers():
        assert x == [y async for y in numbers()][x]
        async with Manager() as m:
            assert m is None
    out.append("each")
async def numbers():
    for i in range(2):
        yield i
class Manager:
    async def __aenter__(self): pass
    async def __aexit__(self, *a): pass
asyncio.run(each())
""",
    "exceptions in operands, truth and comparison": """
out = []
class Odd:
    def __init__(self, what): self.what = what
    def __bool__(self): raise KeyError("bool")
    def __eq__(self, other): return self if self.what else 1 / 0
for what in (0, 1):
    try:
        assert Odd(what) == 1
    except Exception as e:
        out.append(repr(e))
try:
    assert Odd(1)
except KeyError as e:
    out.append((repr(e), e.__traceback__.tb_lineno))
""",
    "contexts and causes": """
out = []
try:
    try:
        1 / 0
    except ZeroDivisionError:
        assert 1 == 2, "in handler"
except AssertionError as e:
    out.append((repr(e.__context__), repr(e.__cause__), e.__suppress_context__))
    out.append(e.__traceback__.tb_lineno)
""",
    "every block": """
out = []
class Manager:
    def __enter__(self): return self
    def __exit__(self, kind, error, trace):
        out.append(kind)
        return True
with Manager():
    assert 1 == 2
while True:
    assert out
    break
else:
    assert 0
for _ in ():
    assert 0
else:
    assert not 0
try:
    assert 0, "t"
except AssertionError as e:
    out.append(str(e))
finally:
    assert True
if not out: pass
elif out:
    assert out, "elif"
else: assert 0
""",
    "frames and recursion": """
import sys
out = []
class Deep:
    def __eq__(self, other):
        frame = sys._getframe()
        names = []
        while frame.f_code.co_filename == "tests.py":
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        out.append(names)
        return True
def f():
    assert Deep() == 1
f()
def fact(n):
    assert n >= 0 and (n < 1 or n == fact(n - 1) + 1), n
    return n
out.append(fact(50))
""",
    "decorated, nested, star expressions, slices": """
out = []
def deco(f):
    assert callable(f)
    return f
@deco
def f(*a, **k):
    assert [*a, *k] == [1, 2, "z"], a
    assert a[::-1][0] == 2 != a[0]
    def g():
        assert f is not g
        class H:
            def h(self):
                assert __class__ is H
                return super().__init__
        return H().h()
    g()
    return a
out.append(f(1, 2, z=3))
""",
}


class MeaningTest(unittest.TestCase):
    def test_same_as_plain_python(self):
        for name, text in SAME_MEANING.items():
            with self.subTest(name):
                plain = {"__name__": "tests", "__builtins__": __builtins__}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", SyntaxWarning)
                    exec(compile(text, "tests.py", "exec", dont_inherit=True), plain)
                counted = Instrumented(text)
                space = counted.run()
                self.assertIsNone(counted.error)
                self.assertEqual(repr(space["out"]), repr(plain["out"]))
                self.assertEqual(sorted(space), sorted(plain))

    @unittest.skipIf(sys.version_info < (3, 10), "no match statement")
    def test_match(self):
        result = run("match 3:\n    case 3:\n        assert 1 == 2\n    case _:\n        assert 0\n")
        self.assertEqual([event["line"] for event in result.of("failed")], [3])

    def test_raises_the_real_thing_at_its_line(self):
        result = run("x = 1\nassert (\n  x ==\n  2), 'm'\n")
        self.assertIs(type(result.error), AssertionError)
        self.assertEqual(result.error.args, ("m",))
        trace = result.error.__traceback__.tb_next
        self.assertEqual((trace.tb_lineno, trace.tb_next), (2, None))

    def test_keeps_nothing_alive(self):
        text = """
class Thing: pass
def ref(thing):
    refs.append(weakref.ref(thing))
    return thing
assert ref(Thing()) != ref(Thing())
assert [r() for r in refs] == [None, None]
try:
    assert ref(Thing()) == ref(Thing())
except AssertionError:
    pass
assert [r() for r in refs] == [None] * 4
"""
        result = Instrumented(text)
        result.run(refs=[], weakref=weakref)
        self.assertIsNone(result.error)

    def test_aborted_statement_is_forgotten_at_its_end(self):
        result = Instrumented("assert ref(Thing()) == 1 / 0\n")
        refs = []

        def ref(thing):
            refs.append(weakref.ref(thing))
            return thing

        result.run(ref=ref, Thing=type("Thing", (), {}))
        self.assertIs(type(result.error), ZeroDivisionError)
        result.error = None
        result.recorder.end_statement()
        self.assertIsNone(refs[0]())

    def test_long_elif_chain(self):
        text = "x = 2\nif x == 0: pass\n" + "".join("elif x == -%d: assert 0\n" % i for i in range(400))
        result = run(text + "else: assert x == 2\n")
        self.assertIsNone(result.error)
        self.assertEqual(len(result.plan.sites), 401)


class CountTest(unittest.TestCase):
    def test_top_level_sites_come_first(self):
        result = Instrumented("def f():\n assert 0\nassert 1\nif 1:\n assert 2\nassert 3\n")
        self.assertEqual(result.plan.top, 2)
        self.assertEqual([site[0] for site in result.plan.sites[:2]], [3, 6])
        self.assertEqual(sorted(site[0] for site in result.plan.sites[2:]), [2, 5])

    def test_passes_are_told_once(self):
        result = run("for i in range(100):\n    assert i == i\n    assert i >= 0\n")
        self.assertEqual(len(result.of("passed")), 2)

    def test_each_failure_is_told(self):
        result = run("for i in range(3):\n  try:\n    assert i != i, i\n  except AssertionError: pass\n")
        self.assertEqual([event["message"] for event in result.of("failed")], ["0", "1", "2"])

    def test_failure_beyond_the_full_reports(self):
        text = "def f(i):\n  try:\n    assert i < 0, i\n  except AssertionError: pass\n" \
               "for i in range(10): f(i)\ntry:\n  assert [] == 1\nexcept AssertionError: pass\n"
        result = run(text, full_reports=3)
        full = [event for event in result.of("failed") if "source" in event]
        brief = [event for event in result.of("failed") if "source" not in event]
        self.assertEqual([event["message"] for event in full], ["0", "1", "2"])
        self.assertEqual([(event["line"], "left" in event) for event in brief], [(7, False)])
        result.recorder.finish()
        self.assertEqual((result.recorder.failures, result.recorder.unreported), (11, 7))

    def test_threads_generators_and_recursion_do_not_mix_up_operands(self):
        text = """
def f(n):
    assert n == (f(n - 1) if n else "end"), n
    return n
def g(n):
    assert n == (yield n)
def quiet(call, *a):
    try: call(*a)
    except AssertionError: pass
quiet(f, 3)
a, b = g("a"), g("b")
next(a); next(b)
quiet(a.send, "x"); quiet(b.send, "y")
def h(n):
    for i in range(300):
        try:
            assert (n, i) == (slow(n), -1)
        except AssertionError: pass
def slow(n):
    return n
ts = [threading.Thread(target=h, args=(n,)) for n in range(4)]
[t.start() for t in ts]
[t.join() for t in ts]
"""
        result = Instrumented(text, full_reports=10**6)
        result.run(threading=threading)
        failed = result.of("failed")
        self.assertEqual((failed[0]["left"], failed[0]["right"]), ("0", "'end'"))
        self.assertEqual([(e["left"], e["right"]) for e in failed[1:3]], [("'a'", "'x'"), ("'b'", "'y'")])
        self.assertEqual(len(failed), 1000)
        for event in failed[3:]:
            left, right = eval(event["left"]), eval(event["right"])
            self.assertEqual((left[0], right[1]), (right[0], -1))

    def test_operands_shown(self):
        cases = {
            "1 == 2": ("==", "1", "2"), "f(1) == 2": ("==", "1", "2"), "1 == f(2)": ("==", "1", "2"),
            "f(1) >= f(2)": (">=", "1", "2"), "1 in [2]": ("in", "1", "[2]"), "1 not in [f(1)]": ("not in", "1", "[1]"),
            "[] is None": ("is", "[]", "None"), "f(None) is not None": ("is not", "None", "None"),
            "1 < f(2) < 2": ("<", "2", "2"), "f(3) < 2 < f(4)": ("<", "3", "2"), "1 < 2 != 2": ("!=", "2", "2"),
        }
        for test, expected in cases.items():
            with self.subTest(test):
                event = run("f = lambda x: x\nassert %s\n" % test).of("failed")[0]
                self.assertEqual((event["op"], event["left"], event["right"]), expected)
        for test in ("not 1", "f(0)", "0 and 1 == 1", "f(1) == 2 or 0", "()"):
            with self.subTest(test):
                self.assertNotIn("op", run("f = lambda x: x\nassert %s\n" % test).of("failed")[0])

    def test_source_of_the_statement(self):
        text = "é = 1; assert é == 'ö', 'ü'; x = 2\nif x:\n\tassert (x ==\r\n\t 3)\n"
        sites = Instrumented(text.replace("\r\n", "\n")).plan.sites
        source = SourceText(text)
        shown = [source.segment(*site[:4]) for site in sites]
        self.assertEqual(shown, ["assert é == 'ö', 'ü'", "assert (x ==\n\t 3)"])

    def test_message_expression_that_raises_still_fails_the_site(self):
        result = run("try:\n  assert 1 == 2, 1 / 0\nexcept ZeroDivisionError: pass\n")
        event, = result.of("failed")
        self.assertEqual((event["left"], event["message"][:32]), ("1", "<message could not be shown: its"))

    def test_low_recursion_limit(self):
        text = "def deep(n):\n  if n: return deep(n - 1)\n  assert [[[[n]]]] == 1, 'm'\ndeep(%d)\n"
        for depth in range(850, 1000):
            result = run(text % depth)
            if type(result.error) is RecursionError:
                break
            self.assertEqual(result.of("failed")[0]["left"], "[[[[0]]]]")
        self.assertEqual(sys.getrecursionlimit(), 1000)


class TrustTest(unittest.TestCase):
    """Notes are claims of user code, which can change them all."""

    TEXT = "assert 0, 'm'\n"

    def notes(self, tamper):
        result = Instrumented("def f():\n  try:\n    assert 0, 'm'\n  finally:\n    tamper()\nf()\n")
        result.run(tamper=lambda: tamper(result.probes))
        result.recorder.finish()
        return result

    def test_a_failure_cannot_be_taken_back(self):
        for tamper in (lambda p: p.log.clear(), lambda p: p.log.__setitem__(0, None),
                       lambda p: p.log[0].__setitem__(0, "x"), lambda p: p.log[0].clear()):
            event, = self.notes(tamper).of("failed")
            self.assertEqual(event["message"], "<an assertion failed and the note of it is gone>")
        event, = self.notes(lambda p: p.log[0].__setitem__(4, [1])).of("failed")
        self.assertEqual(event["site"], 0)

    def test_forged_passes_need_the_token(self):
        result = self.notes(lambda p: p.told.update(range(1000), ["0", None]))
        self.assertEqual(result.of("passed"), [])


class BudgetTest(unittest.TestCase):
    LOOP = "for i in range(300):\n  try:\n    assert t == 0, t\n  except AssertionError: pass\n"

    def test_the_texts_of_a_run_are_bounded_as_sent(self):
        for letter in ("\0", "é", "\U0001f600", "x"):
            with self.subTest(letter):
                result = Instrumented(self.LOOP)
                result.run(t=letter * (1 << 20))
                sizes = [len(json.dumps(event)) for event in result.events]
                self.assertLess(sum(sizes), 2 << 20)
                self.assertLess(max(sizes), 320 << 10)
                for event in result.of("failed"):
                    self.assertTrue(event["message"].startswith(letter * 90))

    def test_messages_beyond_the_full_reports_are_real_and_brief(self):
        text = "".join("try: assert 0, 'm%d' + 'y' * 5000\nexcept AssertionError: pass\n" % n for n in range(1200))
        result = run(text)
        failed = result.of("failed")
        self.assertEqual(len(failed), 1000)
        self.assertEqual([event["message"][:5] for event in failed], [("m%dyyyy" % n)[:5] for n in range(1000)])
        self.assertLess(max(len(event["message"]) for event in failed[200:]), 260)
        result.recorder.finish()
        self.assertEqual(result.recorder.unreported, 200)


class CodeTest(unittest.TestCase):
    def test_text_cannot_name_the_recorder(self):
        first, second = Instrumented("assert 1"), Instrumented("assert 1")
        self.assertNotEqual(first.plan.mark, second.plan.mark)

    def test_code_stays_hashable(self):
        def codes(code):
            yield code
            for constant in code.co_consts:
                if type(constant) is types.CodeType:
                    yield from codes(constant)

        result = Instrumented("def f():\n  def g():\n    assert 1 == 2\n")
        for code in codes(result.code):
            hash(code)

    def test_untouched_code_is_the_same_object(self):
        code = compile("def f(): return '@'", "x", "exec")
        self.assertIs(asserts.inject(code, {}), code)

    def test_probes_keep_no_frames(self):
        result = run("def f():\n  assert 1 == 1\nf()\n")
        self.assertFalse([o for o in gc.get_objects() if isinstance(o, types.FrameType) and o.f_code.co_name == "f"
                          and o.f_code.co_filename == "tests.py"])
        self.assertEqual(result.probes.operands, {})

    def test_probes_lead_nowhere_by_attributes(self):
        probes = Instrumented("assert 1").probes
        for name, probe in probes.by_mark("").items():
            with self.subTest(name):
                for attribute in ("__wrapped__", "__func__", "__code__", "__closure__", "__globals__"):
                    self.assertFalse(hasattr(probe, attribute))
                self.assertNotIsInstance(getattr(probe, "__self__", None), (dict, list, types.FunctionType))


if __name__ == "__main__":
    unittest.main()
