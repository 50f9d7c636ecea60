# want: passed raised
import threading
stop, started = threading.Event(), 0
try:
    for _ in range(2000):
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
except (RuntimeError, MemoryError):
    pass
stop.set()
if started > 600:
    print("LEAK: %d threads" % started)
