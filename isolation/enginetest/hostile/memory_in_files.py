# want: memory_limit passed raised
# limits: {"memory_bytes": 67108864, "open_files": 256, "file_bytes": 268435456}
# layers: cgroup_memory
# Pages of a memfd are no address space; only the cgroup counts them.
import os
got = 0
try:
    for _ in range(100):
        fd = os.memfd_create("x")
        for _ in range(16):
            got += os.write(fd, b"y" * (1 << 20))
except OSError:
    pass
if got > 256 << 20:
    print("LEAK: %d bytes" % got)
