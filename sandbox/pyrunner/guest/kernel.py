"""The kernel's interface as the guest needs it, through ctypes.

No system call number is written here: the daemon sends those of this machine's
architecture (use_numbers). The other constants are the same on every
architecture Linux runs on; each names its header."""

import ctypes
import errno
import mmap
import os
import stat

_libc = ctypes.CDLL(None, use_errno=True)
# PyDLL keeps the interpreter lock across the call: clone3 must return in the
# child with the lock held by the only thread there is.
_locked = ctypes.PyDLL(None, use_errno=True)
_numbers = {}
_kept = []  # memory that code runs from

# linux/sched.h
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_VM = 0x00000100
CLONE_VFORK = 0x00004000
CLONE_PIDFD = 0x00001000
CLONE_CHILD_SETTID = 0x01000000
CLONE_CHILD_CLEARTID = 0x00200000
# linux/mount.h
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_GET_TID_ADDRESS = 40
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
# linux/seccomp.h
SECCOMP_MODE_FILTER = 2
# linux/capability.h
_CAP_VERSION_3 = 0x20080522
# linux/landlock.h
_LANDLOCK_RULE_PATH_BENEATH = 1


class StepError(Exception):
    """A setup step that failed: its name, which one of its kind, the kernel's
    error number and a few words."""

    def __init__(self, step, index=0, number=0, message=""):
        super().__init__(step)
        self.fields = {"step": step, "index": index, "errno": number, "message": message}


class step:
    """Names what the block does, so that a failure in it says where it was."""

    def __init__(self, name, index=0):
        self.name, self.index = name, index

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None or isinstance(error, StepError) or not isinstance(error, Exception):
            return False
        number = getattr(error, "errno", 0) or 0
        raise StepError(self.name, self.index, number, "%s: %s" % (kind.__name__, error)) from None


def use_numbers(numbers):
    _numbers.update(numbers)


def _check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))
    return result


def syscall(name, *args, locked=False):
    if name not in _numbers:
        raise OSError(errno.ENOSYS, name + ": no number for it on this architecture")
    call = (_locked if locked else _libc).syscall
    return _check(call(ctypes.c_long(_numbers[name]), *args), name)


def prctl(option, *args):
    padded = [ctypes.c_ulong(a) for a in args] + [ctypes.c_ulong(0)] * (4 - len(args))
    return _check(_libc.prctl(ctypes.c_int(option), *padded), "prctl %d" % option)


def mount(source, target, kind, flags, data):
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    return _check(result, "mount %s on %s" % (kind, target))


def unshare(flags):
    return _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd, kind):
    return _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def close_from(first):
    """Closes every descriptor from first on: what is not listed is not leaked,
    whoever opened it."""
    syscall("close_range", ctypes.c_uint(first), ctypes.c_uint(0xFFFFFFFF), ctypes.c_uint(0))


class _CloneArgs(ctypes.Structure):
    # struct clone_args of linux/sched.h, as of Linux 5.7
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack",
        "stack_size", "tls", "set_tid", "set_tid_size", "cgroup")]


def clone(flags):
    """Forks with clone3(2): 0 in the child, else (pid, pidfd).

    Preconditions: one thread. libc keeps the thread's id in its own memory and
    a raw clone leaves the parent's there, so the kernel is told to store the
    child's at that address; the interpreter's own part is done by its fork
    hooks, as in os.fork."""
    pidfd = ctypes.c_int(-1)
    args = _clone_args(flags | CLONE_PIDFD)
    args.pidfd = ctypes.addressof(pidfd)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = -1
    try:
        pid = syscall("clone3", ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)), locked=True)
    finally:
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
        else:
            ctypes.pythonapi.PyOS_AfterFork_Parent()
    return 0 if pid == 0 else (pid, pidfd.value)


def _clone_args(flags):
    tid = ctypes.c_void_p()
    _check(_libc.prctl(ctypes.c_int(PR_GET_TID_ADDRESS), ctypes.byref(tid),
                       ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)), "prctl tid address")
    return _CloneArgs(flags=flags | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, child_tid=tid.value, exit_signal=17)


def load_code(code):
    """Makes a function of machine code (isolation/native/park.go); None of
    none. Called once, by the zygote: its children have it by inheritance."""
    if not code:
        return None
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _check(_libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE),
                          ctypes.c_int(mmap.PROT_READ | mmap.PROT_EXEC)), "mprotect")
    _kept.append(memory)
    return ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t)(address)


def part(park):
    """Parts the process in two with one memory: returns in the new one, while
    the caller, the first process of its pid namespace, sleeps in the kernel
    until it is killed. A second copy of the memory would cost as much as the
    first.

    The sleeper's memory is the program's in time, so it must not come back to
    run code: park, from load_code, calls clone3(2) and then sleeps by nothing
    but registers. Without it the kernel makes the caller wait, as in vfork(2),
    which ends with the new process; the daemon stops the sleeper in both cases.

    Preconditions: as for clone(). The interpreter's fork hooks have nothing to
    do: no memory is copied."""
    if park is None:
        args = _clone_args(CLONE_VM | CLONE_VFORK)
        pid = syscall("clone3", ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)), locked=True)
    else:
        args = _clone_args(CLONE_VM)
        pid = park(ctypes.addressof(args), ctypes.sizeof(args))
    if pid < 0:
        raise OSError(-pid, "clone3: %s" % os.strerror(-pid))
    if pid > 0:
        os._exit(70)  # let go by somebody with the right to: not to be reached


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32),
                ("inheritable", ctypes.c_uint32)]


def keep_capabilities(keep):
    """Drops every capability but those numbered in keep, from the bounding set
    and the ambient set too: nothing that is executed later can gain one."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    number = 0
    while _libc.prctl(ctypes.c_int(PR_CAPBSET_DROP), ctypes.c_ulong(number), ctypes.c_ulong(0),
                      ctypes.c_ulong(0), ctypes.c_ulong(0)) == 0:
        number += 1
    if number == 0 or ctypes.get_errno() != errno.EINVAL:  # EINVAL: past the last capability
        _check(-1, "drop the bounding set at %d" % number)
    mask = sum(1 << n for n in keep)
    header = _CapHeader(_CAP_VERSION_3, 0)
    data = (_CapData * 2)()
    for half in (0, 1):
        data[half].effective = data[half].permitted = (mask >> (32 * half)) & 0xFFFFFFFF
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")


class _SockFprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def load_filter(program):
    """Installs a seccomp filter given as raw struct sock_filter bytes."""
    buffer = ctypes.create_string_buffer(program, len(program))
    prog = _SockFprog(len(program) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(ctypes.c_int(PR_SET_SECCOMP), ctypes.c_ulong(SECCOMP_MODE_FILTER),
                       ctypes.byref(prog), ctypes.c_ulong(0), ctypes.c_ulong(0)), "seccomp")


class _RulesetAttr(ctypes.Structure):
    _fields_ = [("handled_access_fs", ctypes.c_uint64), ("handled_access_net", ctypes.c_uint64),
                ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


# Size of struct landlock_ruleset_attr that a kernel of the given ABI knows; a
# longer one is refused with E2BIG when the rest is not zero.
def _ruleset_size(abi):
    return 8 if abi < 4 else 16 if abi < 6 else 24


def restrict_paths(ruleset):
    """Confines the thread with Landlock (landlock(7)). Rules for paths that do
    not exist are left out: they can only have granted something."""
    attr = _RulesetAttr(ruleset["handled_fs"], ruleset.get("handled_net", 0), ruleset.get("scoped", 0))
    size = ctypes.c_size_t(_ruleset_size(ruleset["abi"]))
    rules = syscall("landlock_create_ruleset", ctypes.byref(attr), size, ctypes.c_uint32(0))
    try:
        for rule in ruleset["rules"]:
            try:
                parent = os.open(rule["path"], os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                access = rule["access"]
                if not stat.S_ISDIR(os.fstat(parent).st_mode):
                    access &= ruleset["file_mask"]  # others are refused with EINVAL
                beneath = _PathBeneath(access, parent)
                syscall("landlock_add_rule", ctypes.c_int(rules), ctypes.c_int(_LANDLOCK_RULE_PATH_BENEATH),
                        ctypes.byref(beneath), ctypes.c_uint32(0))
            finally:
                os.close(parent)
        syscall("landlock_restrict_self", ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)
