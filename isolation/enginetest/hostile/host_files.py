# want: passed
# layers: read_only_rootfs
import os

def hollow(name):
    """Whether it is a directory with nothing in it."""
    try:
        return not os.listdir(name)
    except OSError:
        return False

for name in ("/home", "/root", "/var", "/boot", "/srv", "/opt", "/sys", "/bin/sh", "/usr/bin/env", "/etc/shadow",
             "/etc/machine-id", "/etc/ssh", "/run", "/dev/sda", "/dev/vda", "/dev/mem", "/dev/kmsg"):
    if os.path.lexists(name) and not hollow(name):
        print("LEAK: there is", name)
try:
    os.open("/dev/tty", os.O_RDWR)  # a node may be there, a terminal not
    print("LEAK: there is a terminal")
except OSError:
    pass
for name in ("/x", "/usr/x", "/usr/lib/x", "/etc/x", "/dev/x", "/proc/x"):
    try:
        open(name, "w")
        print("LEAK: wrote", name)
    except OSError:
        pass
