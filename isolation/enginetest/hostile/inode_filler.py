# want: passed
# layers: private_tmp
import os
for place in (".", "/tmp", "/dev/shm"):
    made = 0
    try:
        for n in range(20000):
            os.close(os.open("%s/i%d" % (place, n), os.O_CREAT | os.O_WRONLY))
            made += 1
    except OSError:
        pass
    if made > 4096:
        print("LEAK: %d files in %s" % (made, place))
