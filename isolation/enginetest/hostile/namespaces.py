# want: passed
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("pid", 0x20000000), ("net", 0x40000000),
                   ("ipc", 0x8000000), ("uts", 0x4000000), ("cgroup", 0x2000000), ("time", 0x80)):
    if libc.unshare(flag) == 0:
        print("LEAK: unshare", name)
for name in ("user", "mnt", "pid", "net"):
    try:
        fd = os.open("/proc/1/ns/" + name, os.O_RDONLY)
        if libc.setns(fd, 0) == 0:
            print("LEAK: setns", name)
    except OSError:
        pass
