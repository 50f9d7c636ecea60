# want: passed
# What the host's own Landlock and ids keep, where there is no root of its own.
# layers: landlock
import os
for name in ("/etc/shadow", "/etc/passwd", "/root", "/home", "/var/log", "/proc/1/cmdline", "/sys/kernel"):
    try:
        data = os.listdir(name) if os.path.isdir(name) else open(name).read()
        if name != "/etc/passwd" or "daemon" in data:  # a made one has no such user
            print("LEAK: read", name)
    except OSError:
        pass
for name in ("/tmp/sandbox-leak", "/var/tmp/sandbox-leak", "/dev/shm/sandbox-leak", "/run/sandbox-leak"):
    try:
        open(name, "x").close()
        os.unlink(name)
        if os.getpid() > 100:  # the host's own
            print("LEAK: wrote", name)
    except OSError:
        pass
