import unittest

import tests  # noqa: F401
from tests.guestrun import run_tests
from tests.test_scriptrun import WHOLE, WRITERS, whole

SQUARE = "def square(x):\n    return x * x\n"

# solution, tests, (passed, total), messages of failures, exception type
TABLE = {
    "all pass": (SQUARE, "assert square(2) == 4\nassert square(3) == 9, 'm'\n", (2, 2), [], None),
    "empty": ("", "", (0, 0), [], None),
    "comment only": ("# nothing", "\n  \n# x\n", (0, 0), [], None),
    "failures do not stop": (
        SQUARE, "assert square(2) == 5\nassert square(2) == 4\nassert square(2) == 6, 'six'\n", (1, 3),
        ["AssertionError (no message)", "six"], None),
    "messages": (
        "", "assert 0, ('t', 2)\nassert 0, {'k': [1]}\nassert 0, None\nassert 0, ValueError('inner')\nassert 0, ''\n",
        (0, 5), ["('t', 2)", "{'k': [1]}", "None", "inner", "AssertionError (no message)"], None),
    "exception stops; top level counts": (
        SQUARE, "assert square(1) == 1\nassert 1 / 0\nassert 1\ndef f():\n  assert 1\n", (1, 3), [],
        "ZeroDivisionError"),
    "inside functions": (
        SQUARE, "def check(x):\n  assert square(x) == 4, x\n  assert 1\ncheck(2)\ncheck(3)\ncheck(2)\n", (1, 2), ["3"],
        None),
    "never called": ("", "def f():\n  assert 0\n", (0, 0), [], None),
    "loop ends its statement": ("", "for i in range(3):\n  assert i < 1, i\nassert 1\n", (1, 2), ["1"], None),
    "caught still counts": ("", "try:\n  assert 0, 'c'\nexcept AssertionError: pass\nassert 1\n", (1, 2), ["c"], None),
    "foreign assertion": (
        "", "import unittest\nt = unittest.TestCase()\nt.assertEqual(1, 2)\nt.assertTrue(1)\nassert 1\n", (1, 2),
        ["1 != 2"], None),
    "foreign assertion in a top level assert": (
        "def f():\n  raise AssertionError('own')\n", "assert f() == 1, 'm'\n", (0, 1), ["own"], None),
    "the solution's assertions": (
        "def f(x):\n  assert x > 0, 'positive'\n  return x\nassert f(1)\n",
        "assert f(1) == 1\nf(-1)\nassert f(2) == 2\n", (2, 3), ["positive"], None),
    "explicit raise": ("", "raise AssertionError\nassert 1\n", (1, 2), ["AssertionError (no message)"], None),
    "assertion under another": (
        "", "def f():\n  assert 0, 'in'\nassert f() is None, 'out'\n", (0, 2), ["in"], None),
    "class body and method": (
        "", "class A:\n  assert 1\n  def m(self):\n    assert 0, 'm'\nA().m()\n", (1, 2), ["m"], None),
    "private names stay home": ("_x = 1\n__y = 2\nz = 3", "assert z == 3\nassert _x == 1\n", (1, 2), [], "NameError"),
    "modules are public names": ("import math as m", "assert m.pi > 3\n", (1, 1), [], None),
    "solution can be imported": ("v = 1\n_w = 2", "import solution\nfrom solution import _w\n"
                                 "assert solution.v == 1 and _w == 2\n", (1, 1), [], None),
    "system exit": ("", "assert 1\nimport sys\nsys.exit(0)\nassert 1", (1, 2), [], "SystemExit"),
    "own base exception": ("class Q(BaseException): pass\ndef f(): raise Q('q')", "assert f()", (0, 1), [], "Q"),
    "keyboard interrupt": ("", "raise KeyboardInterrupt", (0, 0), [], "KeyboardInterrupt"),
    "generator exit": ("", "raise GeneratorExit('g')\nassert 1", (0, 1), [], "GeneratorExit"),
    "return at top level": ("", "assert 1\nreturn\n", (0, 0), [], "SyntaxError"),
    "global after use": ("", "x = 1\nglobal x\nassert x", (0, 0), [], "SyntaxError"),
    "late future import": ("", "x = 1\nfrom __future__ import annotations\n", (0, 0), [], "SyntaxError"),
    "tabs and spaces": ("", "if 1:\n\tx = 1\n        y = 1\n", (0, 0), [], "TabError"),
    "future flags are carried": (
        "", "from __future__ import annotations\ndef f(x: undefined): return 1\nassert f(0)\n", (1, 1), [], None),
    "docstring is the first statement": (
        "", "'doc'\nassert __doc__ == 'doc'\n'text'\nassert __doc__ == 'doc'\n", (2, 2), [], None),
    "no docstring": ("", "x = 1\n'text'\nassert __doc__ is None\n", (1, 1), [], None),
    "byte order marks": ("\ufeffx = 1", "\ufeffassert x == 1\n", (1, 1), [], None),
    "line ends": ("x = '''a\r\nb'''\r\n", "if x:\r\n\tassert x == 'a\\nb', repr(x)\r", (1, 1), [], None),
    "coding cookies": (
        "# coding: latin-1\nx = 'é'", "# -*- coding: cp1252 -*-\nassert x == '\\xe9'\n", (1, 1), [], None),
    "text is no template": (
        "", 's = """a\n  b\n{x} %s"""\nassert s == "a\\n  b\\n{x} %s", f"{s!r} {{}}"\n', (1, 1), [], None),
    "main": ("", "assert __name__ == '__main__'\nimport sys, __main__\nassert __main__.__dict__ is globals()\n"
             "assert sys.argv == ['tests.py']\n", (3, 3), [], None),
    "pickle, dataclass, enum, hints": (
        "import dataclasses, enum, typing\n@dataclasses.dataclass\nclass P:\n  x: 'int'\n"
        "class C(enum.Enum):\n  A = 1\n",
        "import pickle, typing\nclass T: pass\nassert pickle.loads(pickle.dumps(P(1))) == P(1)\n"
        "assert pickle.loads(pickle.dumps(C.A)) is C.A\nassert typing.get_type_hints(P) == {'x': int}\n"
        "assert type(pickle.loads(pickle.dumps(T()))) is T\n", (4, 4), [], None),
    "source of the solution": (
        "def f():\n    return 1\nclass K:\n    pass\n",
        "import inspect\nassert inspect.getsource(f) == 'def f():\\n    return 1\\n'\n"
        "assert inspect.getsource(K).startswith('class K')\nassert inspect.getfile(f) == 'solution.py'\n",
        (3, 3), [], None),
    "replaced module": (
        "import sys, types\nclass M(types.ModuleType):\n  x = 2\nx = 1\nsys.modules[__name__] = M('solution')\n",
        "assert x == 1\nimport solution\nassert solution.x == 2\n", (2, 2), [], None),
    "async": (
        "async def f(x):\n  return x\n", "import asyncio\nasync def main():\n  assert await f(1) == 2, 'a'\n"
        "asyncio.run(main())\nassert asyncio.run(f(3)) == 3\n", (1, 2), ["a"], None),
    "threads": (
        "import threading\ndef go(f):\n  t = threading.Thread(target=f)\n  t.start()\n  t.join()\n",
        "def w():\n  assert 1\n  assert 0, 't'\ngo(w)\nassert 1\n", (2, 3), ["t"], None),
    "interactive helpers": ("", "assert exit and quit and help and copyright\n", (1, 1), [], None),
    "standard input is empty": ("import sys\nx = sys.stdin.read()", "assert x == ''\n", (1, 1), [], None),
    "recursion limit and depth": (
        "import sys\nsys.setrecursionlimit(9000)\ndef f(n): return n and f(n - 1)\n", "assert f(5000) == 0\n", (1, 1),
        [], None),
}


class TableTest(unittest.TestCase):
    def test_table(self):
        for name, (solution, text, counts, messages, exception) in TABLE.items():
            with self.subTest(name):
                ended = run_tests(solution, text)
                self.assertEqual(ended.counts(), counts, ended.events)
                self.assertEqual(ended.messages(), messages)
                self.assertEqual((ended.exception or {}).get("type"), exception)
                self.assertEqual(ended.done, exception is None)
                self.assertEqual(ended.signal, 0)
                kinds = [event["event"] for event in ended.events]
                self.assertEqual(kinds[0], "loaded")
                self.assertIn(kinds[-1], ("done", "exception"))


class LoadTest(unittest.TestCase):
    def test_solution_that_does_not_load(self):
        cases = {
            "def f(:\n": ("SyntaxError", "invalid syntax (solution.py, line 1)"),
            "x = 1\nraise ValueError('a: b\\nc')": ("ValueError", "a: b\nc"),
            "raise KeyboardInterrupt": ("KeyboardInterrupt", ""),
            "class Q(BaseException): pass\nraise Q(1)": ("Q", "1"),
            "x = '\udc00'": ("UnicodeEncodeError", None),
            "(" * 5000: (None, None),
            "import nowhere": ("ModuleNotFoundError", "No module named 'nowhere'"),
        }
        for text, (kind, message) in cases.items():
            with self.subTest(text[:40]):
                ended = run_tests(text, "assert 1\n")
                self.assertEqual([event["event"] for event in ended.events], ["exception"])
                self.assertEqual(ended.exception["phase"], "solution")
                self.assertEqual(ended.exception["type"], kind or ended.exception["type"])
                self.assertEqual(ended.exception["message"], message if message is not None else
                                 ended.exception["message"])
                self.assertEqual(ended.code, 1)

    def test_null_byte_is_told_as_python_tells_it(self):
        try:
            compile("\0", "x", "exec")
        except (ValueError, SyntaxError) as error:
            kind = type(error).__name__
        self.assertEqual(run_tests("\0", "").exception["type"], kind)
        ended = run_tests("", "assert 1\n\0")
        self.assertEqual((ended.exception["type"], ended.exception["phase"]), (kind, "tests"))

    def test_exit_codes(self):
        for argument, code in (("", 0), ("None", 0), ("0", 0), ("3", 3), ("-1", 255), ("'text'", 1), ("True", 1),
                               ("2**64", 255),
                               ("-2**63", 0), ("2**63", 255), ("2**62 + 7", 7)):
            ended = run_tests("import sys\nsys.exit(%s)" % argument, "")
            self.assertEqual((ended.exception["exit_code"], ended.code, ended.done), (code, code, False))
        self.assertEqual(run_tests("import sys\nsys.exit('bye')", "").stderr, "bye\n")

    def test_syntax_lines(self):
        self.assertEqual(run_tests("x = 1\ndef f(:\n", "").exception["syntax_line"], 2)
        ended = run_tests("", "assert 1\n\nreturn\n")
        self.assertEqual((ended.exception["syntax_line"], ended.exception["phase"]), (3, "tests"))
        self.assertNotIn("syntax_line", run_tests("compile('(', 'x', 'exec')", "").exception)

    def test_tests_come_after_loading(self):
        ended = run_tests("import os, time\ntime.sleep(0.05)\nprint('loaded', flush=True)", "print('tests')\n")
        self.assertEqual(ended.stdout, "loaded\ntests\n")


class ReportTest(unittest.TestCase):
    def test_events_of_a_failure(self):
        ended = run_tests(SQUARE, "x = 3\nassert square(\n  x) == 8, f'{x}'\n")
        self.assertEqual(ended.events, [
            {"event": "loaded"},
            {"event": "sites", "top": 1, "all": 1},
            {"event": "failed", "site": 0, "line": 2, "source": "assert square(\n  x) == 8, f'{x}'", "op": "==",
             "left": "9", "right": "8", "message": "3"},
            {"event": "done"},
        ])
        self.assertEqual(ended.stderr, 'Traceback (most recent call last):\n  File "tests.py", line 2, in <module>\n'
                                       "    assert square(\nAssertionError: 3\n")

    def test_foreign_failure_names_its_line(self):
        ended = run_tests("", "import unittest\ndef f():\n  unittest.TestCase().fail('x')\nf()\n")
        event, = ended.of("failed")
        self.assertEqual((event["site"], event["line"], event["source"]), (None, 3, "unittest.TestCase().fail('x')"))

    def test_traceback_of_an_exception(self):
        ended = run_tests("def f(x):\n    return 1 / x\n", "assert 1\n\nassert f(0), 'm'\n")
        expected = ('Traceback (most recent call last):\n  File "tests.py", line 3, in <module>\n'
                    "    assert f(0), 'm'\n"
                    '  File "solution.py", line 2, in f\n    return 1 / x\nZeroDivisionError: division by zero\n')
        self.assertEqual((ended.exception["traceback"], ended.stderr), (expected, expected))

    def test_stderr_keeps_its_order(self):
        ended = run_tests("import sys", "sys.stderr.write('before')\nassert 0\nprint('after', file=sys.stderr)\n")
        self.assertTrue(ended.stderr.startswith("beforeTraceback"))
        self.assertTrue(ended.stderr.endswith("AssertionError\nafter\n"))

    def test_fail_fast(self):
        text = "assert 1\ntry:\n  assert 0, 'a'\nexcept AssertionError: pass\nassert 0, 'b'\n"
        ended = run_tests("", text, fail_fast=True)
        self.assertEqual((ended.messages(), ended.counts(), ended.done), (["a"], (1, 3), True))

    def test_message_object_is_asked_once(self):
        solution = "class M:\n  def __str__(self):\n    print('asked')\n    return 'm'\n"
        for text in ("assert 0, M()\n", "raise ValueError(M())\n", "raise AssertionError(M())\n"):
            self.assertEqual(run_tests(solution, text).stdout, "asked\n", text)

    def test_caps(self):
        ended = run_tests("", "assert 0, 'x' * 10**7\nassert 'y' * 10**7 == [0] * 10**6\n",
                          message_bytes=1000, repr_bytes=100)
        first, second = ended.of("failed")
        self.assertEqual(first["message"], "x" * 1000 + "… [cut, 10000000 characters in all]")
        self.assertLess(len(second["left"] + second["right"]), 300)
        self.assertLess(len(ended.stderr), 4000)

    def test_failures_beyond_the_full_reports(self):
        text = "def f(i):\n  try:\n    assert 0, i\n  except AssertionError: pass\nfor i in range(50): f(i)\nassert 0\n"
        ended = run_tests("", text, failures_max=10)
        self.assertEqual(len([event for event in ended.of("failed") if "source" in event]), 10)
        self.assertEqual(ended.counts(), (0, 2))
        self.assertEqual(ended.of("done"), [{"event": "done", "unreported": 40}])

    def test_warnings_about_the_text_come_once(self):
        ended = run_tests("", "x = 1\nassert x is 1\nassert (x, 'always')\n")
        self.assertEqual(ended.stderr.count("SyntaxWarning"), ended.stderr.count("tests.py:"))
        self.assertEqual(ended.stderr.count("literal"), 1)

    def test_memory_error(self):
        def little():
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))

        solution = "def f():\n  x = []\n  while 1: x.append(bytearray(1 << 20))\n"
        ended = run_tests(solution, "assert f()\n", before=little)
        self.assertEqual(ended.exception["type"], "MemoryError")

    def test_a_thread_of_the_solution_does_not_delay_the_end(self):
        solution = "import threading, time\nthreading.Thread(target=time.sleep, args=(30,)).start()"
        ended = run_tests(solution, "assert 1\n")
        self.assertTrue(ended.passed)
        self.assertLess(ended.seconds, 5)

    def test_forked_child_that_comes_back_tells_nothing(self):
        ended = run_tests("import os", "pid = os.fork()\nassert 1\nif pid: os.waitpid(pid, 0)\nif not pid: 1 / 0\n")
        self.assertEqual((len(ended.of("done")), ended.exception), (1, None))

    def test_alarm_between_statements(self):
        """A handler that raises while the harness works still ends in its own exception."""
        solution = ("import signal\nclass Late(Exception): pass\ndef late(*a): raise Late('x')\n"
                    "signal.signal(signal.SIGALRM, late)\n")
        text = "signal.setitimer(signal.ITIMER_REAL, 0.03)\n" + "x = 1\n" * 200000
        ended = run_tests(solution, text, seconds=60)
        self.assertFalse(ended.passed)
        self.assertEqual(ended.exception["type"], "Late")

    def test_errors_of_signal_handlers_are_the_programs(self):
        """The usual way to limit time: TimeoutError is an OSError."""
        for kind in ("TimeoutError", "BrokenPipeError", "ConnectionError"):
            for arguments in ("", "32, 'x'"):
                solution = "import signal\ndef late(*a): raise %s(%s)\nsignal.signal(signal.SIGALRM, late)\n" % (
                    kind, arguments)
                text = "signal.setitimer(signal.ITIMER_REAL, 0.002, 0.0005)\n" + "assert 1\n" * 3000
                ended = run_tests(solution, text, seconds=60)
                self.assertEqual(ended.exception["type"], kind)
                self.assertEqual([e["event"] for e in ended.events].count("exception"), 1)
                self.assertEqual(ended.events[-1]["event"], "exception")
                self.assertNotIn("channel", ended.exception["traceback"])
                self.assertIn("in late", ended.exception["traceback"])

    def test_open_files_are_written_out(self):
        for end in ("", "1 / 0\n", "import sys\nsys.exit(0)\n"):
            ended = run_tests(WRITERS + "import atexit\natexit.register(print, 'exit')\n", "assert 1\n" + end)
            self.assertEqual((whole(ended.files), ended.stdout), (WHOLE, "exit\n"))
        ended = run_tests("import atexit, time\natexit.register(time.sleep, 30)\n", "assert 1\n")
        self.assertTrue(ended.passed)
        self.assertLess(ended.seconds, 5)

    def test_a_text_nested_too_deep_fails_as_python_says(self):
        text = "assert 1\nassert " + "-" * 5000 + "1\n"
        try:
            compile(text, "tests.py", "exec")
        except Exception as error:
            expected = type(error).__name__, str(error)
        else:
            return  # some versions compile it
        said = run_tests("", text).exception
        self.assertEqual((said["type"], said["message"]), expected)

    def test_a_text_is_wrong_as_a_whole(self):
        for text, message in (("x = 1\nassert 1\nglobal x\n", "is assigned to before global declaration"),
                              ("assert 1\nfrom __future__ import annotations\n", "at the beginning of the file")):
            ended = run_tests("", text)
            self.assertIn(message, ended.exception["message"])
            self.assertEqual(ended.of("sites"), [])

    def test_warnings_are_given_once(self):
        ended = run_tests("", "x = 5\nassert (x, 'x')\nassert x is 5\ns = '\\d'\n"
                          "import warnings\nassert len(warnings.filters) > 0\n")
        said = [line for line in ended.stderr.splitlines() if "Warning" in line]
        self.assertEqual(len(said), 3, ended.stderr)
        self.assertTrue(ended.passed)

    def test_a_held_failure_counts_once(self):
        text = "try:\n  assert 0, 'm'\nexcept AssertionError as e:\n\n  raise e.with_traceback(None)\n"
        ended = run_tests("", text)
        self.assertEqual((ended.counts(), ended.messages()), ((0, 1), ["m"]))

    def test_reload(self):
        ended = run_tests("n = 1\nseen = []\n", "import importlib, solution\nsolution.n = 2\n"
                          "assert importlib.reload(solution).n == 1\nimport sys\ndel sys.modules['solution']\n"
                          "import solution as again\nassert again.n == 1\n")
        self.assertTrue(ended.passed, ended.stderr)

    def test_output_is_whole(self):
        ended = run_tests("import sys", "print('\\udcff', end='')\nsys.stdout.write('tail')\nassert 1\n")
        self.assertEqual(ended.stdout, "\\udcfftail")


if __name__ == "__main__":
    unittest.main()
