"""The kernel's interface as the guest needs it, through ctypes.

A call is made in two steps: call() or a *_call function makes its number and
arguments ready, in the zygote as a rule, and do() or a Sequence makes the call.
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

# PyDLL keeps the interpreter lock across the call, which costs less than to let
# it go and take it again; there is one thread. And clone3 must return in the
# child with the lock held.
_libc = ctypes.PyDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype, _syscall.argtypes = ctypes.c_long, [ctypes.c_long] * 7
_WORD = (1 << 64) - 1
_FAILED = 1 << 63  # results from here on are negative
_numbers = {}
_kept = []  # what code lies in

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
# asm-generic/mman-common.h
_MADV_POPULATE_WRITE = 23
# struct sigaction and sigset_t as rt_sigaction(2) has them (asm-generic/signal.h)
_ACTION_BYTES, _MASK_BYTES = 32, 8
# linux/fcntl.h
AT_FDCWD = -100
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


class Ready(tuple):
    """A system call made ready: its number and six arguments."""

    memory = ()  # what they point to, which lives as long as the call


def call(name, *args):
    """Makes a system call ready. Arguments are numbers, descriptors among them,
    and what lies in memory: text, bytes and structures."""
    if name not in _numbers:
        raise OSError(errno.ENOSYS, name + ": no number for it on this architecture")
    memory = []
    ready = Ready([_numbers[name], *(_register(argument, memory) for argument in args), *(0,) * (6 - len(args))])
    ready.memory = memory
    return ready


def _register(argument, memory):
    if isinstance(argument, int):
        return argument
    if isinstance(argument, str):
        argument = argument.encode()
    if isinstance(argument, bytes):
        argument = ctypes.create_string_buffer(argument, len(argument) + 1)
    memory.append(argument)
    return ctypes.addressof(argument)


def do(ready):
    """Makes a call that was made ready. OSError when it fails."""
    result = _syscall(*ready)
    if result < 0:
        number = get_errno()
        raise OSError(number, os.strerror(number))
    return result


# What happens after a call of a sequence.
GO_ON = 0
PART = 1  # it returns twice: the new process goes on, the caller sleeps until it is killed
FORK = 2  # it returns twice: the new process goes on, the caller elsewhere (Sequence.caller_goes_to)
MAY_FAIL = 3  # it goes on all the same; for calls that return 0
HALT = Ready([-1] + [0] * 6)  # no call: the sequence ends here


def steps(name, calls, after=GO_ON):
    """Gives calls the name of the setup step that they are."""
    return [(name, index, ready, after) for index, ready in enumerate(calls)]


class _Entry(ctypes.Structure):
    # As the code in isolation/native/calls.go has it.
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "number", "a", "b", "c", "d", "e", "f", "after", "result")]


_SIZE = ctypes.sizeof(_Entry)


class Sequence:
    """Calls that are made one after another until one fails.

    With code (load_code) no Python runs between them, and nothing is written
    but the stack and the results of FORK: in a forked child each object that
    Python looks at is a page copied. Without, they are made one by one, and PART
    leaves the caller waiting in the kernel as vfork(2) does."""

    def __init__(self, code, named):
        self._code, self._named = code, named + steps("end", [HALT])
        self._entries = (_Entry * len(self._named))()
        for entry, (_, _, ready, after) in zip(self._entries, self._named):
            entry.number, entry.a, entry.b, entry.c, entry.d, entry.e, entry.f = (n & _WORD for n in ready)
            entry.after = after
        self._start = ctypes.addressof(self._entries)

    def __getitem__(self, at):
        """An entry, for arguments that change: a to f."""
        return self._entries[at]

    def caller_goes_to(self, fork, at):
        """Where the caller of a FORK goes on."""
        self._entries[fork].after = self._start + at * _SIZE

    def __call__(self, at=0):
        """Begins at an entry; returns at which HALT it ended. Failed when a call
        fails."""
        at = (self._code(self._start + at * _SIZE) - self._start) // _SIZE if self._code else self._one_by_one(at)
        name, index, ready, after = self._named[at]
        if ready is HALT:
            return at
        if after == PART and self._entries[at].result < _FAILED:
            os._exit(70)  # woken by somebody with the right to: not to be reached
        raise Failed(at, name, index, _WORD + 1 - self._entries[at].result)

    def _one_by_one(self, at):
        while True:
            entry, after = self._entries[at], self._named[at][3]
            if entry.number == _WORD:
                return at
            result = _syscall(entry.number, entry.a, entry.b, entry.c, entry.d, entry.e, entry.f)
            entry.result = -get_errno() & _WORD if result < 0 else result
            if result < 0 and after != MAY_FAIL or after == PART and result:
                return at
            at = (entry.after - self._start) // _SIZE if after == FORK and result else at + 1


class Failed(StepError):
    """at: which call of the sequence."""

    def __init__(self, at, name, index, number):
        super().__init__(name, index, number, os.strerror(number))
        self.at = at


def prctl_call(option, *args):
    return call("prctl", option, *args)


def mount_call(source, target, kind, flags, data):
    return call("mount", source, target, kind, flags, data)


def unshare_call(flags):
    return call("unshare", flags)


def setns_call(fd, kind):
    return call("setns", fd, kind)


def hostname_call(name):
    return call("sethostname", name, len(name.encode()))


def default_action_call(signal):
    """As signal(2) with SIG_DFL, behind the interpreter's back."""
    return call("rt_sigaction", signal, bytes(_ACTION_BYTES), 0, _MASK_BYTES)


def write_ahead_call(start, end):
    """Has the pages of this process's memory from start to end copied now that a
    write would copy: MADV_POPULATE_WRITE of madvise(2), Linux 5.14."""
    return call("madvise", start, end - start, _MADV_POPULATE_WRITE)


def present_action_call(signal):
    """What gives a signal the action that it has now: an interpreter's handler
    stays its own when others have changed what the kernel does."""
    action = ctypes.create_string_buffer(_ACTION_BYTES)
    do(call("rt_sigaction", signal, 0, action, _MASK_BYTES))
    return call("rt_sigaction", signal, action, 0, _MASK_BYTES)


def close_from_call(first):
    """Closes every descriptor from first on: what is not listed is not leaked,
    whoever opened it."""
    return call("close_range", first, 0x7FFFFFFF, 0)  # a signed number in gVisor


class _CloneArgs(ctypes.Structure):
    # struct clone_args of linux/sched.h, as of Linux 5.7
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack",
        "stack_size", "tls", "set_tid", "set_tid_size", "cgroup")]


def _clone_args(flags):
    # libc keeps the thread's id in its own memory, where a raw clone leaves the
    # parent's: the kernel is told to store the child's at that address.
    tid = ctypes.c_void_p()
    do(prctl_call(PR_GET_TID_ADDRESS, tid))
    return _CloneArgs(flags=flags | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, child_tid=tid.value, exit_signal=17)


class Cloner:
    """Forks with clone3(2), alone or as a part of a sequence. The new process's
    descriptor is in pidfd, in the caller.

    Preconditions: one thread, which has called nothing of os.register_at_fork.
    The interpreter's own fork hooks are left out: they renew the locks of
    other threads, of which there are none, and forget these threads."""

    def __init__(self, flags):
        self._pidfd = ctypes.c_int(-1)
        args = _clone_args(flags | CLONE_PIDFD)
        args.pidfd = ctypes.addressof(self._pidfd)
        self.call = call("clone3", args, ctypes.sizeof(args))

    def __call__(self):
        """0 in the child and its pid in the parent."""
        return do(self.call)

    @property
    def pidfd(self):
        return self._pidfd.value


def part_call(code):
    """The call for PART: parts the process in two with one memory, of which the
    caller, the first process of its pid namespace, sleeps from then on. A second
    copy of the memory would cost as much as the first.

    The sleeper's memory is the program's in time, so it must not come back to
    run code: it sleeps by nothing but registers. Without code the kernel makes
    the caller wait, as in vfork(2), which ends with the new process; the daemon
    stops the sleeper in both cases."""
    args = _clone_args(CLONE_VM if code else CLONE_VM | CLONE_VFORK)
    return call("clone3", args, ctypes.sizeof(args))


def load_code(code):
    """Makes a function of machine code (isolation/native/calls.go), for Sequence;
    None of none. Called once, by the zygote: its children have it by
    inheritance."""
    if not code:
        return None
    # Private, which is not the module's default: a page shared with the children
    # would be the programs' to write, and the zygote's and others' to run.
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    do(call("mprotect", address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC))
    _kept.append(memory)
    return ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(address)


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
    while _syscall(*prctl_call(PR_CAPBSET_READ, number)) >= 0:
        calls.append(prctl_call(PR_CAPBSET_DROP, number))
        number += 1
    if number == 0:
        raise OSError(get_errno(), "read the bounding set")
    mask = sum(1 << n for n in keep)
    header = _CapHeader(_CAP_VERSION_3, 0)
    data = (_CapData * 2)()
    for half in (0, 1):
        data[half].effective = data[half].permitted = (mask >> (32 * half)) & 0xFFFFFFFF
    calls.append(call("capset", header, data))
    return calls


class _SockFprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def load_filter_call(program):
    """Installs a seccomp filter given as raw struct sock_filter bytes."""
    buffer = ctypes.create_string_buffer(program, len(program))
    prog = _SockFprog(len(program) // 8, ctypes.addressof(buffer))
    ready = prctl_call(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, prog)
    ready.memory.append(buffer)
    return ready


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


def landlock_calls(ruleset, free):
    """Confines the thread with Landlock (landlock(7)). Rules for paths that do
    not exist now are left out: they can only have granted something. The files
    themselves are looked up when the calls are made.

    free: the lowest descriptor that is not in use then, nor any above it. The
    kernel gives the lowest there is."""
    rules, beneath = free, free + 1
    attr = _RulesetAttr(ruleset["handled_fs"], ruleset.get("handled_net", 0), ruleset.get("scoped", 0))
    calls = [call("landlock_create_ruleset", attr, _ruleset_size(ruleset["abi"]), 0)]
    for rule in ruleset["rules"]:
        try:
            mode = os.stat(rule["path"]).st_mode
        except FileNotFoundError:
            continue
        access = rule["access"]
        if not stat.S_ISDIR(mode):
            access &= ruleset["file_mask"]  # others are refused with EINVAL
        calls += [
            call("openat", AT_FDCWD, rule["path"], _PATH, 0),
            call("landlock_add_rule", rules, _LANDLOCK_RULE_PATH_BENEATH, _PathBeneath(access, beneath), 0),
            call("close", beneath),
        ]
    return calls + [call("landlock_restrict_self", rules, 0), call("close", rules)]
