# want: passed
# A descriptor of a namespace leads into it or up from it. None is open, and what
# /proc gives leads nowhere.
import ctypes, fcntl, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
names = ("user", "mnt", "pid", "pid_for_children", "net", "ipc", "uts", "cgroup", "time", "time_for_children")
for fd in range(256):
    try:
        if os.readlink("/proc/self/fd/%d" % fd).partition(":")[0] in names:
            print("LEAK: descriptor %d is %s" % (fd, os.readlink("/proc/self/fd/%d" % fd)))
    except OSError:
        pass
for place in ("/proc/self/ns/", "/proc/1/ns/", "/proc/self/task/%d/ns/" % os.getpid(), "/proc/thread-self/ns/"):
    for name in names:
        try:
            fd = os.open(place + name, os.O_RDONLY)
        except OSError:
            continue
        if place == "/proc/1/ns/":
            print("LEAK: opened", place + name)
        for kind in (0, 0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80):
            if libc.syscall(ctypes.c_long(308 if x86 else 268), ctypes.c_long(fd), ctypes.c_long(kind)) == 0:
                print("LEAK: setns", place + name, hex(kind))
        for request in (0xb701, 0xb702, 0xb704):  # owner, parent, owner's id (ioctl_nsfs(2))
            try:
                print("LEAK: %s answers %#x with %r" % (place + name, request, fcntl.ioctl(fd, request, b"\0" * 8)))
            except OSError:
                pass
        os.close(fd)
for flags in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80, 0x400, 0x200, 0x40000, 0):
    if libc.syscall(ctypes.c_long(272 if x86 else 97), ctypes.c_long(flags)) == 0:
        print("LEAK: unshare", hex(flags))
