# want: passed
import os
line = b"y" * 65535 + b"\n"
for _ in range(2000):
    os.write(1, line)
