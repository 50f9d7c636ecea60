"""Solutions that attack the harness. None may pass; few may even hide why."""

import os
import resource
import subprocess
import sys
import unittest

import tests  # noqa: F401
from sandboxd_guest import program
from tests.guestrun import NONCE, run_tests

TESTS = "assert answer(2) == 4, 'two'\nassert answer(3) == 9, 'three'\nassert answer(4) == 16, 'four'\n"
WRONG = "def answer(n):\n    return 0\n"

# Whatever these do, all three failures are still told, and the end is orderly.
HARMLESS = {
    "builtins": """
import builtins
for name in ("AssertionError", "len", "str", "repr", "isinstance", "issubclass", "type", "any", "id", "exec",
             "compile", "list", "tuple", "getattr", "set", "range", "map", "sum", "BaseException"):
    setattr(builtins, name, None)
""",
    "every builtin name": """
import builtins
names = vars(builtins)
for name in list(names):
    if name not in ("__build_class__", "__import__", "__name__"):
        names[name] = None
""",
    "os, json, traceback, linecache, ast": """
import os, json, traceback, linecache, ast, sys, signal, gc, warnings, threading, inspect, io, codecs, encodings
for module in (os, json, json.encoder, json.decoder, traceback, linecache, ast, signal, gc, warnings, threading, io):
    for name in list(vars(module)):
        if not name.startswith("__") and name != "filters":
            try: setattr(module, name, None)
            except Exception: pass
""",
    "classes of the standard library": """
import json
json.JSONEncoder.encode = json.JSONEncoder.iterencode = lambda *a: iter(['{"event": "done"}'])
json.JSONDecoder.decode = json.JSONDecoder.raw_decode = lambda *a: {"tests": ""}
json.JSONDecoder.scan_once = None
""",
    "sys": """
import sys
sys.excepthook = sys.unraisablehook = sys.displayhook = None
sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None
sys.getrecursionlimit = sys.setrecursionlimit = sys._getframe = sys.gettrace = sys.settrace = None
sys.path[:] = []
sys.path_importer_cache.clear()
sys.meta_path.insert(0, object())
sys.modules.clear()
""",
    "modules": """
import sys
sys.modules["__main__"] = sys.modules["solution"] = sys.modules["builtins"] = sys
sys.modules["warnings"] = sys.modules["sandboxd_guest"] = None
""",
    "streams that lie": """
import sys
class Out:
    def write(self, text): return len(text)
    def flush(self): raise SystemExit(0)
    def __getattr__(self, name): raise KeyboardInterrupt
sys.stdout = sys.stderr = Out()
""",
    "flush that never returns": """
import sys
class Out:
    def write(self, text): pass
    def flush(self):
        while answered: pass
answered = [1]
sys.stdout = Out()
""",
    "closed streams": """
import os, sys
sys.stdout.close(); sys.stderr.close(); sys.__stdin__.close()
os.close(1); os.close(2)
""",
    "collector": """
import gc
gc.disable()
gc.set_threshold(1)
gc.callbacks.append(lambda *a: None)
""",
    "tracers": """
import sys, threading
seen = []
def trace(frame, event, arg):
    seen.append((frame.f_code.co_filename, frame.f_code.co_name))
    return trace
sys.settrace(trace); sys.setprofile(trace)
""",
    "low recursion limit": "import sys\nsys.setrecursionlimit(40)\n",
    "warnings as errors": "import warnings\nwarnings.simplefilter('error')\n",
    "digit limit": "import sys\nif hasattr(sys, 'set_int_max_str_digits'): sys.set_int_max_str_digits(640)\n",
    "signals": """
import signal
def ignore(*a): pass
for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, ignore)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
""",
    "threads that forge lines": """
import threading, time
def forge():
    while True:
        print("SANDBOX_RESULT:PASS")
        time.sleep(0.001)
threading.Thread(target=forge).start()
""",
    "frames": """
import sys, types
def nothing(*a, **k): return None
def ravage():
    frame = sys._getframe(1)
    while frame:
        names = frame.f_globals
        if names is not globals():
            for name, value in list(names.items()):
                if callable(value) and getattr(value, "__module__", "") != "builtins":
                    names[name] = nothing
        frame = frame.f_back
ravage()
""",
    "functions on the heap": """
import gc, types
def nothing(*a, **k): return None
for f in [o for o in gc.get_objects() if isinstance(o, types.FunctionType)]:
    if "sandboxd" in f.__code__.co_filename or "/guest/" in f.__code__.co_filename:
        try: f.__code__ = nothing.__code__.replace(co_freevars=f.__code__.co_freevars)
        except ValueError: pass
""",
}

# Defines forge: calls whatever looks like the way out from the frames below.
REACH = """
import sys, types
def forge(frame=None):
    frame = frame or sys._getframe(1)
    while frame:
        todo, seen = [dict(frame.f_locals), frame.f_globals], {}
        depth = 0
        while todo and depth < 5:
            depth += 1
            following = []
            for value in todo:
                if id(value) in seen: continue
                seen[id(value)] = value
                if type(value) is dict: following += list(value.values())
                elif type(value) in (list, tuple, set): following += list(value)
                elif type(value) is types.FunctionType:
                    following += [c.cell_contents for c in value.__closure__ or ()]
                    if value.__name__ == "send" and "channel" in value.__code__.co_filename: win(value)
                elif type(value) is types.MethodType: following += [value.__self__, value.__func__]
                elif type(value) is types.GeneratorType and value.gi_frame: following.append(value.gi_frame.f_locals)
                elif type(value).__module__.startswith("sandboxd"):
                    for name in dir(value):
                        if not name.startswith("__"):
                            try: following.append(getattr(value, name))
                            except Exception: pass
            todo = following
        frame = frame.f_back
def win(send):
    import os
    for site in range(3): send({"event": "passed", "site": site})
    send({"event": "done"})
    os._exit(0)
"""

# These may end the run in any way but a pass.
NO_PASS = {
    "exit": "import os\ndef answer(n): os._exit(0)",
    "exit while loading": "import os\nos._exit(0)",
    "system exit": "def answer(n): raise SystemExit(0)",
    "kill": "import os\ndef answer(n): os.kill(os.getpid(), 9)",
    "exec": "import os\ndef answer(n): os.execv('/bin/true', ['true'])",
    "descriptors": """
import os
def answer(n):
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(256):
        if fd != null:
            os.dup2(null, fd)
    return n * n if n != 4 else 0
""",
    "close all": "import os\ndef answer(n):\n    os.closerange(0, 256)\n    return n * n",
    "forged lines on every descriptor": """
import os
def answer(n):
    for fd in range(3, 256):
        try: os.write(fd, b'{"event":"passed","site":0}\\n{"event":"done"}\\n{"nonce":"","event":"done"}\\n')
        except OSError: pass
    os._exit(0)
""",
    "base exception": "class Q(BaseException): pass\ndef answer(n): raise Q",
    "exception that lies about its class": """
class Lie(BaseException):
    __class__ = AssertionError
def answer(n): raise Lie()
""",
    "message with side effects": """
class M:
    def __str__(self): raise SystemExit(0)
    __repr__ = __str__
def answer(n): raise AssertionError(M())
""",
    "value with side effects": """
class V:
    def __repr__(self):
        import os
        os._exit(0)
    def __eq__(self, other): return False
def answer(n): return V()
""",
    "truth that raises": """
class V:
    def __eq__(self, other): return self
    def __bool__(self): raise SystemExit
def answer(n): return V()
""",
    "outcomes forged through the frames": """
import sys
def answer(n):
    frame = sys._getframe(1)
    while frame:
        for value in frame.f_locals.values():
            if type(value) is list: value[:] = [None] * 5
            if type(value) is dict and "mode" in value: value.clear()
        frame = frame.f_back
    raise ValueError
""",
    "outcomes cleared by a thread": """
import sys, threading
lists = []
frame = sys._getframe()
while frame:
    lists += [value for value in frame.f_locals.values() if type(value) is list]
    frame = frame.f_back
def clear():
    while True:
        for each in lists: each.clear()
threading.Thread(target=clear, daemon=True).start()
def answer(n): return 0
""",
    "calls whatever the constants hold": """
import sys
def answer(n):
    for constant in sys._getframe(1).f_code.co_consts:
        for name in dir(constant):
            if not name.startswith("_"):
                for site in range(5):
                    try: getattr(constant, name)(site)
                    except Exception: pass
    return 0
""",
    "passes told from the outside": """
import sys
def answer(n):
    for constant in sys._getframe(1).f_code.co_consts:
        if hasattr(constant, "passed"):
            for site in range(3): constant.passed(site)
            list(map(constant.passed, range(3)))
    raise SystemExit(0)
""",
    "heap unfrozen and ravaged": """
import gc, types
def nothing(*a, **k): return None
def answer(n):
    gc.unfreeze()
    for f in gc.get_objects():
        if isinstance(f, types.FunctionType) and f.__code__.co_filename.rpartition("/")[2] != "solution.py":
            try: f.__code__ = nothing.__code__.replace(co_freevars=f.__code__.co_freevars)
            except ValueError: pass
    return -1
""",
    "harness ravaged from inside a repr": """
import sys, types
def nothing(*a, **k): return None
class V:
    def __eq__(self, other): return False
    def __repr__(self):
        frame = sys._getframe(1)
        while frame:
            for name, value in list(frame.f_globals.items()):
                if callable(value): frame.f_globals[name] = nothing
            frame = frame.f_back
        return "v"
def answer(n): return V()
""",
    "jump over the lines": """
import sys
def answer(n):
    frame = sys._getframe(1)
    def trace(frame, event, arg):
        try: frame.f_lineno = frame.f_lineno + 1
        except ValueError: pass
        return trace
    frame.f_trace = trace
    sys.settrace(trace)
    return 0
""",
    "recorder called through its constants": """
import os, sys
def reach(value, depth, seen):
    if depth < 0 or id(value) in seen: return
    seen[id(value)] = value
    if callable(value):
        for event in ({"event": "passed", "site": 0}, {"event": "passed", "site": 1}, {"event": "passed", "site": 2},
                      {"event": "done"}):
            if "send" in str(getattr(value, "__name__", "")):
                try: value(event)
                except Exception: pass
    names = [n for n in dir(value) if not n.startswith("__") or n in ("__self__", "__closure__", "__globals__",
             "__wrapped__", "__func__", "__dict__")]
    for name in names:
        try: reach(getattr(value, name), depth - 1, seen)
        except Exception: pass
    if type(value) in (list, tuple, set, deque): [reach(v, depth - 1, seen) for v in list(value)]
    if type(value) is dict: [reach(v, depth - 1, seen) for v in list(value.values())]
    if type(value).__name__ == "cell": reach(value.cell_contents, depth - 1, seen)
from collections import deque
def answer(n):
    reach(sys._getframe(1).f_code.co_consts, 5, {})
    os._exit(0)
""",
    "trusted and passed": """
import sys
def answer(n):
    frame = sys._getframe(1)
    for c in frame.f_code.co_consts:
        try: c._trusted[id(answer.__code__)] = 1; c.passed(n - 2)
        except Exception: pass
        try: c._send = lambda *a: None
        except Exception: pass
        for token in frame.f_code.co_consts:
            if type(token) is int and callable(c):
                try: c(token)
                except Exception: pass
    return 0
""",
    "frames under repr": REACH + """
class V:
    def __eq__(self, other): return False
    def __repr__(self):
        forge()
        return "v"
    __str__ = __repr__
def answer(n): return V()
""",
    "frames under a message": REACH + """
class V(AssertionError):
    def __str__(self):
        forge()
        return "v"
    __repr__ = __str__
def answer(n): raise V
""",
    "frames under an exception's message": REACH + """
class V(ValueError):
    def __str__(self):
        forge()
        return "v"
    @property
    def __notes__(self):
        forge()
def answer(n): raise V
""",
    "frames under flush": REACH + """
class Err:
    def write(self, text): pass
    def flush(self): forge()
sys.stderr = Err()
def answer(n): raise AssertionError
""",
    "frames under a finaliser": REACH + """
class V(AssertionError):
    def __del__(self): forge()
class W:
    def __eq__(self, other): raise V
    def __del__(self): forge()
def answer(n): return W()
""",
    "frames seen by a profiler": REACH + """
def see(frame, event, arg): forge(frame); return see
def answer(n):
    sys.setprofile(see); sys.settrace(see)
    return 0
""",
    "frames seen by a signal handler": REACH + """
import signal
def see(number, frame): forge(frame)
signal.signal(signal.SIGALRM, see)
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
def answer(n): return 0
""",
    "frames seen by a thread": REACH + """
import threading
main = threading.get_ident()
def see():
    while 1: forge(sys._current_frames().get(main))
sys.setswitchinterval(1e-6)
threading.Thread(target=see, daemon=True).start()
def answer(n): return 0
""",
    "fork and leave": "import os\ndef answer(n):\n    if os.fork(): os._exit(0)\n    return n * n",
    "stack overflow": """
import sys
sys.setrecursionlimit(10**8)
class V:
    def __eq__(self, other): return False
    def __repr__(self): return repr([self])
def answer(n): return V()
""",
}


def confined():
    """What keeps the worst of it from the machine that runs these tests."""
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    os.setsid()
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(65533, 65533, 65533)
        os.setresuid(65533, 65533, 65533)


class HarmlessTest(unittest.TestCase):
    def test_all_failures_are_told(self):
        for name, attack in HARMLESS.items():
            for when in ("while loading", "in a test"):
                with self.subTest(name, when=when):
                    ended = run_tests(_solution(attack, when), TESTS, before=confined)
                    self.assertEqual(ended.messages(), ["two", "three", "four"], ended.stderr)
                    self.assertEqual(ended.counts(), (0, 3))
                    self.assertTrue(ended.done, ended.stderr)

    def test_passes_are_told_under_attack_too(self):
        for name, attack in HARMLESS.items():
            with self.subTest(name):
                right = attack + "\ndef answer(n): return n * n\n"
                self.assertTrue(run_tests(right, TESTS, before=confined).passed)


def _solution(attack, when):
    if when == "while loading":
        return attack + "\n" + WRONG
    return ("answered, attack = [], %r\ndef answer(n):\n    if not answered:\n        answered.append(n)\n"
            "        exec(attack, globals())\n    return 0\n" % attack)


class NoPassTest(unittest.TestCase):
    def test_no_pass(self):
        for name, solution in NO_PASS.items():
            with self.subTest(name):
                ended = run_tests(solution, TESTS, before=confined)
                self.assertFalse(ended.passed, ended.events)
                self.assertEqual([event for event in ended.of("passed") if name.startswith("passes told")], [])


class ReachTest(unittest.TestCase):
    """What user code can see of the harness by ordinary means."""

    def test_the_tests_text_is_nowhere_before_it_runs(self):
        secret = os.urandom(8).hex()  # a literal would be in this process too
        solution = """
import gc, linecache, os, sys
mark = "".join(%r)
found = []
def look():
    seen = set()
    def walk(value, depth, path):
        if id(value) in seen or depth > 6: return
        seen.add(id(value))
        if type(value) is str:
            if mark in value and value is not mark: found.append(path)
        elif type(value) is dict:
            for k, v in list(value.items()): walk(v, depth + 1, path + [k])
        elif type(value) in (list, tuple, set):
            for v in list(value): walk(v, depth + 1, path + ["*"])
        elif hasattr(type(value), "__slots__") or hasattr(value, "__dict__"):
            for k in dir(value):
                try: v = object.__getattribute__(value, k)
                except Exception: continue
                if type(v) in (str, list, tuple, dict): walk(v, depth + 1, path + [k])
    for value in gc.get_objects():
        if value is not found: walk(value, 4, [type(value).__name__])
    frame = sys._getframe(1)
    while frame:
        if frame.f_code.co_filename != "solution.py" and frame.f_code.co_name in ("_drive", "run"):
            walk(dict(frame.f_locals), 0, [frame.f_code.co_name])
            walk(frame.f_globals, 2, [frame.f_code.co_name, "globals"])
        frame = frame.f_back
    for name, entry in linecache.cache.items(): walk(entry, 0, ["linecache", name])
    walk([sys.argv, dict(os.environ)], 0, ["argv"])
look()
""" % list(secret)
        text = "look()\nassert not found, found\nassert 1  # %s\n" % secret
        ended = run_tests(solution, text)
        self.assertTrue(ended.passed, (ended.messages(), ended.stderr))

    def test_frames_below_lead_nowhere(self):
        solution = """
import sys
def look():
    names = []
    frame = sys._getframe(1)
    while frame:
        if frame.f_code.co_name in ("_drive", "run"):
            for where, space in (("local", frame.f_locals), ("global", frame.f_globals)):
                for key, value in space.items():
                    home = getattr(value, "__module__", None) or getattr(type(value), "__module__", "")
                    names.append((where, key, home if type(home) is str else ""))
        frame = frame.f_back
    return names
"""
        text = ("seen = look()\nassert len(seen) > 10\n"
                "bad = [n for n in seen if 'sandboxd_guest' in n[2] and n[1] not in "
                "('run', '_drive', '_begin', '_conceal', '_take', 'Channel', 'channel')]\nassert not bad, bad\n")
        ended = run_tests(solution, text)
        self.assertTrue(ended.passed, (ended.messages(), ended.stderr))

    def test_modules_leave_sys_modules_when_they_are_imported(self):
        code = ("import sys, tests\nfrom sandboxd_guest import program\n"
                "names = list(sys.modules) + dir(sys.modules['sandboxd_guest'])\n"
                "print(sorted(n for n in names if n in %r or 'sandboxd_guest.' in n))" % (sorted(program._harness),))
        out = subprocess.run([sys.executable, "-c", code], cwd=tests.GUEST, capture_output=True, text=True)
        self.assertEqual(out.stdout, "['sandboxd_guest.channel', 'sandboxd_guest.program']\n", out.stderr)

    def test_heap_shows_no_function_of_the_harness(self):
        solution = """
import gc, types
def look():
    kinds = (types.FunctionType, types.GeneratorType, types.MethodType)
    return [repr(o) for o in gc.get_objects() if type(o) in kinds and
            "sandboxd_guest" in str(getattr(o, "__module__", "") or getattr(o, "__qualname__", ""))] + \\
           [repr(o) for o in gc.get_objects() if type(o).__module__.startswith("sandboxd_guest")]
"""
        ended = run_tests(solution, "seen = look()\nassert not seen, seen\nassert 1\nassert look() == []\n")
        self.assertTrue(ended.passed, (ended.messages(), ended.stderr))

    def test_nonce_is_in_no_frame_of_ours(self):
        solution = """
import sys
def look(mark):
    hits = []
    frame = sys._getframe(1)
    while frame:
        if frame.f_code.co_name in ("_drive", "run"):
            hits += [key for key, value in frame.f_locals.items() if value == mark]
        frame = frame.f_back
    return hits
"""
        ended = run_tests(solution, "assert look(%r) == []\n" % NONCE)
        self.assertTrue(ended.passed, (ended.messages(), ended.stderr))

    def test_loader_leads_nowhere(self):
        text = ("import solution\nreach = solution.__loader__.get_source.__globals__\n"
                "assert solution.__loader__.get_source('solution') == solution.__loader__._text\n"
                "bad = [k for k, v in reach.items() if 'sandboxd_guest.' in str(v) and 'textmodule' not in str(v)]\n"
                "assert not bad, bad\n")
        ended = run_tests("x = 1", text)
        self.assertTrue(ended.passed, (ended.messages(), ended.stderr))


if __name__ == "__main__":
    unittest.main()
