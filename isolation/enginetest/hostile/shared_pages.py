# want: passed
# A page that is shared with whoever made this process, and can be written, is a
# way into its other children.
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
READ, WRITE, EXEC = 1, 2, 4
try:
    maps = open("/proc/self/maps").read().splitlines()
except OSError:
    maps = []  # where /proc is closed, addresses are not told
for line in maps:
    span, rights, _, _, _, *name = line.split(None, 5)
    if rights[3] != "s":
        continue
    start, end = (int(part, 16) for part in span.split("-"))
    for wanted in (READ | WRITE, READ | WRITE | EXEC):
        if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), wanted) == 0:
            print("LEAK: a shared page can be written:", line)
            break
