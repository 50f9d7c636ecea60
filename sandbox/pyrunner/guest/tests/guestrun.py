"""Runs one plan in a forked child, as a supervisor would, and keeps what came
out: events, streams, exit. For tests only."""

import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time

from sandboxd_guest import program

NONCE = "f00d"


class Ended:
    """What a run left: events (without the nonce), stdout, stderr, and how the
    process ended: code, or signal."""

    def __init__(self, lines, stdout, stderr, waited, seconds):
        self.raw = lines
        self.events = [event for event in map(_genuine, lines) if event]
        self.stdout = stdout.decode("utf-8", "replace")
        self.stderr = stderr.decode("utf-8", "replace")
        self.signal = os.WTERMSIG(waited) if os.WIFSIGNALED(waited) else 0
        self.code = -1 if self.signal else os.WEXITSTATUS(waited)
        self.seconds = seconds

    def of(self, kind):
        return [event for event in self.events if event["event"] == kind]

    @property
    def done(self):
        return bool(self.of("done"))

    @property
    def exception(self):
        return (self.of("exception") or [None])[0]

    def counts(self):
        """(passed, total) by the rules of the report."""
        sites = (self.of("sites") or [{"top": 0}])[0]
        bad = [event["site"] for event in self.of("failed")]
        failed = {site for site in bad if site is not None}
        seen = {event["site"] for event in self.of("passed")} | failed
        foreign = sum(site is None for site in bad)
        total = len(seen | set(range(sites["top"]))) + foreign
        return len(seen - failed), total

    @property
    def passed(self):
        passed, total = self.counts()
        return self.done and not self.exception and passed == total

    def messages(self):
        return [event.get("message") for event in self.of("failed")]


def _genuine(line):
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if type(event) is dict and event.pop("nonce", None) == NONCE else None


def run_tests(solution, tests, **options):
    plan = {"mode": "tests", "solution": solution, "program": "", "args": [], "fail_fast": False}
    return _run(plan, tests, options)


def run_script(text, *args, **options):
    plan = {"mode": "script", "solution": "", "program": text, "args": list(args), "fail_fast": False}
    return _run(plan, "", options)


def _run(plan, tests, options):
    """options: seconds, stdin, before (called in the child), and plan fields."""
    seconds = options.pop("seconds", 20)
    stdin = options.pop("stdin", b"")
    before = options.pop("before", None)
    files = options.pop("files", {})
    workspace = tempfile.mkdtemp(prefix="guest-run-")
    os.chmod(workspace, 0o777)
    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(workspace, name)), exist_ok=True)
        with open(os.path.join(workspace, name), "w") as file:
            file.write(text)
    plan = dict(plan, workspace=workspace, site_packages=[], thread_stack_bytes=512 << 10, **options)
    pipes = {name: os.pipe() for name in ("in", "out", "err", "report", "tests")}
    os.write(pipes["in"][1], stdin)
    try:
        started = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            _child(plan, pipes, before)
        for name, (read, write) in pipes.items():
            os.close(read if name in ("in", "tests") else write)
        os.close(pipes["in"][1])
        try:
            took = _relay(pipes, tests, time.monotonic() + seconds)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            _, waited = os.waitpid(pid, 0)
            for name in ("out", "err", "report"):
                os.close(pipes[name][0])
        ended = Ended(took["report"].splitlines(), took["out"], took["err"], waited, time.perf_counter() - started)
        ended.files = _read_all(workspace)
        return ended
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _read_all(folder):
    files = {}
    for name in os.listdir(folder):
        if os.path.isfile(os.path.join(folder, name)):
            with open(os.path.join(folder, name), "rb") as file:
                files[name] = file.read()
    return files


def _child(plan, pipes, before):
    try:
        os.dup2(pipes["in"][0], 0)
        os.dup2(pipes["out"][1], 1)
        os.dup2(pipes["err"][1], 2)
        report, tests = os.dup(pipes["report"][1]), os.dup(pipes["tests"][0])
        for ends in pipes.values():
            os.close(ends[0])
            os.close(ends[1])
        os.chdir(plan["workspace"])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if before:
            before()
        program.run(plan, program.Channel(report, tests, NONCE))
    finally:
        os._exit(99)


def _relay(pipes, tests, deadline):
    """Reads until every writer is gone; hands the tests over on `loaded`."""
    took = {name: bytearray() for name in ("out", "err", "report")}
    names = {pipes[name][0]: name for name in took}
    tests_fd = pipes["tests"][1]
    text = json.dumps({"tests": tests}).encode("ascii")
    text = memoryview(len(text).to_bytes(4, "big") + text)
    os.set_blocking(tests_fd, False)
    loaded = False
    try:
        while names:
            writers = [tests_fd] if loaded and text else []
            ready, writable, _ = select.select(list(names), writers, [], max(0, deadline - time.monotonic()))
            if not ready and not writable:
                raise TimeoutError("the run did not end; it said %r" % took)
            for fd in writable:
                try:
                    text = text[os.write(fd, text):]
                except BrokenPipeError:
                    text = b""
            for fd in ready:
                data = os.read(fd, 1 << 16)
                took[names[fd]] += data
                if not data:
                    del names[fd]
            loaded = loaded or b'"event":"loaded"' in took["report"]
    finally:
        os.close(tests_fd)
    return took
