# want: passed
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in {1, os.getppid()} - {os.getpid()}:
    if libc.ptrace(16, pid, None, None) == 0:
        print("LEAK: attached to", pid)
    for name in ("mem", "environ", "maps", "root", "cwd", "exe", "fd/0", "fd/3"):
        path = "/proc/%d/%s" % (pid, name)
        try:
            os.close(os.open(path, os.O_RDONLY))
            print("LEAK: opened", path)
        except OSError:
            pass
        try:
            print("LEAK: link", path, os.readlink(path))
        except OSError:
            pass
