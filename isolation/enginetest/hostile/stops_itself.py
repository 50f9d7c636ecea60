# want: wall_limit
# limits: {"wall_ms": 500}
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
print("LEAK: went on")
