# want: passed
# The filter refuses processes; the pids limit would hold the rest.
import os, threading
made = 0
for _ in range(200):
    try:
        if os.fork() == 0:
            os._exit(0)
        made += 1
    except OSError:
        pass
if made:
    print("LEAK: %d processes" % made)
