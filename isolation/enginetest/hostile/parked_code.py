# want: passed
# The first process of the sandbox sleeps in code that it has inherited to this
# one. What is made of that code, and of all memory it could run from, must never
# run there: that process has no filter.
import ctypes, os, platform, signal, time
libc = ctypes.CDLL(None, use_errno=True)
try:
    maps = open("/proc/self/maps").read().splitlines()
except OSError:
    maps = []
told = (ctypes.c_long * 512)()  # 4 KiB, which the code below counts up in
here = ctypes.addressof(told)
code = b""
if platform.machine() == "x86_64":
    # movabs rax, here; again: lock inc qword [rax]; jmp again
    code = b"\x48\xb8" + here.to_bytes(8, "little") + b"\xf0\x48\xff\x00" + b"\xeb\xfa"
changed = 0
own = ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value
for line in maps:
    span, rights, offset, device, inode, *name = line.split(None, 5)
    if "x" not in rights or name and not name[0].startswith("/dev/zero"):
        continue  # of a file or the kernel's
    start, end = (int(part, 16) for part in span.split("-"))
    if start <= own < end:
        continue  # the interpreter's text, which we run in ourselves
    if rights[3] == "s":
        print("LEAK: code is shared:", line)
        continue
    if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 7) != 0:
        continue
    if code:
        # wherever it stands in the page, it comes here
        ctypes.memset(start, 0x90, end - start - 64)
        ctypes.memmove(end - 64, code, len(code))
    changed += 1
for number in range(1, 65):
    for target in (1, os.getppid()):
        try:
            os.kill(target, number)
            print("LEAK: signal %d to %d" % (number, target))
        except (OSError, ValueError):
            pass
time.sleep(0.3)
if told[0]:
    print("LEAK: it ran %d times" % told[0])
if time.process_time() > 5:
    print("LEAK: somebody spends our time")
print("changed", changed)
