# want: passed memory_limit
# layers: private_tmp
import os
for place, cap in ((".", 17 << 20), ("/tmp", 17 << 20), ("/dev/shm", 17 << 20)):
    wrote = 0
    try:
        for n in range(64):
            with open("%s/fill-%d" % (place, n), "wb") as file:
                for _ in range(8):
                    wrote += file.write(b"z" * (1 << 20))
    except OSError:
        pass
    if wrote > cap:
        print("LEAK: %d bytes in %s" % (wrote, place))
