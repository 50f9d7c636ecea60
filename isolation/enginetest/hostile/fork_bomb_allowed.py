# want: passed
# limits: {"processes": 8}
# layers: cgroup_pids
import os, time
made = 0
for _ in range(500):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
    except OSError:
        pass
if made > 8 + 31:  # unused threads count for processes too
    print("LEAK: %d processes" % made)
print("made some" if made >= 8 else "LEAK: fewer than allowed: %d" % made)
