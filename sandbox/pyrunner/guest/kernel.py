"""The kernel's interface as the guest needs it, through ctypes.

A call is made in two steps: a *_call function makes a function and its
arguments ready, in the zygote as a rule, and do() or carry_out() makes the call.
What a child does not have to make, it does not have to copy.

No system call number is written here: the daemon sends those of this machine's
architecture (use_numbers). The other constants are the same on every
architecture Linux runs on; each names its header."""

import ctypes
import errno
import mmap
import os
import stat
from ctypes import get_errno
from os import close, open as open_fd

# PyDLL keeps the interpreter lock across the call, which costs less than to let
# it go and take it again; there is one thread. And clone3 must return in the
# child with the lock held.
_libc = ctypes.PyDLL(None, use_errno=True)
# Looked up now: the first look into a library costs more than the call, and in
# a forked child it would be the first each time.
_syscall, _prctl, _mount, _unshare, _setns = (
    _libc.syscall, _libc.prctl, _libc.mount, _libc.unshare, _libc.setns)
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
PR_CAPBSET_READ = 23
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
# linux/shm.h, linux/msg.h, linux/sem.h
_SHM_INFO, _MSG_INFO, _SEM_INFO = 14, 12, 19
# linux/landlock.h
_LANDLOCK_RULE_PATH_BENEATH = 1
_PATH = os.O_PATH | os.O_CLOEXEC


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


def do(call):
    """Makes a call that was made ready. OSError when it fails."""
    function, arguments = call
    result = function(*arguments)
    if result < 0:
        number = get_errno()
        raise OSError(number, os.strerror(number))
    return result


def steps(name, calls):
    """Gives calls the name of the setup step that they are."""
    return [(name, index) + call for index, call in enumerate(calls)]


def carry_out(named):
    """Makes calls in order; StepError with the step's name when one fails."""
    for name, index, function, arguments in named:
        if function(*arguments) < 0:
            number = get_errno()
            raise StepError(name, index, number, os.strerror(number))


# Arguments are plain numbers where they fit 31 bits: libffi widens them to
# registers, and they are smaller than ctypes' objects.


def syscall_call(name, *args):
    if name not in _numbers:
        raise OSError(errno.ENOSYS, name + ": no number for it on this architecture")
    return _syscall, (_numbers[name],) + args


def prctl_call(option, *args):
    return _prctl, (option,) + args + (0,) * (4 - len(args))


def mount_call(source, target, kind, flags, data):
    return _mount, (source.encode(), target.encode(), kind.encode(), flags, data.encode())


def unshare_call(flags):
    return _unshare, (flags,)


def setns_call(fd, kind):
    return _setns, (fd, kind)


class Objects:
    """Counts the System V objects of the ipc namespace that the caller is in."""

    def __init__(self):
        # *_INFO of shmctl(2), msgctl(2) and semctl(2), which fill structures of
        # ints: the count is where the manual pages say.
        shared, queues, sets = (ctypes.c_int * 32)(), (ctypes.c_int * 32)(), (ctypes.c_int * 32)()
        self._counts = (
            ((_libc.shmctl, (0, _SHM_INFO, ctypes.byref(shared))), shared, 0),
            ((_libc.msgctl, (0, _MSG_INFO, ctypes.byref(queues))), queues, 0),
            ((_libc.semctl, (0, 0, _SEM_INFO, ctypes.byref(sets))), sets, 7),
        )

    def exist(self):
        for call, info, place in self._counts:
            do(call)
            if info[place]:
                return True
        return False


def hostname_call(name):
    return _libc.sethostname, (name.encode(), len(name.encode()))


def close_from_call(first):
    """Closes every descriptor from first on: what is not listed is not leaked,
    whoever opened it."""
    return syscall_call("close_range", first, ctypes.c_uint(0xFFFFFFFF), 0)


class _CloneArgs(ctypes.Structure):
    # struct clone_args of linux/sched.h, as of Linux 5.7
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack",
        "stack_size", "tls", "set_tid", "set_tid_size", "cgroup")]


def _clone_args(flags):
    # libc keeps the thread's id in its own memory, where a raw clone leaves the
    # parent's: the kernel is told to store the child's at that address.
    tid = ctypes.c_void_p()
    do(prctl_call(PR_GET_TID_ADDRESS, ctypes.byref(tid)))
    return _CloneArgs(flags=flags | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, child_tid=tid.value, exit_signal=17)


class Cloner:
    """Forks with clone3(2). Calling it returns 0 in the child and the child's
    pid in the parent, which then has the child's descriptor in pidfd.

    Preconditions: one thread, which has called nothing of os.register_at_fork.
    The interpreter's own fork hooks are left out: they renew the locks of
    other threads, of which there are none, and forget these threads."""

    def __init__(self, flags):
        self._pidfd = ctypes.c_int(-1)
        args = _clone_args(flags | CLONE_PIDFD)
        args.pidfd = ctypes.addressof(self._pidfd)
        self._kept = args
        self._call = syscall_call("clone3", ctypes.byref(args), ctypes.sizeof(args))

    def __call__(self):
        return do(self._call)

    @property
    def pidfd(self):
        return self._pidfd.value


def load_code(code):
    """Makes a function of machine code (isolation/native/park.go); None of
    none. Called once, by the zygote: its children have it by inheritance."""
    if not code:
        return None
    # Private, which is not the module's default: a page shared with the children
    # would be the programs' to write, and the zygote's and others' to run.
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    do((_libc.mprotect, (ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC)))
    _kept.append(memory)
    return ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t)(address)


class Parter:
    """Parts the process in two with one memory. Calling it returns in the new
    one, while the caller, the first process of its pid namespace, sleeps in the
    kernel until it is killed. A second copy of the memory would cost as much as
    the first.

    The sleeper's memory is the program's in time, so it must not come back to
    run code: park, from load_code, calls clone3(2) and then sleeps by nothing
    but registers. Without it the kernel makes the caller wait, as in vfork(2),
    which ends with the new process; the daemon stops the sleeper in both cases.

    Preconditions: as for Cloner."""

    def __init__(self, park):
        args = self._kept = _clone_args(CLONE_VM if park else CLONE_VM | CLONE_VFORK)
        size = ctypes.sizeof(args)
        if park:
            self._function, self._arguments = park, (ctypes.addressof(args), size)
        else:
            self._function, self._arguments = syscall_call("clone3", ctypes.byref(args), size)

    def __call__(self):
        pid = self._function(*self._arguments)
        if pid < 0:
            number = get_errno() if pid == -1 else -pid  # park gives the kernel's own
            raise OSError(number, os.strerror(number))
        if pid > 0:
            os._exit(70)  # woken by somebody with the right to: not to be reached


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32),
                ("inheritable", ctypes.c_uint32)]


def keep_capabilities_calls(keep):
    """Drops every capability but those numbered in keep, from the bounding set
    and the ambient set too: nothing that is executed later can gain one."""
    calls = [prctl_call(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)]
    number = 0
    # EINVAL past the last capability
    while _prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0:
        calls.append(prctl_call(PR_CAPBSET_DROP, number))
        number += 1
    if number == 0:
        raise OSError(get_errno(), "read the bounding set")
    mask = sum(1 << n for n in keep)
    header = _CapHeader(_CAP_VERSION_3, 0)
    data = (_CapData * 2)()
    for half in (0, 1):
        data[half].effective = data[half].permitted = (mask >> (32 * half)) & 0xFFFFFFFF
    calls.append((_libc.capset, (ctypes.byref(header), ctypes.byref(data))))
    return calls


class _SockFprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def load_filter_call(program):
    """Installs a seccomp filter given as raw struct sock_filter bytes."""
    buffer = ctypes.create_string_buffer(program, len(program))
    _kept.append(buffer)
    prog = _SockFprog(len(program) // 8, ctypes.addressof(buffer))
    return prctl_call(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(prog))


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


class Paths:
    """Confines the thread with Landlock (landlock(7)). Rules for paths that do
    not exist when it is made are left out: they can only have granted
    something. The files themselves are looked up when it is called."""

    def __init__(self, ruleset):
        attr = _RulesetAttr(ruleset["handled_fs"], ruleset.get("handled_net", 0), ruleset.get("scoped", 0))
        size = _ruleset_size(ruleset["abi"])
        self._create = syscall_call("landlock_create_ruleset", ctypes.byref(attr), size, 0)
        self._rules = ctypes.c_int(-1)
        self._paths = []
        for rule in ruleset["rules"]:
            try:
                mode = os.stat(rule["path"]).st_mode
            except FileNotFoundError:
                continue
            access = rule["access"]
            if not stat.S_ISDIR(mode):
                access &= ruleset["file_mask"]  # others are refused with EINVAL
            beneath = _PathBeneath(access, -1)
            self._paths.append((rule["path"], beneath, syscall_call(
                "landlock_add_rule", self._rules, _LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(beneath), 0)))
        self._restrict = syscall_call("landlock_restrict_self", self._rules, 0)

    def __call__(self):
        rules = self._rules.value = do(self._create)
        for path, beneath, add in self._paths:
            beneath.parent_fd = parent = open_fd(path, _PATH)
            do(add)
            close(parent)
        do(self._restrict)
        close(rules)
