"""The program's last steps before untrusted code: what the kernel will hold it
to. Runs in the program process, just forked by the supervisor or parted from
the sandbox's first process."""

import base64
import os
import resource
import signal
import sys
from json.decoder import JSONDecoder
from os import dup2

from sandboxd_guest import frames, kernel, program

_scan = JSONDecoder().scan_once

REPORT_FD = 3
TESTS_FD = 4
STATUS_FD = 5
FIRST_CLOSED = 6
_HIGH = 64  # above all that a process has here


class Confinement:
    """The program's, made ready as far as it is the same for every run."""

    def __init__(self, config, code=None, interrupt=None):
        """code: kernel.load_code's. interrupt: interrupt_call's, where SIGINT has
        another action by now."""
        self.config = config
        self._interrupt = interrupt or interrupt_call()
        self._close_others = kernel.close_from_call(FIRST_CLOSED)
        self._become = kernel.Sequence(code, self._identity() + [
            # Cleared by the change of ids, so it comes after it. The program must
            # not outlive its supervisor where no pid namespace sees to that.
            *kernel.steps("death signal", [kernel.prctl_call(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)]),
            # By which the kernel kills the program for memory and not its supervisor.
            *offer_first(FIRST_CLOSED)] + self._doors())

    def take_descriptors(self, wanted):
        """Moves descriptors to their fixed numbers (wanted: pairs of
        number and descriptor) and closes all others."""
        for number, fd in wanted:
            dup2(fd, _HIGH + number, False)
        for number, _ in wanted:
            dup2(_HIGH + number, number, number < 3)
        kernel.do(self._close_others)

    def become(self):
        """Leaves the supervisor's identity and rights for the program's own.

        Preconditions: take_descriptors was called, and all of its numbers are in
        use."""
        self._become()

    def alone(self):
        """The calls for a program without a supervisor, whose end is seen to, and
        which is offered first, by the sandbox's first process."""
        return self._identity() + self._doors()

    def _identity(self):
        uid, gid = self.config["uid"], self.config["gid"]
        calls = [kernel.call("setsid")]
        if uid is not None:
            calls += [kernel.call("setgroups", 0, 0), kernel.call("setresgid", gid, gid, gid),
                      kernel.call("setresuid", uid, uid, uid)]
        return kernel.steps("program ids", calls)

    def _doors(self):
        """The irreversible part that is the same for every run; the filter
        last, because the steps before it need calls that it forbids."""
        landlock = self.config.get("landlock")
        return [
            *kernel.steps("signals", [self._interrupt]),
            *kernel.steps("workspace", [kernel.call("chdir", self.config["workspace"])]),
            *kernel.steps("no_new_privs", [kernel.prctl_call(kernel.PR_SET_NO_NEW_PRIVS, 1)]),
            *kernel.steps("not dumpable", [kernel.prctl_call(kernel.PR_SET_DUMPABLE, 0)]),
            *kernel.steps("landlock", kernel.landlock_calls(landlock, FIRST_CLOSED) if landlock else []),
            *kernel.steps("seccomp", [kernel.load_filter_call(base64.b64decode(self.config["filter"]))])]


def offer_first(free):
    """Has the kernel kill this process for memory before others. The file is the
    process's own only while it can be dumped (proc(5)), which is to be ended
    before anything untrusted runs. The kernel asks all processes whether they
    share its memory, unless nobody does. free: the lowest descriptor not in use."""
    return kernel.steps("oom score", [
        kernel.prctl_call(kernel.PR_SET_DUMPABLE, 1),
        kernel.call("openat", kernel.AT_FDCWD, "/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, 0),
        kernel.call("write", free, b"1000", 4), kernel.call("close", free)])


def interrupt_call():
    """What gives SIGINT, the one signal that interpreters handle, to this one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return kernel.present_action_call(signal.SIGINT)


def write_files(workspace, files):
    """Puts the request's files into the workspace, as the program's own."""
    for index, entry in enumerate(files):
        with kernel.step("write file " + entry["path"], index):
            path = os.path.join(workspace, entry["path"])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            data = entry["content"].encode("utf-8")
            if entry.get("encoding") == "base64":
                data = base64.b64decode(data, validate=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(fd, "wb") as file:
                file.write(data)
                os.fchmod(fd, int(entry.get("mode") or "0644", 8))


def limit(rlimits):
    """The run's own resource limits, when they are known."""
    for index, (number, soft, hard) in enumerate(rlimits):
        with kernel.step("rlimit", index):
            _, most = resource.getrlimit(number)
            if most != resource.RLIM_INFINITY:  # a lower hard limit of the host stays
                soft, hard = min(soft, most), min(hard, most)
            resource.setrlimit(number, (soft, hard))


def hello():
    return {"python": "%d.%d.%d" % sys.version_info[:3], "arch": os.uname().machine}


def await_run(config):
    """Waits for the program's part of the plan and applies what is this run's
    own. Returns the function that runs it."""
    size = int.from_bytes(frames.read_exactly(TESTS_FD, 4), "big")
    part, _ = _scan(frames.read_exactly(TESTS_FD, size).decode("utf-8"), 0)
    files = part.pop("files")
    if files:
        write_files(config["workspace"], files)
    with kernel.step("harness"):
        channel = program.Channel(REPORT_FD, TESTS_FD, part.pop("nonce"))
    limit(part.pop("rlimits"))
    return lambda: program.run(part, channel)
