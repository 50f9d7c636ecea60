"""A native sandbox from inside: what a process just cloned by the zygote does
until it is the first process of a sandbox that nothing else can be reached from.

It starts in namespaces of its own with all capabilities over its own user
namespace and none over any other. The daemon describes the steps, this module
carries them out in the only order that works."""

import os
import resource
import socket
import signal
import sys

from sandboxd_guest import confine, direct, frames, kernel, supervisor

# The network namespace is none of these: the zygote clones from inside an empty
# one (networks.py).
FLAGS = (kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS
         | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS)


# The descriptors of a direct sandbox, in the daemon's order: where the program
# has them. The one of a supervised sandbox is its stream.
_DIRECT = (confine.STATUS_FD, 0, 1, 2, confine.REPORT_FD, confine.TESTS_FD)
_STREAM = 3


def enter(order, fds, mapped, park):
    """Never returns. order: the daemon's description of a sandbox; fds: the
    sandbox's own descriptors, then those of cgroup files; mapped: a pipe that
    tells when the zygote has written the id maps."""
    own = 1 if order["supervised"] else len(_DIRECT)
    answer = fds[0]
    try:
        # SIG_IGN came from the zygote; a supervisor waits for its children.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _join_groups(fds[own:])
        with kernel.step("id maps"):
            if os.read(mapped, 1) != b"1":
                os._exit(70)  # the zygote failed and has said why
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        _mount_all(order)
        with kernel.step("host name"):
            socket.sethostname(order["hostname"])
        with kernel.step("descriptors"):
            if order["supervised"]:
                confine.take_descriptors({0: _null(), 1: _null(), 2: _null(), _STREAM: fds[0]}, _STREAM + 1)
                answer = _STREAM
            else:
                confine.take_descriptors(dict(zip(_DIRECT, fds)))
                answer = confine.STATUS_FD
        _lock_down(order)
    except kernel.StepError as error:
        try:
            frames.write(answer, "error", error=error.fields)
        except OSError:
            pass  # the daemon has given this sandbox up
        os._exit(70)
    if order["supervised"]:
        os.chdir("/")
        supervisor.serve(_STREAM, order["config"])
    direct.serve(order["config"], park)


def _null():
    return os.open("/dev/null", os.O_RDWR)


def _join_groups(groups):
    for index, fd in enumerate(groups):
        with kernel.step("join cgroup", index):
            # 0 is the writer itself. Through a v1 `tasks` file, and with a single
            # thread, this needs no grace period of the kernel.
            os.write(fd, b"0")
    with kernel.step("cgroup namespace"):
        # After the joining: its root is the group that the process is in now.
        kernel.unshare(kernel.CLONE_NEWCGROUP)


def _mount_all(order):
    for index, (source, target, kind, flags, data) in enumerate(order["mounts"]):
        with kernel.step("mount " + target, index):
            kernel.mount(source, target, kind, flags, data)
    # Where /proc shows processes only, none of these exist.
    for index, path in enumerate(order["masked"]):
        with kernel.step("mask " + path, index):
            if os.path.isdir(path):
                kernel.mount("tmpfs", path, "tmpfs", kernel.MS_RDONLY, "size=0")
            elif os.path.lexists(path):
                kernel.mount("/dev/null", path, "", kernel.MS_BIND, "")
    for index, path in enumerate(order["readonly"]):
        with kernel.step("close " + path, index):
            if os.path.lexists(path):
                kernel.mount(path, path, "", kernel.MS_BIND | kernel.MS_REC, "")
                kernel.mount(path, path, "", kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY
                             | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "")


def _lock_down(order):
    with kernel.step("capabilities"):
        kernel.keep_capabilities(order["capabilities"])
    with kernel.step("no_new_privs"):
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    with kernel.step("not dumpable"):
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    with kernel.step("rlimit"):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
