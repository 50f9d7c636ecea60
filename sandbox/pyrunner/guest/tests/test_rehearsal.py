import json
import os
import subprocess
import sys
import unittest

import tests

# Prints what a run could notice, with what does not depend on the moment.
STATE = """
import atexit, builtins, gc, linecache, random, signal, sys, threading, warnings
def plain(thing):
    return thing if type(thing) in (str, int, float, bool, tuple, type(None)) else id(thing)
def state():
    return {
        "sys": [(name, plain(value)) for name, value in vars(sys).items()],
        "modules": [(name, id(module)) for name, module in sys.modules.items()],
        "lists": [list(map(plain, kept)) for kept in (sys.path, sys.argv, sys.meta_path, warnings.filters)],
        "lines": dict(linecache.cache), "builtins": [(name, id(value)) for name, value in vars(builtins).items()],
        "dice": random.getstate(), "deep": sys.getrecursionlimit(), "stack": threading.stack_size(),
        "masked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "handlers": [str(signal.getsignal(number)) for number in range(1, signal.NSIG)],
        "timer": signal.getitimer(signal.ITIMER_REAL), "leaving": atexit._ncallbacks(),
        "traced": (sys.gettrace(), sys.getprofile()), "collecting": gc.isenabled(), "frozen": gc.get_freeze_count(),
        "open": len(__import__("os").listdir("/proc/self/fd")), "main": sorted(vars(sys.modules["__main__"])),
    }
"""
TRACE = STATE + """
import tests
from sandboxd_guest import rehearsal
state()
before = None
before = state()
rehearsal.rehearse()
after = state()
for name in before:
    if before[name] != after[name]:
        print(name, before[name], after[name])
"""
RUN = """
import tests
from sandboxd_guest import rehearsal
rehearsal.rehearse()
import gc
gc.collect()
gc.freeze()
from tests.guestrun import run_script, run_tests
good = run_tests("def f(x): return x", "assert f(1) == 1\\nassert f(2) == 2")
bad = run_tests("def f(x): return x", "assert f(1) == 1\\nassert f(2) == 3, 'three'")
error = run_tests("def f(x): return 1 / x", "assert f(1) == 1\\nassert f(0) == 3")
script = run_script("print('said')")
import json
print(json.dumps([
    good.passed, good.counts(), bad.counts(), bad.messages(), bad.stderr.splitlines()[-2:],
    error.exception["message"], error.stderr.splitlines()[1:-1], script.done, script.stdout]))
"""


def _python(code):
    folder = os.path.dirname(tests.__file__)
    code = "import sys\nsys.path[:0] = [%r, %r]\n" % (tests.GUEST, folder) + code
    ended = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True)
    return ended.stdout, ended.stderr


class RehearsalTest(unittest.TestCase):
    def test_leaves_no_trace(self):
        self.assertEqual(_python(TRACE), ("", ""))

    def test_runs_are_the_same_after_it(self):
        said, complaints = _python(RUN)
        self.assertEqual(complaints, "")
        self.assertEqual(json.loads(said), [
            True, [2, 2], [1, 2], ["three"], ["    assert f(2) == 3, 'three'", "AssertionError: three"],
            "division by zero", ['  File "tests.py", line 2, in <module>', "    assert f(0) == 3",
                                 '  File "solution.py", line 1, in f', "    def f(x): return 1 / x"],
            True, "said\n"])


if __name__ == "__main__":
    unittest.main()
