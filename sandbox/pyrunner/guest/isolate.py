"""A native sandbox from inside: what a process just cloned by the zygote does
until it is the first process of a sandbox that nothing else can be reached from.

It starts as the zygote's root, in a mount, a pid and a uts namespace of its own.
What takes rights over these comes first; then it enters the sandbox's user
namespace (users.py), where it has all rights but over nothing outside. The
daemon describes the steps, this module has them in the only order that works,
as one sequence of system calls: no Python runs on this way."""

import os
from signal import SIGCHLD

from sandboxd_guest import confine, direct, frames, kernel, supervisor

# Network and ipc namespaces are not among these: the zygote clones from inside
# empty ones (networks.py).
FLAGS = kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS

# The descriptors of a direct sandbox, in the daemon's order: where the program
# has them. The one of a supervised sandbox is its stream.
_DIRECT = (confine.STATUS_FD, 0, 1, 2, confine.REPORT_FD, confine.TESTS_FD)
_STREAM = 3
LOWEST = confine.FIRST_CLOSED  # the zygote has nothing of a sandbox below


# How many sandboxes are forked at one go, at most. Where nothing runs between two
# forks, nothing of the zygote is written, and so copied, between them.
MOST = 4


class Profile:
    """What sandboxes of one kind have in common, made ready in the zygote."""

    def __init__(self, order, code, null, interrupt, writes):
        """null: a descriptor of /dev/null; interrupt: confine.interrupt_call's;
        writes: writes.find's."""
        self._writes = [kernel.write_ahead_call(*piece) for piece in writes]
        self.supervised, self._groups = order["supervised"], order["groups"]
        self._confinement = confine.Confinement(order["config"], code, interrupt)
        self._source = order, code, null
        self._prepare(1)  # most kinds come one at a time, and a copy is some 100 kB

    def widen(self, number):
        """Prepares for so many sandboxes at one go. Returns whether it had to."""
        if number <= len(self._copies):
            return False
        self._prepare(MOST)
        return True

    def _prepare(self, copies):
        order, code, null = self._source
        self._calls = []
        self._copies = [self._add_copy(order, code, null) for _ in range(copies)]
        self._sequence = kernel.Sequence(code, self._calls)

    def fork(self, sandboxes):
        """Forks sandboxes, not more than it is prepared for: each its users.Users,
        the calls that enter its network, whether it is made ahead of need, and its
        descriptors: its own, then those of cgroup files, none below LOWEST. Leaves
        the caller in the last of the networks.

        Returns their first processes' ids and pidfds, and what stopped it: an
        error or None. None instead of all that in a child: one that came back
        into the zygote's loop would be another zygote, with all of its rights."""
        sequence, copies = self._sequence, self._copies[:len(sandboxes)]
        end = len(self._calls)
        for number, (copy, sandbox) in enumerate(zip(copies, sandboxes)):
            following = copies[number + 1].start if number + 1 < len(copies) else end
            copy.aim(sequence, *sandbox)
            sequence.caller_goes_to(copy.fork, following)
        failure, at = None, end
        try:
            at = sequence()
        except kernel.Failed as error:
            failure, at = error, error.at
        for copy in copies:
            if copy.fork < at < copy.end:
                self._give_up(copy, failure)
            if at == copy.end:
                return None
        made = [copy for copy in copies if copy.fork < at]
        return [(sequence[copy.fork].result, copy.clone.pidfd) for copy in made], failure

    def serve(self):
        """In the child: never returns."""
        if self.supervised:
            supervisor.serve(_STREAM, self._confinement)
        direct.serve(self._confinement)

    def _give_up(self, copy, error):
        """In a child that could not be isolated."""
        answer = copy.answer if error.at <= copy.closed else _STREAM if self.supervised else confine.STATUS_FD
        try:
            frames.write(answer, "error", error=error.fields)
        finally:  # the daemon may have given this sandbox up
            os._exit(70)

    def _add_copy(self, order, code, null):
        copy = _Copy()
        copy.start = len(self._calls)
        # The zygote's own, before it forks.
        copy.networks = self._add("network", [kernel.setns_call(0, 0)] * 2)
        copy.clone = kernel.Cloner(FLAGS)
        copy.fork, = self._add("clone", [copy.clone.call], kernel.FORK)
        if self.supervised:
            self._add("session", [kernel.call("setsid")])  # to leave the zygote's low priority
        # SIG_IGN came from the zygote; a supervisor waits for its children.
        self._add("signals", [kernel.default_action_call(SIGCHLD)])
        # 0 is the writer itself. Through a v1 `tasks` file, and with a single
        # thread, this needs no grace period of the kernel.
        joins = self._add("join cgroup", [kernel.call("write", 0, b"0", 1)] * self._groups)
        # Once the groups are joined: the root of the cgroup namespace is the group
        # that the process is in then.
        self._add("cgroup namespace", [kernel.unshare_call(kernel.CLONE_NEWCGROUP)])
        copy.owned = self._add_places(order)
        copy.users, = self._add("user namespace", [kernel.setns_call(0, kernel.CLONE_NEWUSER)])
        self._add("ids", [kernel.call("setgroups", 0, 0), kernel.call("setresgid", 0, 0, 0), kernel.call("setresuid", 0, 0, 0)])
        own, copy.closed = self._add_descriptors(null)
        copy.descriptors = own + joins
        if not self.supervised:
            self._add_all(confine.offer_first(confine.FIRST_CLOSED))
        self._add("capabilities", kernel.keep_capabilities_calls(order["capabilities"]))
        self._add("no_new_privs", [kernel.prctl_call(kernel.PR_SET_NO_NEW_PRIVS, 1)])
        self._add("not dumpable", [kernel.prctl_call(kernel.PR_SET_DUMPABLE, 0)])
        if not self.supervised:
            # Only in one that will wait: another run's own writes are fewer. What
            # this call answers is never 0, so its caller goes where it is told.
            copy.choice, = self._add("write ahead", [kernel.call("getpid")], kernel.FORK)
            self._add("write ahead", self._writes, kernel.MAY_FAIL)
            copy.written = len(self._calls)
            self._add_all(direct.calls(self._confinement, code))
        copy.end, = self._add("ready", [kernel.HALT])
        return copy

    def _add(self, name, calls, after=kernel.GO_ON):
        return self._add_all(kernel.steps(name, calls, after))

    def _add_all(self, named):
        start = len(self._calls)
        self._calls += named
        return list(range(start, len(self._calls)))

    def _add_places(self, order):
        """Returns the entries that give mounts to the sandbox's ids, with these."""
        owned = []
        for source, target, kind, flags, data, owner in order["mounts"]:
            mount = kernel.mount_call(source, target, kind, flags, data)
            if owner is None:
                self._add("mount " + target, [mount])
                continue
            # The mount is the zygote's; its owner is the sandbox's.
            _, chown = self._add("mount " + target, [mount, kernel.call("fchownat", kernel.AT_FDCWD, target, 0, 0, 0)])
            owned.append((chown, *owner))
        # The image's root is the same in the zygote. What /proc would show is left out
        # of these by the daemon where it shows processes only.
        for path in filter(os.path.lexists, order["masked"]):
            if os.path.isdir(path):
                call = kernel.mount_call("tmpfs", path, "tmpfs", kernel.MS_RDONLY, "size=0")
            else:
                call = kernel.mount_call("/dev/null", path, "", kernel.MS_BIND, "")
            self._add("mask " + path, [call])
        for path in filter(os.path.lexists, order["readonly"]):
            self._add("close " + path, [
                kernel.mount_call(path, path, "", kernel.MS_BIND | kernel.MS_REC, ""),
                kernel.mount_call(path, path, "", kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY
                                  | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "")])
        self._add("host name", [kernel.hostname_call(order["hostname"])])
        return owned

    def _add_descriptors(self, null):
        """All others are closed. Sources lie above, so none is overwritten. Returns
        the entries for the sandbox's own, in order, and the last one."""
        if self.supervised:
            self._add("descriptors", [kernel.call("dup3", null, number, 0) for number in range(3)])
            own = self._add("descriptors", [kernel.call("dup3", 0, _STREAM, os.O_CLOEXEC)])
        else:
            own = self._add("descriptors", [
                kernel.call("dup3", 0, number, os.O_CLOEXEC if number > 2 else 0) for number in _DIRECT])
        closed, = self._add("descriptors", [
            kernel.close_from_call(_STREAM + 1 if self.supervised else confine.FIRST_CLOSED)])
        return own, closed


class _Copy:
    """Where things are in a profile's sequence, for one of the sandboxes that are
    forked at one go."""

    choice = None

    def aim(self, sequence, users, networks, ahead, fds):
        self.answer = fds[0]
        if self.choice is not None:
            sequence.caller_goes_to(self.choice, self.choice + 1 if ahead else self.written)
        for at, call in zip(self.networks, networks):
            sequence[at].a, sequence[at].b = call[1], call[2]
        for at, fd in zip(self.descriptors, fds):
            sequence[at].a = fd
        sequence[self.users].a = users.fd
        for at, uid, gid in self.owned:
            sequence[at].c, sequence[at].d = users.outside_uid[uid], users.outside_gid[gid]
