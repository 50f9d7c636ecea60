# want: passed
# Nothing this process can do may reach the process before it: not to wake it,
# not to change it, not to look at it. Groups and sessions are tried too.
# layers: pid_ns distinct_uid
import ctypes, fcntl, os, platform, signal, socket, time
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"

def call(name, numbers, *args):
    """A system call that must fail."""
    words = [a if isinstance(a, ctypes.c_void_p) else ctypes.c_long(a) for a in args]
    words += [ctypes.c_long(0)] * (6 - len(words))
    if libc.syscall(ctypes.c_long(numbers[0 if x86 else 1]), *words) >= 0:
        print("LEAK: %s%r" % (name, args))

def refused(what, function, *args):
    try:
        function(*args)
    except (OSError, ValueError, OverflowError):
        return
    print("LEAK:", what, args)

info = (ctypes.c_int * 32)()
buffer = ctypes.create_string_buffer(64)
vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)
for first in sorted({1, os.getppid()} - {0, os.getpid()}):
    for number in (0, signal.SIGCONT, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGHUP, signal.SIGINT,
                   signal.SIGSTOP, signal.SIGUSR1, signal.SIGSEGV, signal.SIGTRAP, signal.SIGKILL, 34, 64):
        refused("kill", os.kill, first, number)
        call("tkill", (200, 130), first, number)
        call("tgkill", (234, 131), first, first, number)
        info[0], info[2] = number, -1  # SI_QUEUE
        call("rt_sigqueueinfo", (129, 138), first, number, ctypes.c_void_p(ctypes.addressof(info)))
        call("rt_tgsigqueueinfo", (297, 240), first, first, number, ctypes.c_void_p(ctypes.addressof(info)))
    fd = libc.syscall(ctypes.c_long(434), ctypes.c_long(first), ctypes.c_long(0))
    if fd >= 0:  # to hold on to it is no right over it
        for number in (signal.SIGCONT, signal.SIGKILL, signal.SIGURG):
            call("pidfd_send_signal", (424, 424), fd, number)
        call("pidfd_getfd", (438, 438), fd, 0)
        call("process_madvise", (440, 440), fd, ctypes.c_void_p(ctypes.addressof(vector)), 1, 4)
        call("process_mrelease", (448, 448), fd)
        call("setns", (308, 268), fd, 0x20000000)
        os.close(fd)
    for request in (16, 0x4206, 8, 0x4207):  # ATTACH, SEIZE, KILL, INTERRUPT
        call("ptrace", (101, 117), request, first)
    for name, numbers in (("process_vm_readv", (310, 270)), ("process_vm_writev", (311, 271))):
        call(name, numbers, first, ctypes.c_void_p(ctypes.addressof(vector)), 1, ctypes.c_void_p(ctypes.addressof(vector)), 1)
    call("kcmp", (312, 272), os.getpid(), first, 1)
    call("get_robust_list", (274, 100), first, ctypes.c_void_p(ctypes.addressof(buffer)), ctypes.c_void_p(ctypes.addressof(buffer)))
    call("migrate_pages", (256, 238), first, 1, ctypes.c_void_p(ctypes.addressof(buffer)), ctypes.c_void_p(ctypes.addressof(buffer)))
    call("prlimit64", (302, 261), first, 7, 0, ctypes.c_void_p(ctypes.addressof(buffer)))
    refused("sched_setaffinity", os.sched_setaffinity, first, {0})
    refused("setpriority", os.setpriority, os.PRIO_PROCESS, first, 19)
    refused("setpgid", os.setpgid, first, 0)
    refused("setpgid to it", os.setpgid, 0, first)
    for name in ("mem", "maps", "environ", "stat", "status", "syscall", "stack", "oom_score_adj", "ns/net", "fd/5", "root/etc"):
        for flags in (os.O_RDONLY, os.O_WRONLY):
            if first == 1 or name not in ("stat", "status"):
                refused("open", os.open, "/proc/%d/%s" % (first, name), flags)
    # By a descriptor that signals its owner.
    left, right = socket.socketpair()
    for number in (signal.SIGCONT, signal.SIGKILL, signal.SIGUSR1):
        try:
            fcntl.fcntl(left, fcntl.F_SETOWN, first)
            fcntl.fcntl(left, 10, number)  # F_SETSIG
            fcntl.fcntl(left, fcntl.F_SETFL, fcntl.fcntl(left, fcntl.F_GETFL) | os.O_ASYNC)
            right.send(b"x")
        except (OSError, ValueError):
            pass
    # By a timer.
    event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 4, first)  # SIGEV_THREAD_ID
    timer = ctypes.c_int()
    call("timer_create", (222, 107), 1, ctypes.c_void_p(ctypes.addressof(event)), ctypes.c_void_p(ctypes.addressof(timer)))
refused("kill all", os.kill, -1, signal.SIGCONT)
refused("kill all", os.kill, -1, signal.SIGKILL)
for group in {os.getpgid(first) if first == 1 else 0 for first in {1, os.getppid()} if os.getpid() < 100} - {0, os.getpgrp()}:
    refused("killpg", os.killpg, group, signal.SIGCONT)
if os.getpgrp() != os.getpid() or os.getsid(0) != os.getpid():
    print("LEAK: a group or session that is shared")
# Its own group is itself.
met = []
signal.signal(signal.SIGUSR1, lambda *_: met.append(1))
os.kill(0, signal.SIGUSR1)
time.sleep(0.05)
print("met", len(met))
