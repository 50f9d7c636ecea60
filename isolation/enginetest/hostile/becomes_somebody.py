# want: passed
import os
for call in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(0), lambda: os.setgroups([0]),
             lambda: os.chroot("/"), lambda: os.nice(-5), lambda: os.mknod("node", 0o20666, os.makedev(1, 1)),
             lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))):
    try:
        call()
        print("LEAK: allowed")
    except OSError:
        pass
