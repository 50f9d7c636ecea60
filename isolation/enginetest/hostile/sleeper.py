# want: wall_limit
# limits: {"wall_ms": 500}
# stdout: before
import time
print("before")
time.sleep(600)
