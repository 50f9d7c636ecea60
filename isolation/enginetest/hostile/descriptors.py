# want: passed
# Only the three streams and the two pipes of the harness may be open.
import os, stat
for fd in range(512):
    try:
        kind = os.fstat(fd).st_mode
    except OSError:
        continue
    if stat.S_ISSOCK(kind) or stat.S_ISDIR(kind) or fd > 5:
        print("LEAK: descriptor", fd, oct(kind))
