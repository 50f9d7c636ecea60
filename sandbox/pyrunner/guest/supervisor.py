"""The first process of a sandbox: reads the plan, forks the program, relays
what it writes within the caps, and says how it ended.

Trusted, and kept apart from the program: another user id where the engine has
ids to give, not dumpable, and the only holder of the stream to the daemon. The
program reaches it through four pipes whose content is never interpreted here,
but for the word `loaded`, on which the tests are handed over."""

import errno
import fcntl
import json
import os
import select
import signal
import sys

from sandboxd_guest import collect, confine, frames, kernel

_READ = 64 << 10


class _Stream:
    """One output stream: the head goes to the daemon as it comes, the last
    bytes are kept back for the end, what is between is counted and dropped."""

    def __init__(self, relay, name, fd, cap):
        self.relay, self.name, self.fd = relay, name, fd
        self.head = cap - cap // 2
        self.tail_cap = cap // 2
        self.tail = bytearray()
        self.total = 0

    def take(self, data):
        self.total += len(data)
        if self.head:
            part = data[:self.head]
            self.head -= len(part)
            self.relay.output(self.name, part, False)
            data = data[len(part):]
        if data:
            self.tail += data
            # Trimmed at twice the cap: a move for each read would be quadratic.
            if len(self.tail) > 2 * self.tail_cap + _READ:
                del self.tail[:len(self.tail) - self.tail_cap]

    def finish(self):
        if len(self.tail) > self.tail_cap:
            del self.tail[:len(self.tail) - self.tail_cap]
        for at in range(0, len(self.tail), frames.CHUNK):
            self.relay.output(self.name, bytes(self.tail[at:at + frames.CHUNK]), True)


class _Report:
    """The program's event channel, forwarded as it comes."""

    def __init__(self, relay, fd):
        self.relay, self.fd = relay, fd
        self.line = bytearray()
        self.loaded = False

    def take(self, data):
        self.relay.send("report", data=frames.encode(data))
        if self.loaded:
            return
        self.line += data
        while b"\n" in self.line and not self.loaded:
            line, _, rest = self.line.partition(b"\n")
            self.line = rest
            try:
                self.loaded = json.loads(line).get("event") == "loaded"
            except (ValueError, AttributeError, RecursionError):
                pass  # the daemon judges what the events are worth
        del self.line[:max(0, len(self.line) - _READ)]


class _Relay:
    """Everything between the program's pipes and the daemon's stream."""

    def __init__(self, stream, plan, pipes):
        limits = plan["limits"]
        self.fd = stream
        self.outs = {
            pipes["stdout"]: _Stream(self, "stdout", pipes["stdout"], limits["output_bytes"]),
            pipes["stderr"]: _Stream(self, "stderr", pipes["stderr"], limits["output_bytes"]),
        }
        self.report = _Report(self, pipes["report"])
        self.readers = dict(self.outs)
        self.readers[pipes["report"]] = self.report
        self.stop_at = limits.get("output_stop_bytes") or 0
        tests = json.dumps({"tests": plan["tests"]}).encode("ascii")
        self.tests_fd = pipes["tests"]
        self.tests = memoryview(len(tests).to_bytes(4, "big") + tests)

    def send(self, kind, **fields):
        frames.write(self.fd, kind, **fields)

    def output(self, name, data, tail):
        self.send("output", stream=name, data=frames.encode(data), tail=tail)

    def flooded(self):
        return self.stop_at and sum(s.total for s in self.outs.values()) > self.stop_at

    def drain(self, fd):
        """Takes what a pipe holds; None when it is empty, False at its end."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return None
        if not data:
            return False
        self.readers[fd].take(data)
        return True

    def drain_all(self):
        """Takes what is left after every writer is dead: pipes hold little, so
        this ends."""
        for fd in self.readers:
            while self.drain(fd):
                pass

    def total(self, name):
        return sum(s.total for s in self.outs.values() if s.name == name)

    def push_tests(self):
        """Writes more of the tests; True when all is written or nobody reads."""
        try:
            self.tests = self.tests[os.write(self.tests_fd, self.tests):]
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not self.tests


def _pipe():
    read, write = os.pipe2(os.O_CLOEXEC)
    return read, write


def _let_open(fd):
    """Has /dev/stdout be opened by the program, and nothing read back from it.
    The pipes of gVisor have no modes to change."""
    try:
        os.fchmod(fd, 0o622)
    except PermissionError:
        pass


def _stdin():
    """Standard input as a file in memory, empty until the plan comes: reading
    it never blocks, and nothing has to be fed to a program that does not
    read."""
    return os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _fill_stdin(fd, text):
    data = memoryview(text.encode("utf-8", "surrogateescape"))
    at = 0
    while at < len(data):  # not through the file's position, which is the program's too
        at += os.pwrite(fd, data[at:], at)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW
                | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    os.close(fd)


def _run_program(confinement, fds):
    """In the program's process: confines itself as far as is the same for every
    run, waits for its part of the plan, then runs untrusted code."""
    try:
        with kernel.step("descriptors"):
            confinement.take_descriptors(list(fds.items()))
        confinement.become()
        run = confine.await_run(confinement.config)
    except kernel.StepError as error:
        os.write(confine.STATUS_FD, json.dumps(error.fields).encode("ascii"))
        os._exit(70)
    except frames.Closed:
        os._exit(0)  # never used
    # Its closing tells the supervisor that all steps are done.
    os.close(confine.STATUS_FD)
    run()


class _Program:
    """The program's process, forked before there is anything to run in it, and
    so before this process has seen a plan."""

    def __init__(self, confinement):
        self.config = confinement.config
        out, err, report, status, tests = _pipe(), _pipe(), _pipe(), _pipe(), _pipe()
        self.stdin = _stdin()
        for fd in (out[1], err[1]):
            _let_open(fd)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _run_program(confinement, {
                    0: self.stdin, 1: out[1], 2: err[1], confine.REPORT_FD: report[1],
                    confine.TESTS_FD: tests[0], confine.STATUS_FD: status[1]})
            finally:
                os._exit(70)
        for fd in (out[1], err[1], report[1], tests[0], status[1]):
            os.close(fd)
        self.status = status[0]
        self.pipes = {"stdout": out[0], "stderr": err[0], "report": report[0], "tests": tests[1]}

    def start(self, plan):
        """Hands the program its part of the plan, which the tests are not, and
        waits until it is confined."""
        if plan["stdin"]:
            _fill_stdin(self.stdin, plan["stdin"])
        else:
            os.close(self.stdin)
        part = json.dumps({
            "mode": plan["mode"], "solution": plan["solution"], "program": plan["program"],
            "args": plan["args"], "fail_fast": plan["fail_fast"], "files": plan["files"],
            "nonce": plan["nonce"], "rlimits": self.config["rlimits"],
            "workspace": self.config["workspace"], "site_packages": self.config["site_packages"],
            "thread_stack_bytes": self.config["thread_stack_bytes"],
        }).encode("ascii")
        try:
            frames.write_all(self.pipes["tests"], len(part).to_bytes(4, "big") + part)
        except BrokenPipeError:
            pass  # it has ended, and its status says why
        failure = bytearray()
        while True:
            data = os.read(self.status, _READ)
            if not data:
                break
            failure += data
        os.close(self.status)
        if failure:
            raise kernel.StepError(**_as_step(json.loads(failure)))
        for fd in self.pipes.values():
            os.set_blocking(fd, False)


def _as_step(fields):
    return {"step": fields["step"], "index": fields["index"], "number": fields["errno"],
            "message": fields["message"]}


def _kill(pid, config):
    """Kills everything the program has started, and itself."""
    if config["kill"] == "namespace":
        # Every process of this pid namespace but its first, which we are.
        _try_kill(os.kill, -1)
        return
    _try_kill(os.killpg, pid)
    _try_kill(os.kill, pid)
    for _ in range(100):  # what left the group comes to us, the subreaper
        children = _children()
        if not children:
            return
        for child in children:
            _try_kill(os.kill, child)


def _try_kill(call, target):
    try:
        call(target, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _children():
    try:
        with open("/proc/thread-self/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _end_notice(pid):
    """A descriptor that becomes readable when the program has ended, and how to wait
    for it then: its own, or, on kernels without those (gVisor), one that tells of
    the end of any child."""
    try:
        return os.pidfd_open(pid), 0
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    read, write = _pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.raise_signal(signal.SIGCHLD)  # for an end before this
    return read, os.WNOHANG


def _told_end(end, waiting, pid):
    """What _end_notice told of: the program's wait status and resource usage, None
    when it was another child's end. Its notice is taken before the kernel is asked:
    an end after the answer must be told again."""
    if waiting:
        os.read(end, _READ)
    ended, status, usage = os.wait4(pid, waiting)
    return (status, usage) if ended else None


def _relay_until_exit(relay, stream, pid, config):
    """Runs until the program is dead. Returns the facts, free of any verdict: its
    wait status and resource usage."""
    end, waiting = _end_notice(pid)
    poll = select.poll()
    for fd in relay.readers:
        poll.register(fd, select.POLLIN)
    poll.register(stream, select.POLLIN)
    poll.register(end, select.POLLIN)
    handing_over = False
    while True:
        for fd, _ in poll.poll():
            if fd == end:
                facts = _told_end(end, waiting, pid)
                if facts:
                    return facts
            elif fd == stream:
                _take_order(stream, pid, config)
            elif fd == relay.tests_fd:
                if relay.push_tests():
                    poll.unregister(fd)
            elif relay.drain(fd) is False:
                poll.unregister(fd)
        if relay.report.loaded and not handing_over:
            handing_over = True
            poll.register(relay.tests_fd, select.POLLOUT)
        if relay.flooded():
            _kill(pid, config)


def _take_order(stream, pid, config):
    try:
        frame = frames.read(stream)
    except (frames.Closed, OSError, ValueError):
        # No daemon, no run. The end of this process is the end of the sandbox.
        _kill(pid, config)
        os._exit(71)
    if frame.get("type") == "end":
        _kill(pid, config)


def _reap():
    """Collects whatever is still a child, so that nothing writes any more."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
        except InterruptedError:
            continue


def _account(status, usage, relay):
    signaled = os.WIFSIGNALED(status)
    return {
        "code": -1 if signaled else os.WEXITSTATUS(status),
        "signal": os.WTERMSIG(status) if signaled else 0,
        "cpu_us": int((usage.ru_utime + usage.ru_stime) * 1e6),
        "user_us": int(usage.ru_utime * 1e6),
        "max_rss_bytes": usage.ru_maxrss * 1024,
        "stdout_bytes": relay.total("stdout"),
        "stderr_bytes": relay.total("stderr"),
    }


def _read_plan(stream, config):
    """The plan; limits of the run may come before it."""
    while True:
        frame = frames.read(stream)
        if frame.get("type") != "limits":
            return frame["plan"]
        config["rlimits"] = frame["rlimits"]


def serve(stream, confinement):
    """Says hello, runs the one plan that comes, and ends the process."""
    config = confinement.config
    out = stream if config["output"] is None else config["output"]
    child = _Program(confinement)
    frames.write(out, "hello", hello=confine.hello())
    try:
        plan = _read_plan(stream, config)
        try:
            child.start(plan)
        except kernel.StepError as error:
            frames.write(out, "error", error=error.fields)
            os._exit(70)
        frames.write(out, "started")
        pid = child.pid
        relay = _Relay(out, plan, child.pipes)
        status, usage = _relay_until_exit(relay, stream, pid, config)
        # Children that hold the pipes must not delay the reply, nor write into
        # the workspace while it is read.
        _kill(pid, config)
        _reap()
        relay.drain_all()
        for captured in relay.outs.values():
            captured.finish()
        # How the program ended is told before anything else is done: what comes
        # after is our work, and neither its time nor its failure is the
        # program's.
        frames.write(out, "exit", exit=_account(status, usage, relay))
        cut = False
        if plan["collect"]:
            cut = collect.send(out, config["workspace"], plan["collect"], plan["limits"])
        frames.write(out, "done", cut=cut)
    except (frames.Closed, BrokenPipeError, ConnectionResetError):
        os._exit(71)
    os._exit(0)


def _keep_capabilities(keep):
    ambient, *others = kernel.keep_capabilities_calls(keep)
    try:
        kernel.do(ambient)
    except OSError as error:
        if error.errno != errno.EINVAL:  # gVisor has no ambient set
            raise
    for ready in others:
        kernel.do(ready)


def main(stream, config):
    """Entry of engines whose interpreter is this one sandbox's alone."""
    kernel.use_numbers(config["numbers"])
    if config["kill"] != "namespace":
        with kernel.step("subreaper"):
            kernel.do(kernel.prctl_call(kernel.PR_SET_CHILD_SUBREAPER, 1))
    if config["capabilities"] is not None:
        with kernel.step("capabilities"):
            _keep_capabilities(config["capabilities"])
    if config["uid"] is None:
        # The program has this user's id too, and must not open what is open here
        # (proc_pid_fd(5)): the stream.
        with kernel.step("not dumpable"):
            kernel.do(kernel.prctl_call(kernel.PR_SET_DUMPABLE, 0))
    sys.path.extend(config["site_packages"])
    confinement = confine.Confinement(config)
    if config["kill"] == "namespace":
        # The first process of a namespace gets no signal from inside that it does
        # not handle (pid_namespaces(7)), and this is the one that Python does. The
        # program has it back (confine.interrupt_call).
        kernel.do(kernel.default_action_call(signal.SIGINT))
    serve(stream, confinement)
