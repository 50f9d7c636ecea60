"""Which pages a run writes, whatever it runs.

In a fork each of them is copied when it is first written, in the middle of the
run. A sandbox that waits can have that behind it. So a fork of the zygote
rehearses a run, and its parent looks which pages are no longer shared with it
(Documentation/admin-guide/mm/pagemap.rst)."""

import fcntl
import json
import os
import signal
import socket
from mmap import PAGESIZE
from types import SimpleNamespace

from sandboxd_guest import confine, direct, kernel, program

_ALONE = 1 << 56 | 1 << 63  # mapped by one process only, and present
_MOST = 400  # pieces
_SECONDS = 10  # that a rehearsal may take, on a slow machine
# Different ones: a page that only one of them writes is left to the runs that do.
_RUNS = (
    ("def double(n):\n    return 2 * n\n", "assert double(2) == 4\nassert double(0) == 0, 'none'\n"),
    ("class Pile:\n    def __init__(self):\n        self.items = []\n\n    def add(self, item):\n"
     "        self.items.append(item)\n        return len(self.items)\n\ndef words(text):\n"
     "    return sorted(set(text.split()))\n",
     "pile = Pile()\nassert pile.add(1) == 1\nfor text in ('b a', 'a b a'):\n    assert words(text) == ['a', 'b']\n"),
)


def find(code):
    """Pieces of the zygote's memory, as pairs of addresses; none where it cannot be
    found out. code: kernel.load_code's."""
    pages = None
    for solution, tests in _RUNS:
        found = _written(code, solution, tests)
        pages = found if pages is None else pages & found
    pieces = []
    for address in sorted(pages):
        if pieces and pieces[-1][1] == address:
            pieces[-1][1] = address + PAGESIZE
        else:
            pieces.append([address, address + PAGESIZE])
    return pieces[:_MOST]


def _written(code, solution, tests):
    """The pages that one run writes. Its process has a parent that does nothing:
    a page that the zygote writes meanwhile is still shared with that one."""
    done, say = socket.socketpair()
    done.settimeout(_SECONDS)
    clone, last = kernel.Cloner(0), kernel.prctl_call(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    between = clone()
    if between == 0:
        try:
            done.close()
            named = kernel.steps("clone", [kernel.Cloner(0).call], kernel.FORK)
            named += kernel.steps("run", [last, kernel.HALT])
            named += kernel.steps("sleep", [kernel.call("close", say.fileno()), kernel.call("ppoll", 0, 0, 0, 0, 0)])
            sequence = kernel.Sequence(code, named)
            sequence.caller_goes_to(0, 3)
            if sequence() == 2:
                _run(solution, tests, say)
        finally:
            os._exit(0)
    say.close()
    try:
        pid = done.recv(16)
        return _copied(int(pid)) if pid else set()
    except OSError:  # too late, or no such file
        return set()
    finally:
        os.kill(between, signal.SIGKILL)  # and the run's process with it
        done.close()
        os.close(clone.pidfd)


def _run(solution, tests, say):
    """A whole run, up to the end of its process."""
    part = {"mode": "tests", "solution": solution, "program": "", "args": [], "fail_fast": False, "files": [],
            "nonce": "0" * 32, "rlimits": [], "workspace": "/nonexistent", "site_packages": [],
            "thread_stack_bytes": 512 << 10}
    read, write = os.pipe()
    for thing in (part, {"tests": tests}):
        text = json.dumps(thing).encode("ascii")
        os.write(write, len(text).to_bytes(4, "big") + text)
    say, read = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in (say.fileno(), read))
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2, confine.REPORT_FD, confine.STATUS_FD):
        os.dup2(null, number)
    os.dup2(read, confine.TESTS_FD)

    def end(_):
        os.write(say, b"%d" % os.getpid())
        while True:
            signal.pause()  # until it has been looked at

    program._harness["reporting"]._exit = end
    direct.serve(SimpleNamespace(config={"workspace": part["workspace"]}))


def _copied(pid):
    pages = set()
    with open("/proc/%d/pagemap" % pid, "rb", 0) as pagemap:
        for start, end in _writable():
            pagemap.seek(start // PAGESIZE * 8)
            entries = memoryview(pagemap.read((end - start) // PAGESIZE * 8)).cast("Q")
            pages.update(start + number * PAGESIZE for number, entry in enumerate(entries) if entry & _ALONE == _ALONE)
    return pages


def _writable():
    """The zygote's own memory: what a child has added is none of it."""
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps]
    for fields in lines:
        if fields[1] == "rw-p":
            start, end = fields[0].split("-")
            yield int(start, 16), int(end, 16)
