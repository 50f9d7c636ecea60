"""The program's last steps before untrusted code: what the kernel will hold it
to. Runs in the program process, just forked by the supervisor or parted from
the sandbox's first process."""

import base64
import os
import resource
import signal
import sys
from json.decoder import JSONDecoder
from os import chdir, close, dup2, open as open_fd, setgroups, setresgid, setresuid, setsid, write

from sandboxd_guest import frames, kernel, program

_scan = JSONDecoder().scan_once

REPORT_FD = 3
TESTS_FD = 4
STATUS_FD = 5
FIRST_CLOSED = 6
_HIGH = 64  # above all that a process has here
_WRITE = os.O_WRONLY | os.O_CLOEXEC


class Confinement:
    """The program's, made ready as far as it is the same for every run."""

    def __init__(self, config):
        self.config = config
        self.uid, self.gid, self.workspace = config["uid"], config["gid"], config["workspace"]
        self._close_others = kernel.close_from_call(FIRST_CLOSED)
        self._before = kernel.steps("death signal", [
            # Cleared by the change of ids, so it comes after it. The program must
            # not outlive its supervisor where no pid namespace sees to that.
            kernel.prctl_call(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)])
        # For offer_first, by which the kernel kills the program for memory and not
        # its supervisor; forbidden again before anything untrusted runs.
        self._before += kernel.steps("oom score", [kernel.prctl_call(kernel.PR_SET_DUMPABLE, 1)])
        self._doors = kernel.steps("no_new_privs", [kernel.prctl_call(kernel.PR_SET_NO_NEW_PRIVS, 1)])
        self._doors += kernel.steps("not dumpable", [kernel.prctl_call(kernel.PR_SET_DUMPABLE, 0)])
        self._paths = kernel.Paths(config["landlock"]) if config.get("landlock") else None
        self._filter = kernel.steps("seccomp", [kernel.load_filter_call(base64.b64decode(config["filter"]))])

    def take_descriptors(self, wanted):
        """Moves descriptors to their fixed numbers (wanted: pairs of
        number and descriptor) and closes all others."""
        take_descriptors(wanted, self._close_others)

    def become(self, supervised=True):
        """Leaves the supervisor's identity for the program's own. Without a
        supervisor its end is seen to, and offer_first() was called, by the
        sandbox's first process."""
        step, uid, gid = "program ids", self.uid, self.gid
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as an interpreter has it
            setsid()
            if uid is not None:
                setgroups(())
                setresgid(gid, gid, gid)
                setresuid(uid, uid, uid)
            if supervised:
                kernel.carry_out(self._before)
                step = "oom score"
                offer_first()
            step = "workspace"
            chdir(self.workspace)
        except OSError as error:
            raise kernel.StepError(step, 0, error.errno or 0, str(error)) from None

    def close_doors(self):
        """The irreversible part that is the same for every run; the filter
        last, because the steps before it need calls that it forbids."""
        kernel.carry_out(self._doors)
        if self._paths:
            try:
                self._paths()
            except OSError as error:
                raise kernel.StepError("landlock", 0, error.errno or 0, str(error)) from None
        kernel.carry_out(self._filter)


def offer_first():
    """Has the kernel kill this process for memory before others. The file is the
    process's own only while it can be dumped (proc(5)). The kernel asks all
    processes whether they share its memory, unless nobody does."""
    fd = open_fd("/proc/self/oom_score_adj", _WRITE)
    write(fd, b"1000")
    close(fd)


def take_descriptors(wanted, close_others):
    for number, fd in wanted:
        dup2(fd, _HIGH + number, False)
    for number, _ in wanted:
        dup2(_HIGH + number, number, number < 3)
    kernel.do(close_others)


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
