# want: passed
# layers: masked_proc
import os
for name in ("kcore", "keys", "kmsg", "sysrq-trigger", "timer_list", "slabinfo", "sys/kernel/core_pattern",
             "sys/kernel/hostname", "sys/vm/overcommit_memory", "kallsyms", "config.gz", "1/environ", "1/mem"):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            fd = os.open("/proc/" + name, flags)
        except OSError:
            continue
        if os.fstat(fd).st_rdev != os.makedev(1, 3):  # /dev/null is what runtimes mask files with
            print("LEAK: opened /proc/" + name)
        os.close(fd)
