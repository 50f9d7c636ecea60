# want: passed
# The environment is the five variables of a sandbox, in Python and in the memory
# of the process: nothing of who started it.
import ctypes, os
allowed = {"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR"}
if not set(os.environ) <= allowed:
    print("LEAK: variables", sorted(set(os.environ) - allowed))
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
place, names = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ"), set()
for i in range(1000):
    if not place[i]:
        break
    name, _, value = place[i].decode().partition("=")
    names.add(name)
    if os.environ.get(name) != value:
        print("LEAK: Python does not know", place[i])
if not names <= allowed:
    print("LEAK: variables in C", sorted(names - allowed))
try:
    data = open("/proc/self/environ", "rb").read()
    if not {part.partition(b"=")[0].decode() for part in data.split(b"\0") if part} <= allowed:
        print("LEAK: in /proc", data)
except OSError:
    pass
# The place where the kernel put it: the last strings on the stack.
try:
    top = [line for line in open("/proc/self/maps") if line.rstrip().endswith("[stack]")]
except OSError:
    top = []
for line in top:
    start, end = (int(part, 16) for part in line.split()[0].split("-"))
    words = ctypes.string_at(max(start, end - 8192), min(8192, end - start))
    for mark in (b"SANDBOXD", b"SUDO_", b"LOGNAME", b"/root", b"GOPATH", b"INVOCATION_ID"):
        if mark in words:
            print("LEAK: %r on the stack" % mark)
