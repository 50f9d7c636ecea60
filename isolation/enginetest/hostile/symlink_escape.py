# want: passed
import os
for name, target in (("a", "/etc/shadow"), ("b", "/proc/1/root"), ("c", "../../../../etc/shadow"), ("d", "/proc/self/exe")):
    os.symlink(target, name)
    try:
        if name != "d" and open(name).read():
            print("LEAK: read through", target)
    except OSError:
        pass
