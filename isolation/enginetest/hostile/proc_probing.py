# want: passed
# layers: masked_proc
import os
for name in ("kcore", "keys", "kmsg", "sysrq-trigger", "timer_list", "slabinfo", "sys/kernel/core_pattern",
             "sys/kernel/hostname", "sys/vm/overcommit_memory", "kallsyms", "config.gz", "1/environ", "1/mem"):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open("/proc/" + name, flags))
            print("LEAK: opened /proc/" + name)
        except OSError:
            pass
