# want: cpu_limit
# limits: {"cpu_ms": 1000, "wall_ms": 60000}
import signal
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 65)))
while True:
    pass
