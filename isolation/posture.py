# What a program sees of its own confinement, as one JSON object.
import ctypes
import json
import os
import resource
import socket


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError as error:
        return "error: %s" % error.strerror


def attempt(call):
    try:
        call()
    except OSError as error:
        return os.strerror(error.errno)
    except BaseException as error:
        return type(error).__name__
    return "allowed"


def entries(path):
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def shows(path):
    """Whether there is anything behind a name: what is masked is empty."""
    try:
        if os.path.isdir(path):
            return bool(os.listdir(path))
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return bool(os.read(fd, 1))
        finally:
            os.close(fd)
    except OSError:
        return False


def writable():
    found = []
    for base in ("/", "/bin", "/dev", "/dev/shm", "/etc", "/home", "/lib", "/mnt", "/opt", "/proc", "/root",
                 "/run", "/srv", "/sys", "/tmp", "/usr", "/usr/lib", "/var", "/var/tmp", os.getcwd()):
        try:
            name = os.path.join(base, "posture-probe")
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.unlink(name)
            found.append(base)
        except OSError:
            pass
    return sorted(set(found))


def mounts():
    out = []
    for line in read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        if not right:
            continue
        left, right = left.split(), right.split()
        out.append({"target": left[4], "options": left[5].split(","), "type": right[0], "super": right[2].split(",")})
    return out


def namespaces():
    """Some kernels (gVisor) have fewer kinds."""
    out = {}
    for name in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup"):
        try:
            out[name] = os.readlink("/proc/self/ns/" + name)
        except FileNotFoundError:
            pass
    return out


def descriptors():
    out = {}
    for fd in range(256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        try:
            link = os.readlink("/proc/self/fd/%d" % fd)
        except OSError:
            link = "?"
        out[fd] = link.split(":")[0]
    return out


def space(path):
    try:
        info = os.statvfs(path)
    except OSError:
        return None
    return {"bytes": info.f_blocks * info.f_frsize, "inodes": info.f_files}


libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line)
names = {n: getattr(resource, n) for n in dir(resource) if n.startswith("RLIMIT_") and n != "RLIMIT_OFILE"}
print(json.dumps({
    "status": {k: status.get(k, "") for k in (
        "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")},
    "no_new_privs": libc.prctl(39, 0, 0, 0, 0),
    "namespaces": namespaces(),
    "uid_map": read("/proc/self/uid_map").split(),
    "gid_map": read("/proc/self/gid_map").split(),
    "cgroup": sorted(line.split(":", 1)[1] for line in read("/proc/self/cgroup").splitlines()),
    "pid": os.getpid(), "ppid": os.getppid(), "sid_is_own": os.getsid(0) == os.getpid(),
    "hostname": os.uname().nodename, "cwd": os.getcwd(), "environment": dict(os.environ),
    "dumpable": libc.prctl(3, 0, 0, 0, 0),
    "mounts": mounts(), "descriptors": descriptors(), "writable": writable(),
    "root_entries": entries("/"), "proc_entries": [n for n in entries("/proc") if not n.isdigit() and shows("/proc/" + n)],
    "pids": sorted(int(n) for n in entries("/proc") if n.isdigit()),
    "rlimits": {n: list(resource.getrlimit(v)) for n, v in sorted(names.items())},
    "space": {p: space(p) for p in (os.getcwd(), "/tmp", "/dev/shm")},
    "attempts": {
        "fork": attempt(os.fork), "exec": attempt(lambda: os.execv("/bin/true", ["true"])),
        "setuid": attempt(lambda: os.setuid(0)),
        "unix socket": attempt(lambda: socket.socket(socket.AF_UNIX)),
        "inet socket": attempt(lambda: socket.socket(socket.AF_INET)),
        "connect": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))),
        "netlink socket": attempt(lambda: socket.socket(16, socket.SOCK_RAW)),
        "chroot": attempt(lambda: os.chroot("/")),
        "kill supervisor": attempt(lambda: os.kill(os.getppid(), 0)),
    },
}))
