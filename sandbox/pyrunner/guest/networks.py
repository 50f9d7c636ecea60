"""Empty network namespaces, made once and used by one sandbox after another.

Making one and tearing it down costs more than anything else in a sandbox, most
of it later and in the kernel's own threads. What runs inside has no capability
over one and so can leave nothing in it but sockets, which end with their
processes; that none is left is asked of the kernel before the next use.
"""

import os

from sandboxd_guest import kernel


class Networks:
    """Owned by the zygote, in whose user namespace they are made."""

    def __init__(self):
        self.own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.all = []  # descriptors, by number; None for one that was given up
        self.free = []

    def take(self):
        """The number of a clean namespace that nobody is in."""
        if self.free:
            return self.free.pop()
        with kernel.step("make network"):
            kernel.unshare(kernel.CLONE_NEWNET)
            try:
                fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            finally:
                kernel.setns(self.own, kernel.CLONE_NEWNET)
        self.all.append(fd)
        return len(self.all) - 1

    def enter(self, number):
        with kernel.step("enter network"):
            kernel.setns(self.all[number], kernel.CLONE_NEWNET)

    def leave(self):
        with kernel.step("leave network"):
            kernel.setns(self.own, kernel.CLONE_NEWNET)

    def release(self, number):
        """Takes one back, or lets go of it when it is not clean."""
        self.enter(number)
        try:
            clean = _is_clean()
        finally:
            self.leave()
        if clean:
            self.free.append(number)
        else:
            os.close(self.all[number])
            self.all[number] = None


def _is_clean():
    """No socket of any kind is left, and no address was ever added."""
    with open("/proc/self/net/sockstat") as file:
        first = file.readline()
    return first.split()[:3] == ["sockets:", "used", "0"]
