"""Empty network namespaces, made once and used by one sandbox after another.

Making one and tearing it down costs more than anything else in a sandbox, most
of it later and in the kernel's own threads. What runs inside has no capability
over one and so can leave nothing in it but sockets, which end with their
processes; that none is left is asked of the kernel before each use.
"""

import os
from os import close, open as open_fd, read

from sandboxd_guest import kernel

_READ = os.O_RDONLY | os.O_CLOEXEC
_UNUSED = b"sockets: used 0\n"  # begins /proc/net/sockstat: no socket of any kind


class Networks:
    """Owned by the zygote, in whose user namespace they are made."""

    def __init__(self):
        own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._back = kernel.setns_call(own, kernel.CLONE_NEWNET)
        self._make = kernel.unshare_call(kernel.CLONE_NEWNET)
        self._all = []  # the calls to enter them, by number; None for one that was given up
        self._free = []

    def enter(self):
        """Enters a clean namespace that nobody else is in, and returns its
        number."""
        while self._free:
            number = self._free.pop()
            kernel.do(self._all[number][1])
            if _is_clean():
                return number
            os.close(self._all[number][0])
            self._all[number] = None
        kernel.do(self._make)
        fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._all.append((fd, kernel.setns_call(fd, kernel.CLONE_NEWNET)))
        return len(self._all) - 1

    def leave(self):
        kernel.do(self._back)

    def release(self, numbers):
        """Takes them back: the sandboxes in them are gone."""
        self._free += numbers


def _is_clean():
    fd = open_fd("/proc/self/net/sockstat", _READ)
    first = read(fd, len(_UNUSED))
    close(fd)
    return first == _UNUSED
