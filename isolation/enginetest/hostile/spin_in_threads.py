# want: cpu_limit
# limits: {"cpu_ms": 1000, "wall_ms": 60000}
import hashlib, threading, time
data = b"x" * (1 << 20)
def work():
    while True:
        hashlib.sha256(data).digest()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(60)
