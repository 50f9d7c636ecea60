# want: passed
# The function by which the first process parts itself, called once more.
import ctypes, platform
try:
    maps = open("/proc/self/maps").read().splitlines() if platform.machine() == "x86_64" else []
except OSError:
    maps = []
class Args(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")]
stack = ctypes.create_string_buffer(1 << 16)
for line in maps:
    span, rights, _, _, _, *name = line.split(None, 5)
    start = int(span.split("-")[0], 16)
    # mov eax, clone3; syscall
    if "x" not in rights or "r" not in rights or name and not name[0].startswith("/dev/zero"):
        continue
    if ctypes.string_at(start, 7) != b"\xb8\xb3\x01\x00\x00\x0f\x05":
        continue
    park = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t)(start)
    for flags in (0, 0x100, 0x100 | 0x4000, 0x100 | 0x8000, 0x10000000, 0x20000000, 0x50f00):
        for used in (0, 17):
            args = Args(flags=flags, exit_signal=used)
            result = park(ctypes.addressof(args), ctypes.sizeof(args))
            if result >= 0:
                print("LEAK: park with flags %#x gave %d" % (flags, result))
print("tried")
