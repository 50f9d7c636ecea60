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
from os import preadv

from sandboxd_guest import kernel

_READ = os.O_RDONLY | os.O_CLOEXEC
_KINDS = {"net": kernel.CLONE_NEWNET, "ipc": kernel.CLONE_NEWIPC}
# What a network tells of sockets of any kind, and what a program can change by
# sending where there is no route; which System V objects there are.
_FILES = ("net/sockstat", "net/snmp", "net/snmp6", "sysvipc/shm", "sysvipc/msg", "sysvipc/sem")
_MOST = 16 << 10


class Networks:
    """Owned by the zygote, in whose user namespace they are made."""

    def __init__(self):
        self._outside = _Place()
        self._make = kernel.unshare_call(kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
        self._all = []  # by number; None for one that was given up
        self._free = []
        self._fresh = None  # what the files say where nobody has been

    def take(self):
        """A clean namespace that nobody else is in: its number and the calls that
        enter it. It is entered already where it was made now."""
        while self._free:
            number = self._free.pop()
            place = self._all[number]
            if place.says(self._fresh):
                return number, place.calls
            place.close()
            self._all[number] = None
        kernel.do(self._make)
        place = _Place()
        if self._fresh is None:
            self._fresh = list(map(_Fresh, place.files))
        self._all.append(place)
        return len(self._all) - 1, place.calls

    def leave(self):
        for call in self._outside.calls:
            kernel.do(call)

    def release(self, numbers):
        """Takes them back: the sandboxes in them are gone."""
        self._free += numbers


class _Place:
    """The namespaces that this process is in. A file of them that is open tells
    of them, whoever reads it and wherever from (proc_net_ns of fs/proc/proc_net.c,
    sysvipc_proc_open of ipc/util.c)."""

    def __init__(self):
        self._fds = [os.open("/proc/self/ns/" + name, _READ) for name in _KINDS]
        self.calls = [kernel.setns_call(fd, kind) for fd, kind in zip(self._fds, _KINDS.values())]
        self.files = [os.open(path, _READ) for path in map(_path, _FILES) if os.path.exists(path)]

    def says(self, fresh):
        for fd, file in zip(self.files, fresh):
            if not file.same(fd):
                return False
        return True

    def close(self):
        for fd in self._fds + self.files:
            os.close(fd)


class _Fresh:
    """What a file says where nobody has been."""

    def __init__(self, fd):
        text = os.pread(fd, _MOST, 0)
        # One byte more than there should be, to see that there is not.
        self._text, self._read = text + b"\0", bytearray(len(text) + 1)
        self._into, self._size = [self._read], len(text)

    def same(self, fd):
        return preadv(fd, self._into, 0) == self._size and self._read == self._text


def _path(name):
    return "/proc/" + ("self/" if name.startswith("net/") else "") + name
