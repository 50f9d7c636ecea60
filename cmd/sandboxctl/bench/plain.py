"""The plain runner that sandboxctl bench compares with.

It does what people do without a sandbox: for each run it starts the interpreter
on a wrapper script, with rlimits and a time limit and no isolation. It is one
process for a whole bench, so that its own start is in no figure. Each line on
standard input is an order, each line on standard output its answer.

Arguments: the directory in which runs get directories of their own.
"""

import asyncio
import importlib.util
import itertools
import json
import os
import platform
import resource
import shutil
import signal
import sys
import tempfile
import textwrap
import time

TIME_LIMIT = 15.0
CPU_SECONDS = 10
PASSED = b"plain: passed"

WRAPPER = """\
import importlib.util
import sys
import traceback

spec = importlib.util.spec_from_file_location("solution", {path!r})
solution = importlib.util.module_from_spec(spec)
try:
    spec.loader.exec_module(solution)
except Exception as problem:
    print("plain: raised", type(problem).__name__, file=sys.stderr)
    traceback.print_exc()
    raise SystemExit(1)
globals().update({{name: value for name, value in vars(solution).items() if name[0] != "_"}})
try:
{tests}
    print({passed!r})
except AssertionError as problem:
    print("plain: failed", problem, file=sys.stderr)
    traceback.print_exc()
except Exception as problem:
    print("plain: raised", type(problem).__name__, file=sys.stderr)
    traceback.print_exc()
"""


class WrongOutcome(Exception):
    """A run that should have passed did not."""


class Plain:
    """Runs one job again and again."""

    def __init__(self, order, place):
        self.order = order
        self.place = place
        self.environment = {**os.environ, **order["environment"]}

    def confine(self):
        memory = self.order["memory_bytes"]
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

    async def run(self):
        """One run, from the texts to the verdict; gives its latency in ms."""
        begin = time.perf_counter()
        directory = tempfile.mkdtemp(dir=self.place)
        try:
            wrapper = self.write(directory)
            child = await asyncio.create_subprocess_exec(
                sys.executable, wrapper, cwd=directory, env=self.environment, preexec_fn=self.confine,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
            try:
                out, err = await asyncio.wait_for(child.communicate(), TIME_LIMIT)
            except asyncio.TimeoutError:
                child.kill()
                await child.communicate()
                raise WrongOutcome("a run took longer than %g s" % TIME_LIMIT) from None
            if child.returncode != 0 or not out.endswith(PASSED + b"\n"):
                raise WrongOutcome("a run did not pass: " + err.decode(errors="replace")[-2000:])
            return (time.perf_counter() - begin) * 1000
        finally:
            shutil.rmtree(directory)

    def write(self, directory):
        path = os.path.join(directory, "solution.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.order["solution"])
        wrapper = os.path.join(directory, "wrapper.py")
        with open(wrapper, "w", encoding="utf-8") as f:
            f.write(WRAPPER.format(path=path, tests=textwrap.indent(self.order["tests"], "    "), passed=PASSED.decode()))
        return wrapper

    async def client(self, numbers, deadline, latencies):
        most = self.order["runs"]
        while next(numbers) < most or most == 0:
            latencies.append(await self.run())
            if time.perf_counter() >= deadline:
                return

    async def round(self):
        """All clients at once, each with one run after the other."""
        latencies = []
        numbers = itertools.count()
        span = self.order["span_s"]
        before, begin = cpu(), time.perf_counter()
        deadline = begin + span if span else float("inf")
        await asyncio.gather(*(self.client(numbers, deadline, latencies) for _ in range(self.order["clients"])))
        elapsed = time.perf_counter() - begin
        return {"latencies_ms": latencies, "elapsed_s": elapsed, "cpu_s": cpu() - before}


def cpu():
    """What this process and its ended children have used, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main(place):
    # An interrupt at the terminal is for the bench, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hello = {"python": platform.python_version(), "executable": sys.executable,
             "numpy": importlib.util.find_spec("numpy") is not None}
    print(json.dumps(hello), flush=True)
    for line in sys.stdin:
        try:
            answer = asyncio.run(Plain(json.loads(line), place).round())
        except WrongOutcome as problem:
            answer = {"error": str(problem)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
