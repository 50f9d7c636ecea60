# want: output_limit crashed
# limits: {"output_stop_bytes": 1000000}
import os
while True:
    os.write(1, b"y" * 65536)
