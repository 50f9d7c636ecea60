import unittest

import tests  # noqa: F401
from tests.guestrun import run_script

# text, exit code, stdout, stderr's last line, events
TABLE = {
    "plain": ("print(__name__, 1)", 0, "__main__ 1\n", "", ["done"]),
    "empty": ("", 0, "", "", ["done"]),
    "arguments": ("import sys\nprint(sys.argv)", 0, "['program.py', 'a', '-b']\n", "", ["done"]),
    "exception": ("x = 1\n1 / 0", 1, "", "ZeroDivisionError: division by zero", ["exception"]),
    "syntax error": ("x = 1\nx = = 2", 1, "", "SyntaxError: invalid syntax", ["exception"]),
    "exit": ("exit()", 0, "", "", ["done"]),
    "exit 0": ("import sys\nsys.exit(0)", 0, "", "", ["done"]),
    "exit 3": ("import sys\nsys.exit(3)", 3, "", "", ["exception"]),
    "exit with text": ("import sys\nsys.exit('text')", 1, "", "text", ["exception"]),
    "exit with an object": ("class O:\n  def __str__(s): return 'o'\nraise SystemExit(O())", 1, "", "o", ["exception"]),
    "threads are joined": (
        "import threading, time\ndef f():\n  time.sleep(0.1)\n  print('late')\nthreading.Thread(target=f).start()", 0,
        "late\n", "", ["done"]),
    "daemon threads are not": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(30,), daemon=True).start()", 0, "", "",
        ["done"]),
    "exit handlers run, last first": (
        "import atexit\natexit.register(print, 1)\natexit.register(print, 2)\n", 0, "2\n1\n", "", ["done"]),
    "after an exception too": ("import atexit\natexit.register(print, 1)\n1 / 0", 1, "1\n",
                               "ZeroDivisionError: division by zero", ["exception"]),
    "streams are flushed": ("import sys\nsys.stdout.write('no newline')", 0, "no newline", "", ["done"]),
    "own hook": ("import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1 / 0", 1,
                 "hook ZeroDivisionError\n", "", ["exception"]),
    "assertions are ordinary": ("assert 1 == 2, 'm'", 1, "", "AssertionError: m", ["exception"]),
    "surrogates": ("print('\\udcff')", 0, "\\udcff\n", "", ["done"]),
    "left without ado": ("import os\nprint(1)\nos._exit(0)", 0, "1\n", "", []),
    "own source": ("import inspect\ndef f(): pass\nprint(inspect.getsource(f), end='')", 0, "def f(): pass\n", "",
                   ["done"]),
    "frozen names": ("import sys\nprint(sys.modules['__main__'].__dict__ is globals(), __file__[-11:])", 0,
                     "True /program.py\n", "", ["done"]),
    "closed stdout": ("import sys\nsys.stdout.close()\nsys.stderr.close()", 0, "", "", ["done"]),
}


class TableTest(unittest.TestCase):
    def test_table(self):
        for name, (text, code, stdout, last, events) in TABLE.items():
            with self.subTest(name):
                arguments = ("a", "-b") if name == "arguments" else ()
                ended = run_script(text, *arguments)
                self.assertEqual((ended.code, ended.signal, ended.stdout), (code, 0, stdout), ended.stderr)
                self.assertEqual(([""] + ended.stderr.splitlines())[-1], last)
                self.assertEqual([event["event"] for event in ended.events], events)

    def test_event_of_an_exception(self):
        event = run_script("def f():\n    raise ValueError('a: b')\nf()\n").exception
        self.assertEqual((event["phase"], event["type"], event["message"]), ("program", "ValueError", "a: b"))
        self.assertIn('  File "program.py", line 2, in f\n    raise ValueError', event["traceback"])
        self.assertEqual(run_script("import sys\nsys.exit(4)").exception["exit_code"], 4)
        self.assertEqual(run_script("\n(").exception["syntax_line"], 2)

    def test_standard_input(self):
        ended = run_script("import sys\nprint(input(), sys.stdin.read())", stdin="é\nb".encode("utf-8") + b"\xff")
        self.assertEqual(ended.stdout, "é b\\udcff\n")

    def test_late_errors_are_told_on_stderr(self):
        ended = run_script("import atexit\natexit.register(lambda: 1 / 0)\n")
        self.assertIn("ZeroDivisionError", ended.stderr)
        self.assertEqual(ended.code, 0)

    def test_partial_output_survives_a_kill(self):
        ended = run_script("import os, signal\nprint('first')\nos.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual((ended.stdout, ended.signal, ended.events), ("first\n", 9, []))


WRITERS = """
import _pyio, bz2, codecs, csv, gzip, io, lzma, tempfile, zipfile
text = open("text.txt", "w"); text.write("a" * 10)
rows = csv.writer(open("rows.csv", "w")); rows.writerow([1, 2])
packed = gzip.open("packed.gz", "wt"); packed.write("b" * 10)
binary = open("binary", "wb"); binary.write(b"c")
archive = zipfile.ZipFile("archive.zip", "w"); archive.writestr("m", "d")
both = open("both", "wb+"); both.write(b"e")
pressed = bz2.open("pressed.bz2", "w"); pressed.write(b"f")
tight = lzma.open("tight.xz", "w"); tight.write(b"g")
coded = codecs.open("coded", "w", "utf-8"); coded.write("h")
named = tempfile.NamedTemporaryFile("w", dir=".", delete=False); named.write("i")
class Loud(io.TextIOWrapper):
    def write(self, text): return super().write(text.upper())
loud = Loud(open("loud", "wb")); loud.write("j")
class Late(io.RawIOBase):
    def writable(self): return True
    def write(self, data):
        with open("late", "ab") as file: return file.write(data)
late = io.BufferedWriter(Late()); late.write(b"k")
class Own(io.BufferedIOBase):
    def close(self):
        if not self.closed: open("own", "w").close()
        super().close()
own = Own()
slow = _pyio.open("slow", "w"); slow.write("l")
"""


def whole(files):
    import bz2
    import gzip
    import io
    import lzma
    import zipfile
    with zipfile.ZipFile(io.BytesIO(files["archive.zip"])) as archive:
        member = archive.read("m")
    named = [data for name, data in files.items() if name.startswith("tmp")]
    return (files["text.txt"], files["rows.csv"], gzip.decompress(files["packed.gz"]), files["binary"], member,
            files["both"], bz2.decompress(files["pressed.bz2"]), lzma.decompress(files["tight.xz"]),
            files["coded"], *named, files["loud"], files["late"], files["own"], files["slow"])


WHOLE = (b"a" * 10, b"1,2\r\n", b"b" * 10, b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"J", b"k", b"", b"l")


class EndTest(unittest.TestCase):
    def test_open_files_are_written_out(self):
        for end in ("", "import sys\nsys.exit(3)", "1 / 0", "def f():\n  x = open('more', 'w')\n  1 / 0\nf()"):
            with self.subTest(end):
                self.assertEqual(whole(run_script(WRITERS + end).files), WHOLE)

    def test_finalisers_run_with_their_globals(self):
        text = ("import sys\nclass A:\n  def __del__(self): print('del', sys is not None, name)\nname = 'n'\na = A()\n"
                "b = A(); b.me = b\ndef g():\n  try: yield\n  finally: print('finally')\nh = g(); next(h)\n")
        for end in ("", "1 / 0\n"):
            lines = sorted(run_script(text + end).stdout.split("\n"))
            self.assertEqual(lines, ["", "del True n", "del True n", "finally"])

    def test_modules_of_the_workspace_end_too(self):
        ended = run_script("import helper", files={"helper.py": "f = open('x.txt', 'w')\nf.write('x')\n"})
        self.assertEqual(ended.files["x.txt"], b"x")


class StartTest(unittest.TestCase):
    def test_files_win_over_loaded_modules(self):
        files = {"token.py": "Token = 1", "json/__init__.py": "own = 1", "os.py": "1 / 0", "abc.py": "1 / 0",
                 "logging/readme": ""}
        ended = run_script("from token import Token\nimport json, os, abc, logging\nprint(Token, json.own, os.sep, "
                           "logging.INFO)", files=files, before=lambda: __import__("json.decoder"))
        self.assertEqual((ended.stdout, ended.stderr), ("1 1 / 20\n", ""))

    def test_line_ends_of_standard_input(self):
        ended = run_script("import sys\nprint(ascii(sys.stdin.read()))", stdin=b"a\r\nb\rc\n")
        self.assertEqual(ended.stdout, "'a\\r\\nb\\rc\\n'\n")

    def test_original_arguments(self):
        ended = run_script("import sys\nprint(sys.orig_argv)", "a")
        self.assertEqual(ended.stdout, "['python3', 'program.py', 'a']\n")

    def test_lines_in_tracebacks_that_the_program_prints(self):
        text = "import threading, traceback\ndef f():\n  try:\n    1 / 0  # here\n  except Exception: traceback.print_exc()\n" \
               "t = threading.Thread(target=f)\nt.start()\nt.join()\n"
        self.assertIn("1 / 0  # here", run_script(text).stderr)

    def test_hook_that_fails(self):
        ended = run_script("import sys\ndef hook(*a): {}['k']\nsys.excepthook = hook\n1 / 0")
        self.assertTrue(ended.stderr.startswith("Error in sys.excepthook:\nTraceback"))
        self.assertIn("\nOriginal exception was:\nTraceback", ended.stderr)


if __name__ == "__main__":
    unittest.main()
