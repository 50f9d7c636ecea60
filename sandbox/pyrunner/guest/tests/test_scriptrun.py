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


if __name__ == "__main__":
    unittest.main()
