"""The pre-booted interpreter of one image, from which supervisors are forked.

It is the first process of its own pid namespace, so its end is the end of every
sandbox forked from it. It runs trusted code only, has one thread and never
reads anything that a run produced: orders come from the daemon over a socket
that no child keeps."""

import array
import base64
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import sys

from sandboxd_guest import arenas, forkhooks

forkhooks.hold()  # before anything is imported that asks for a hook

from sandboxd_guest import confine, isolate, kernel, networks, rehearsal, users, writes

_MAX_ORDER = 256 << 10
_MAX_FDS = 16 * isolate.MOST


def main(fd, config):
    kernel.use_numbers(config["numbers"])
    for group in config["groups"]:
        os.write(group, b"0")
        os.close(group)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # for the children
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a dozen for each live sandbox
    sys.path.extend(config["site_packages"])
    for name in config["preload"]:
        try:
            __import__(name)
        except ImportError:
            pass  # a module that the image lacks is missing to the program too
    for name in config["environment"]:
        os.environ.pop(name, None)  # ours alone
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("preload: one of these modules starts threads, which a fork does not copy: "
                 + ", ".join(config["preload"]))
    after_fork = forkhooks.release()
    # Children are reaped by the kernel; the daemon watches them by pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    interrupt = confine.interrupt_call()
    # Neither this process nor a sandbox's first one may handle a signal.
    kernel.do(kernel.default_action_call(signal.SIGINT))
    null = _fill()
    control = socket.socket(fileno=_above(fd))
    zygote = _Zygote(control, kernel.load_code(base64.b64decode(config["calls"] or "")), after_fork, null, interrupt)
    rehearsal.rehearse()
    zygote.settle()
    control.send(json.dumps({"ready": True, "python": sys.version.split()[0]}).encode("ascii"))
    while True:
        zygote.serve_one()


class _Zygote:
    def __init__(self, control, code, after_fork, null, interrupt):
        self.control, self.code, self.after_fork = control, code, after_fork
        self.null, self.interrupt = null, interrupt
        self.profiles = {}  # what orders have in common, by number
        self.networks = networks.Networks()
        self.users = {}  # users.Users by their maps
        self.writes = None  # writes.find's
        self.clone_user = kernel.Cloner(kernel.CLONE_NEWUSER)

    def settle(self):
        """What exists now stays shared with the children instead of being
        copied when their collector walks it."""
        gc.collect()
        gc.freeze()

    def serve_one(self):
        message, fds = _receive(self.control)
        order = json.loads(message)
        if order["kind"] == "profile":
            self.learn(order)
            return
        self.networks.release(order["released"])
        profile = self.profiles[order["profile"]]
        if profile.widen(len(order["sandboxes"])):
            self.settle()
        sandboxes, numbers, failure = self.provide(order["sandboxes"], fds)
        made = []
        if sandboxes:
            forked = profile.fork(sandboxes)
            if forked is None:
                self.become_sandbox(profile)
            made, stopped = forked
            failure = failure or stopped
        self.networks.leave()
        pidfds = [pidfd for _, pidfd in made]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", pidfds))] if made else []
        self.control.sendmsg([_answers(order["sandboxes"], made, numbers, failure)], rights)
        for fd in fds + pidfds:
            os.close(fd)

    def provide(self, wanted, fds):
        """What each sandbox needs, until there is a failure: what Profile.fork takes,
        the numbers of their networks, and the failure or None."""
        sandboxes, numbers, each = [], [], len(fds) // len(wanted)
        try:
            for at, one in enumerate(wanted):
                step = "network"
                number, calls = self.networks.take()
                numbers.append(number)
                step = "id maps"
                sandboxes.append((self.users_of(one), calls, one["ahead"], fds[at * each:(at + 1) * each]))
        except OSError as error:
            return sandboxes, numbers, kernel.StepError(step, 0, error.errno or 0, str(error))
        return sandboxes, numbers, None

    def learn(self, order):
        if self.writes is None:
            arenas.settle()
            self.settle()
            self.writes = writes.find(self.code)
        for number in order["forget"]:
            del self.profiles[number]
        self.profiles[order["profile"]] = isolate.Profile(order, self.code, self.null, self.interrupt, self.writes)
        self.settle()

    def users_of(self, order):
        maps = order["uid_map"], order["gid_map"]
        found = self.users.get(maps)
        if found is None:
            found = self.users[maps] = users.Users(order, self.clone_user)
        return found

    def become_sandbox(self, profile):
        """In the child: never returns, whatever happens."""
        try:
            for hook in self.after_fork:
                hook()
            if profile.supervised:
                forkhooks.restore()
            profile.serve()
        finally:
            os._exit(70)


def _answers(wanted, made, numbers, failure):
    """made: of the first ones of wanted; numbers: of the networks of some more."""
    answers = [b'{"id":%d,"pid":%d,"network":%d}' % (one["id"], pid, number)
               for one, (pid, _), number in zip(wanted, made, numbers)]
    numbers += [-1] * (len(wanted) - len(numbers))
    for one, number in list(zip(wanted, numbers))[len(made):]:
        fields = {"id": one["id"], "network": number, "error": failure.fields}
        answers.append(json.dumps(fields).encode("ascii"))
    return b"[" + b",".join(answers) + b"]"


def _fill():
    """Leaves none free of the descriptors that a sandbox has at fixed numbers:
    what comes later is moved there, and must not lie there. Returns /dev/null."""
    fd = 0
    while fd < isolate.LOWEST:
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    return fd


def _above(fd):
    """Moves a descriptor above these; its place is filled."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, isolate.LOWEST)
    os.close(fd)
    os.close(_fill())
    return moved


def _receive(control):
    """One order and its descriptors; at the end of the daemon, our own end."""
    space = socket.CMSG_LEN(_MAX_FDS * array.array("i").itemsize)
    message, ancillary, flags, _ = control.recvmsg(_MAX_ORDER, space, socket.MSG_CMSG_CLOEXEC)
    if not message or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        os._exit(0 if not message else 70)
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
    return message, list(fds)
