"""The program's last steps before untrusted code: what the kernel will hold it
to. Runs in the program process, just forked by the supervisor or parted from
the sandbox's first process."""

import base64
import json
import os
import resource
import signal
import sys

from sandboxd_guest import frames, kernel, program

REPORT_FD = 3
TESTS_FD = 4
STATUS_FD = 5
_FIRST_CLOSED = 6


def take_descriptors(wanted, first_closed=_FIRST_CLOSED):
    """Moves descriptors to their fixed numbers (wanted: number -> descriptor)
    and closes all from first_closed on."""
    high = {number: os.dup2(fd, 64 + number, inheritable=False) for number, fd in wanted.items()}
    for number, fd in high.items():
        os.dup2(fd, number, inheritable=number < 3)
    kernel.close_from(first_closed)


def become(config):
    """Leaves the supervisor's identity for the program's own."""
    os.setsid()
    if config.get("uid") is not None:
        with kernel.step("program ids"):
            os.setgroups([])
            os.setresgid(config["gid"], config["gid"], config["gid"])
            os.setresuid(config["uid"], config["uid"], config["uid"])
    with kernel.step("death signal"):
        # Cleared by the change of ids above, so it comes after it. The program
        # must not outlive its supervisor where no pid namespace sees to that.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    with kernel.step("oom score"):
        # The kernel shall kill the program for memory, not its supervisor. The
        # file is the process's own only while it can be dumped (proc(5));
        # restrict() forbids that again before anything untrusted runs.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1000")
        finally:
            os.close(fd)
    with kernel.step("workspace"):
        os.chdir(config["workspace"])


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


def close_doors(config):
    """The irreversible part that is the same for every run; the filter last,
    because the steps before it need calls that it forbids."""
    with kernel.step("no_new_privs"):
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    with kernel.step("not dumpable"):
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    if config.get("landlock"):
        with kernel.step("landlock"):
            kernel.restrict_paths(config["landlock"])
    with kernel.step("seccomp"):
        kernel.load_filter(base64.b64decode(config["filter"]))


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
    part = json.loads(frames.read_exactly(TESTS_FD, size))
    write_files(config["workspace"], part.pop("files"))
    with kernel.step("harness"):
        channel = program.Channel(REPORT_FD, TESTS_FD, part.pop("nonce"))
    limit(part.pop("rlimits"))
    return lambda: program.run(part, channel)
