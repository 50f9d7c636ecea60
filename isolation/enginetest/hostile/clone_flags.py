# want: passed
# Without leave to start processes there is no way to start one, whatever the
# call and its flags are.
import ctypes, os, platform, subprocess
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
buffer = ctypes.create_string_buffer(256)
SIGCHLD, VM, FS, FILES, SIGHAND, PIDFD, PTRACE, VFORK, PARENT, SYSVSEM, UNTRACED, THREAD = (
    17, 0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000, 0x40000, 0x800000, 0x10000)

def clone(*flags):
    if libc.syscall(ctypes.c_long(56 if x86 else 220), *[ctypes.c_long(word) for word in flags + (0,) * (6 - len(flags))]) >= 0:
        try:
            print("LEAK: clone", [hex(f) for f in flags], os.getpid(), flush=True)
        finally:
            os._exit(9)

for flags in (SIGCHLD, 0, SIGCHLD | PARENT, PARENT, VM | SIGCHLD, VM | VFORK | SIGCHLD, VM | PARENT | SIGCHLD,
              VM | SIGHAND | SIGCHLD, FILES | FS | SIGCHLD, PTRACE | SIGCHLD, UNTRACED | SIGCHLD, SYSVSEM | SIGCHLD,
              THREAD, THREAD | SIGHAND, VM | THREAD, VM | SIGHAND | THREAD | PARENT,
              1 << 32 | SIGCHLD, 1 << 33 | SIGCHLD):
    clone(flags)
clone(PIDFD | SIGCHLD, 0, ctypes.addressof(buffer))
for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    clone(bit | SIGCHLD)
    clone(bit | VM | SIGHAND | THREAD)
for numbers in ((435, 435), (57, -1), (58, -1), (59, 221), (322, 281)):  # clone3 fork vfork execve execveat
    if libc.syscall(ctypes.c_long(numbers[0 if x86 else 1]), *[ctypes.c_long(0)] * 6) >= 0:
        try:
            print("LEAK: call", numbers, flush=True)
        finally:
            os._exit(9)
fd = os.memfd_create("program")
os.write(fd, b"#!/usr/bin/python3\nprint('LEAK: a file in memory')\n")
for start in (lambda: os.fork(), lambda: os.forkpty(), lambda: os.posix_spawn("/usr/bin/python3", ["python3"], {}),
              lambda: os.execv("/usr/bin/python3", ["python3", "-c", "print('LEAK: exec')"]),
              lambda: os.execve(fd, ["x"], {}), lambda: os.execv("/proc/self/exe", ["python3", "-c", "print('LEAK: exe')"]),
              lambda: subprocess.run(["/usr/bin/python3", "-c", "print('LEAK: run')"]), lambda: os.popen("echo LEAK").read()):
    try:
        if start() == 0:
            os._exit(9)
        print("LEAK: started")
    except OSError:
        pass
if os.system("echo LEAK: shell") == 0:
    print("LEAK: system")
try:
    os.waitpid(-1, os.WNOHANG)
    print("LEAK: there is a child")
except ChildProcessError:
    pass
if os.getpid() < 100:
    seen = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    if seen != [os.getpid()]:
        print("LEAK: processes", seen)
