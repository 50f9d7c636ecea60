"""A native sandbox from inside: what a process just cloned by the zygote does
until it is the first process of a sandbox that nothing else can be reached from.

It starts in namespaces of its own with all capabilities over its own user
namespace and none over any other. The daemon describes the steps, this module
carries them out in the only order that works."""

import os
from _signal import SIG_DFL, SIGCHLD, signal
from os import _exit, open as open_fd, read, setgroups, setresgid, setresuid, write

from sandboxd_guest import confine, direct, frames, kernel, supervisor

# Network and ipc namespaces are not among these: the zygote clones from inside
# empty ones (networks.py).
FLAGS = kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS

# The descriptors of a direct sandbox, in the daemon's order: where the program
# has them. The one of a supervised sandbox is its stream.
_DIRECT = (confine.STATUS_FD, 0, 1, 2, confine.REPORT_FD, confine.TESTS_FD)
_STREAM = 3


class Profile:
    """What sandboxes of one kind have in common, made ready in the zygote."""

    def __init__(self, order, part):
        self.supervised = order["supervised"]
        self._part = part
        self._own_fds = 1 if self.supervised else len(_DIRECT)
        self._confinement = confine.Confinement(order["config"])
        # Once the groups are joined: the root of the cgroup namespace is the group
        # that the process is in then.
        self._cgroup_namespace = kernel.unshare_call(kernel.CLONE_NEWCGROUP)
        self._places = _places(order)
        self._dumpable = kernel.prctl_call(kernel.PR_SET_DUMPABLE, 1)  # _lock_down ends it
        self._lock_down = (
            kernel.steps("capabilities", kernel.keep_capabilities_calls(order["capabilities"]))
            + kernel.steps("no_new_privs", [kernel.prctl_call(kernel.PR_SET_NO_NEW_PRIVS, 1)])
            + kernel.steps("not dumpable", [kernel.prctl_call(kernel.PR_SET_DUMPABLE, 0)]))
        self._close_others = kernel.close_from_call(_STREAM + 1 if self.supervised else confine.FIRST_CLOSED)

    def enter(self, fds, mapped):
        """In the child: never returns. fds: the sandbox's own descriptors, then
        those of cgroup files; mapped: a pipe that tells when the zygote has
        written the id maps."""
        answer, step, supervised = fds[0], "signals", self.supervised
        try:
            # SIG_IGN came from the zygote; a supervisor waits for its children.
            signal(SIGCHLD, SIG_DFL)
            step = "join cgroup"
            for fd in fds[self._own_fds:]:
                # 0 is the writer itself. Through a v1 `tasks` file, and with a
                # single thread, this needs no grace period of the kernel.
                write(fd, b"0")
            step = "cgroup namespace"
            kernel.do(self._cgroup_namespace)
            step = "id maps"
            if read(mapped, 1) != b"1":
                _exit(70)  # the zygote failed and has said why
            setgroups(())
            setresgid(0, 0, 0)
            setresuid(0, 0, 0)
            kernel.carry_out(self._places)
            step = "descriptors"
            if supervised:
                null = open_fd("/dev/null", os.O_RDWR)
                confine.take_descriptors(((0, null), (1, null), (2, null), (_STREAM, answer)), self._close_others)
                answer = _STREAM
            else:
                confine.take_descriptors(list(zip(_DIRECT, fds)), self._close_others)
                answer = confine.STATUS_FD
                step = "oom score"
                kernel.do(self._dumpable)
                confine.offer_first()
            kernel.carry_out(self._lock_down)
        except kernel.StepError as error:
            _give_up(answer, error)
        except OSError as error:
            _give_up(answer, kernel.StepError(step, 0, error.errno or 0, str(error)))
        if supervised:
            os.chdir("/")
            supervisor.serve(_STREAM, self._confinement)
        direct.serve(self._confinement, self._part)


def _give_up(answer, error):
    try:
        frames.write(answer, "error", error=error.fields)
    except OSError:
        pass  # the daemon has given this sandbox up
    os._exit(70)


def _places(order):
    calls = []
    for source, target, kind, flags, data in order["mounts"]:
        calls += kernel.steps("mount " + target, [kernel.mount_call(source, target, kind, flags, data)])
    # The image's root is the same in the zygote. What /proc would show is left out
    # of these by the daemon where it shows processes only.
    for path in filter(os.path.lexists, order["masked"]):
        if os.path.isdir(path):
            call = kernel.mount_call("tmpfs", path, "tmpfs", kernel.MS_RDONLY, "size=0")
        else:
            call = kernel.mount_call("/dev/null", path, "", kernel.MS_BIND, "")
        calls += kernel.steps("mask " + path, [call])
    for path in filter(os.path.lexists, order["readonly"]):
        calls += kernel.steps("close " + path, [
            kernel.mount_call(path, path, "", kernel.MS_BIND | kernel.MS_REC, ""),
            kernel.mount_call(path, path, "", kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY
                              | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "")])
    return calls + kernel.steps("host name", [kernel.hostname_call(order["hostname"])])
