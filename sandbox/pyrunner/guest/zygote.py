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
import signal
import socket
import sys

from sandboxd_guest import forkhooks

forkhooks.hold()  # before anything is imported that asks for a hook

from sandboxd_guest import isolate, kernel, networks

_MAX_ORDER = 256 << 10
_MAX_FDS = 16


def main(fd, config):
    kernel.use_numbers(config["numbers"])
    for group in config["groups"]:
        os.write(group, b"0")
        os.close(group)
    sys.path.extend(config["site_packages"])
    for name in config["preload"]:
        try:
            __import__(name)
        except ImportError:
            pass  # a module that the image lacks is missing to the program too
    after_fork = forkhooks.release()
    # Children are reaped by the kernel; the daemon watches them by pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control = socket.socket(fileno=fd)
    park = kernel.load_code(base64.b64decode(config["park"]))
    # What exists now stays shared with the children instead of being copied
    # when their collector walks it.
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"ready": True, "python": sys.version.split()[0]}).encode("ascii"))
    zygote = _Zygote(control, park, after_fork)
    while True:
        zygote.serve_one()


class _Zygote:
    def __init__(self, control, park, after_fork):
        self.control, self.park, self.after_fork = control, park, after_fork
        self.profiles = {}  # what orders have in common, by number
        self.networks = networks.Networks()

    def serve_one(self):
        message, fds = _receive(self.control)
        order = json.loads(message)
        try:
            if order["kind"] == "profile":
                self.profiles[order["profile"]] = order
            elif order["kind"] == "release":
                self.networks.release(order["network"])
            else:
                self.fork(order, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def fork(self, order, fds):
        answer = {"id": order["id"]}
        pidfd = -1
        try:
            network = self.networks.take()
            answer["network"] = network
            profile = self.profiles[order["profile"]]
            with kernel.step("clone"):
                wait, tell = os.pipe()
                self.networks.enter(network)
                try:
                    child = kernel.clone(isolate.FLAGS)
                except OSError:
                    self.networks.leave()
                    raise
            if child == 0:  # it stays in that network
                self.become_sandbox(profile, fds, wait, tell)
            self.networks.leave()
            answer["pid"], pidfd = child
            os.close(wait)
            _map_ids(child[0], order, tell)
        except kernel.StepError as error:
            answer["error"] = error.fields
        _answer(self.control, answer, [pidfd] if "error" not in answer else [])
        if pidfd >= 0:
            os.close(pidfd)


    def become_sandbox(self, profile, fds, wait, tell):
        """In the child: never returns, whatever happens. A child that came back
        into the loop would be another zygote, with all of its rights."""
        try:
            self.control.close()  # orders are not for it to take
            os.close(tell)
            for hook in self.after_fork:
                hook()
            if profile["supervised"]:
                forkhooks.restore()
            isolate.enter(profile, fds, wait, self.park)
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


def _answer(control, answer, fds):
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    control.sendmsg([json.dumps(answer).encode("ascii")], ancillary)


def _map_ids(pid, order, tell):
    """Writes the child's id maps and tells it; only a parent with capabilities
    over the zygote's namespace can map more than one id (user_namespaces(7))."""
    try:
        with kernel.step("id maps"):
            for name in ("gid_map", "uid_map"):
                fd = os.open("/proc/%d/%s" % (pid, name), os.O_WRONLY)
                try:
                    os.write(fd, order[name].encode("ascii"))
                finally:
                    os.close(fd)
            os.write(tell, b"1")
    finally:
        os.close(tell)
