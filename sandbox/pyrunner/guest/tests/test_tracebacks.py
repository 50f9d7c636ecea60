import json
import os
import re
import tempfile
import traceback
import unittest

import tests  # noqa: F401
from sandboxd_guest import tracebacks
from sandboxd_guest.sourcetext import SourceText

NAME = "user.py"


def raised_by(text, name=NAME):
    """The exception that text ends with, as if a harness had called it."""
    try:
        exec(compile(text, name, "exec"), {"__name__": "__main__"})
    except BaseException as error:
        return error


def formatter(text="", room=65536):
    return tracebacks.Formatter({NAME: SourceText(text)}, [globals()], room)


def ours(text, room=65536):
    return formatter(text, room).format(raised_by(text))


def pythons(text):
    """What Python prints, with our frame and its markers taken out."""
    error = raised_by(text)
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).split("\n")
    kept, skip = [], False
    for line in lines:
        if line.startswith("  File "):
            skip = __file__ in line
        elif not line.startswith("    "):
            skip = False
        if not skip and not re.fullmatch(r" +[~^]+", line):
            kept.append(line)
    return "\n".join(kept)


class SameAsPythonTest(unittest.TestCase):
    TEXTS = {
        "plain": "def f():\n    return 1 / 0\n\n\nf()\n",
        "cause": "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('a: b') from e\n",
        "context": "try:\n    {}['k']\nexcept KeyError:\n    int('x')\n",
        "suppressed": "try:\n    {}['k']\nexcept KeyError:\n    raise ValueError('only') from None\n",
        "no message": "raise ValueError\n",
        "own class": "class E(Exception):\n    pass\nraise E('x\\ny')\n",
        "through a library": "import json\njson.loads('{')\n",
        "lambda": "(lambda: 1 / 0)()\n",
        "recursion": "def f(n):\n    return f(n - 1) if n else 1 / 0\nf(20)\n",
        "short recursion": "def f(n):\n    return f(n - 1) if n else 1 / 0\nf(3)\n",
        "one repeat": "def f(n):\n    return f(n - 1)if n else g()\ndef g():\n    raise ValueError\nf(3)\n",
        "syntax error of a text": "compile('x = (1,\\ny = 2', 'other.py', 'exec')\n",
    }

    def test_format(self):
        held = {}
        for name, text in self.TEXTS.items():
            with self.subTest(name):
                # Python finds the held lines where we give them to it.
                import linecache
                linecache.cache[NAME] = (len(text), None, text.splitlines(True), NAME)
                held[name] = ours(text)
                expected = pythons(text)
                if name == "syntax error of a text":
                    held[name], expected = _no_markers(held[name]), _no_markers(expected)
                self.assertEqual(held[name], expected)


def _no_markers(text):
    return [line for line in text.split("\n") if not re.fullmatch(r" +\^+", line)]


class FormatTest(unittest.TestCase):
    def test_syntax_error_of_the_text_itself(self):
        text = "x = 1\n  y = 2\n"
        try:
            compile(text, NAME, "exec")
        except SyntaxError as error:
            shown = formatter(text).format(error)
            self.assertEqual(formatter(text).syntax_line(error), 2)
        self.assertIn('  File "user.py", line 2\n    y = 2\n', shown)
        self.assertTrue(shown.endswith("IndentationError: unexpected indent\n"))

    def test_syntax_error_elsewhere_has_no_line_of_ours(self):
        self.assertIsNone(formatter().syntax_line(raised_by("compile('(', 'other', 'exec')")))

    def test_hostile_syntax_error(self):
        text = "e = SyntaxError('m', (5, 'x', [], {}))\ne.lineno = 10 ** 10\ne.msg = 7\ne.filename = e\nraise e\n"
        self.assertIn("SyntaxError: ", ours(text))

    def test_str_that_raises(self):
        text = "class E(Exception):\n  def __str__(self): raise SystemExit(0)\nraise E\n"
        self.assertTrue(ours(text).endswith("E: <message could not be shown: SystemExit>\n"))

    def test_properties_do_not_shadow(self):
        text = ("class E(Exception):\n  __cause__ = __context__ = __traceback__ = property(lambda s: exit(0))\n"
                "raise E('m')\n")
        self.assertTrue(ours(text).endswith("E: m\n"))

    def test_cycle_of_causes(self):
        text = "a, b = ValueError('a'), ValueError('b')\na.__cause__, b.__cause__ = b, a\nraise a\n"
        self.assertEqual(ours(text).count("ValueError: "), 2)

    def test_long_chain(self):
        text = "e = None\nfor i in range(1000):\n  n = ValueError(i)\n  n.__cause__ = e\n  e = n\nraise e\n"
        self.assertLess(ours(text).count("ValueError"), 30)

    def test_deep_mutual_recursion_is_cut(self):
        text = "def f(n): g(n - 1)\ndef g(n): f(n - 1) if n > 0 else 1 / 0\nf(900)\n"
        shown = ours(text)
        self.assertIn("  … [cut, ", shown)
        self.assertLess(shown.count("\n"), 400)
        self.assertTrue(shown.endswith("ZeroDivisionError: division by zero\n"))

    def test_room(self):
        text = "raise ValueError('x' * 5000)\n"
        shown = ours(text, 1000)
        self.assertLess(len(shown), 1100)
        self.assertIn("… [cut, ", shown)
        self.assertTrue(shown.startswith("Traceback"))

    def test_room_as_sent(self):
        shown = ours("raise ValueError('\U0001f600' * 60000)\n")
        self.assertLess(len(json.dumps(shown)), 257 << 10)
        self.assertTrue(shown.endswith("\U0001f600\n"))

    def test_frames_of_the_harness_are_left_out(self):
        error = raised_by("1 / 0\n")
        self.assertEqual(formatter().user_lines(error), [(NAME, 1, "<module>")])

    def test_source_file_of_the_workspace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "helper.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write("# é\ndef fail():\n    raise KeyError('k')\n")
            with open(path, encoding="utf-8") as file:
                error = raised_by(file.read() + "fail()\n", path)
            self.assertIn("    raise KeyError('k')\nKeyError: 'k'\n", formatter().format(error))
            fifo = os.path.join(folder, "fifo.py")
            os.mkfifo(fifo)  # opening it for reading would wait for a writer
            self.assertIn('fifo.py", line 1', formatter().format(raised_by("1/0", fifo)))

    def test_name_with_a_null_byte(self):
        code = compile("1/0", "x.py", "exec").replace(co_filename="a\0.py")
        try:
            exec(code, {})
        except ZeroDivisionError as error:
            shown = formatter().format(error)
        self.assertIn("line 1, in <module>", shown)

    @unittest.skipUnless(hasattr(BaseException, "add_note"), "no notes before 3.11")
    def test_notes_and_groups(self):
        text = "e = ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [KeyError('k')])])\n" \
               "e.add_note('note')\nraise e\n"
        shown = ours(text)
        for part in ("ExceptionGroup: g (2 sub-exceptions)\n  | note\n", "    | ValueError: 1\n",
                     "      | KeyError: 'k'\n"):
            self.assertIn(part, shown)
        self.assertIn("ValueError: m\n", ours("e = ValueError('m')\ne.__notes__ = 5\nraise e\n"))


@unittest.skipUnless(hasattr(traceback.TracebackException, "max_group_depth") or hasattr(BaseException, "add_note"),
                     "no groups before 3.11")
class GroupTest(unittest.TestCase):
    TEXTS = {
        "deep": "e = ValueError('m')\nfor i in range(12): e = ExceptionGroup('g', [e, KeyError(i)])\nraise e\n",
        "wide": "try:\n  1/0\nexcept ZeroDivisionError as z:\n"
                "  raise ExceptionGroup('w', [ValueError(i) for i in range(17)]) from z\n",
        "chained members": "def f():\n  try:\n    {}['k']\n  except KeyError as k:\n    try:\n"
                           "      raise ValueError('in') from k\n    except ValueError as v:\n      return v\n"
                           "raise ExceptionGroup('top', [f(), ExceptionGroup('sub', [TypeError('a\\nb')])])\n",
    }

    def test_as_python(self):
        import linecache
        for name, text in self.TEXTS.items():
            with self.subTest(name):
                linecache.cache[NAME] = (len(text), None, text.splitlines(True), NAME)
                error = raised_by(text)
                theirs = "".join(traceback.format_exception(type(error), error, error.__traceback__)).split("\n")
                at = [n for n, line in enumerate(theirs) if __file__ in line]
                gone = {n + i for n in at for i in (0, 1)}
                plain = [line.rstrip() for n, line in enumerate(theirs)
                         if n not in gone and not re.fullmatch(r"[ |]+[~^]+", line)]
                self.assertEqual([line.rstrip() for line in ours(text).split("\n")], plain)

    def test_branching_groups_are_bounded(self):
        text = "e = ValueError('m' * 1000)\nfor i in range(30): e = ExceptionGroup('g', [e] * 15)\nraise e\n"
        shown = ours(text)
        self.assertLess(len(shown), 66000)
        text = "e = ValueError('m')\nfor i in range(100000): e = ExceptionGroup('g', [e])\nraise e\n"
        self.assertIn("max_group_depth is 10", ours(text))


class SourceTextTest(unittest.TestCase):
    def test_lines_end_where_the_tokenizer_ends_them(self):
        source = SourceText("a\r\nb\rc\x0cd\u2028e\n\nf")
        self.assertEqual([source.line(n) for n in range(0, 7)], ["", "a", "b", "c\x0cd\u2028e", "", "f", ""])


if __name__ == "__main__":
    unittest.main()
