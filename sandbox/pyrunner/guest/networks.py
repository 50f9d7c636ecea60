"""Empty network and ipc namespaces, made once and used by one sandbox after
another.

Making them and tearing them down costs more than anything else in a sandbox,
most of it later and in the kernel's own threads. What runs inside has no
capability over a network and so can leave nothing in it but sockets, which end
with their processes, and the protocols' counters. System V objects and message
queues it may not make at all. That no socket and no object is left and nothing
was counted is asked of the kernel before each use.
"""

import os
from os import close, open as open_fd, read

from sandboxd_guest import kernel

_READ = os.O_RDONLY | os.O_CLOEXEC
_UNUSED = b"sockets: used 0\n"  # begins /proc/net/sockstat: no socket of any kind
# A program can read these and, by sending where there is no route, change them.
_COUNTERS = ("/proc/self/net/snmp", "/proc/self/net/snmp6")
_MOST = 16 << 10


class Networks:
    """Owned by the zygote, in whose user namespace they are made."""

    def __init__(self):
        self._back, _ = _own()
        self._make = kernel.unshare_call(kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
        self._objects = kernel.Objects()
        self._all = []  # how to enter them, by number; None for one that was given up
        self._free = []
        self._fresh = None  # the counters' files in a network that nobody was in

    def enter(self):
        """Enters a clean namespace that nobody else is in, and returns its
        number."""
        while self._free:
            number = self._free.pop()
            calls, fds = self._all[number]
            for call in calls:
                kernel.do(call)
            if self._is_clean():
                return number
            for fd in fds:
                os.close(fd)
            self._all[number] = None
        kernel.do(self._make)
        self._all.append(_own())
        if self._fresh is None:
            self._fresh = [(path, _content(path)) for path in _COUNTERS if os.path.exists(path)]
        return len(self._all) - 1

    def leave(self):
        for call in self._back:
            kernel.do(call)

    def release(self, numbers):
        """Takes them back: the sandboxes in them are gone."""
        self._free += numbers

    def _is_clean(self):
        if _content("/proc/self/net/sockstat", len(_UNUSED)) != _UNUSED:
            return False
        for path, fresh in self._fresh:
            if _content(path) != fresh:
                return False
        return not self._objects.exist()


def _own():
    """The calls that enter the namespaces which this process is in, and the
    descriptors that these are kept by."""
    kinds = {"net": kernel.CLONE_NEWNET, "ipc": kernel.CLONE_NEWIPC}
    fds = [os.open("/proc/self/ns/" + name, _READ) for name in kinds]
    return [kernel.setns_call(fd, kind) for fd, kind in zip(fds, kinds.values())], fds


def _content(path, size=_MOST):
    fd = open_fd(path, _READ)
    content = read(fd, size)
    close(fd)
    return content
