"""The pre-booted interpreter of one image, from which supervisors are forked.

It is the first process of its own pid namespace, so its end is the end of every
sandbox forked from it. It runs trusted code only, has one thread and never
reads anything that a run produced: orders come from the daemon over a socket
that no child keeps."""

import array
import base64
import gc
import json
import os
import resource
import signal
import socket
import sys

from sandboxd_guest import arenas, forkhooks

forkhooks.hold()  # before anything is imported that asks for a hook

from sandboxd_guest import isolate, kernel, networks, rehearsal

_MAX_ORDER = 256 << 10
_MAX_FDS = 16


def main(fd, config):
    kernel.use_numbers(config["numbers"])
    for group in config["groups"]:
        os.write(group, b"0")
        os.close(group)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # for the children
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
    # A sandbox's first process must handle no signal; the program's sets its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    control = socket.socket(fileno=fd)
    park = kernel.load_code(base64.b64decode(config["park"]))
    zygote = _Zygote(control, kernel.Parter(park), after_fork)
    rehearsal.rehearse()
    zygote.settle()
    control.send(json.dumps({"ready": True, "python": sys.version.split()[0]}).encode("ascii"))
    while True:
        zygote.serve_one()


class _Zygote:
    def __init__(self, control, part, after_fork):
        self.control, self.part, self.after_fork = control, part, after_fork
        self.profiles = {}  # what orders have in common, by number
        self.networks = networks.Networks()
        self.clone = kernel.Cloner(isolate.FLAGS)

    def settle(self):
        """What exists now stays shared with the children instead of being
        copied when their collector walks it."""
        gc.collect()
        gc.freeze()

    def serve_one(self):
        message, fds = _receive(self.control)
        order = json.loads(message)
        if order["kind"] == "profile":
            self.profiles[order["profile"]] = isolate.Profile(order, self.part)
            self.settle()
            if len(self.profiles) == 1:
                arenas.settle()
            return
        self.networks.release(order["released"])
        step, network, opened = "network", -1, fds
        try:
            network = self.networks.enter()
            step = "clone"
            wait, tell = os.pipe()
            opened += (wait, tell)
            pid = self.clone()
            if pid == 0:  # it stays in that network
                self.become_sandbox(self.profiles[order["profile"]], fds, wait, tell)
            opened.append(self.clone.pidfd)
            step = "id maps"
            _map_ids(pid, order, tell)
            answer = b'{"id":%d,"pid":%d,"network":%d}' % (order["id"], pid, network)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", opened[-1:]))]
        except OSError as error:
            fields = kernel.StepError(step, 0, error.errno or 0, str(error)).fields
            answer = json.dumps({"id": order["id"], "network": network, "error": fields}).encode("ascii")
            rights = []
        self.networks.leave()
        self.control.sendmsg([answer], rights)
        for fd in opened:
            os.close(fd)

    def become_sandbox(self, profile, fds, wait, tell):
        """In the child: never returns, whatever happens. A child that came back
        into the loop would be another zygote, with all of its rights."""
        try:
            os.close(tell)
            for hook in self.after_fork:
                hook()
            if profile.supervised:
                forkhooks.restore()
            profile.enter(fds[:-2], wait)
        finally:
            os._exit(70)


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


def _map_ids(pid, order, tell):
    """Writes the child's id maps and tells it; only a parent with capabilities
    over the zygote's namespace can map more than one id (user_namespaces(7))."""
    for name in ("gid_map", "uid_map"):
        fd = os.open("/proc/%d/%s" % (pid, name), os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, order[name].encode("ascii"))
        os.close(fd)
    os.write(tell, b"1")
