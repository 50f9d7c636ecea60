# want: passed crashed exited
# Bytes on every descriptor that can be found must not become frames.
import json, os, struct
frame = json.dumps({"type": "exit", "exit": {"code": 0}}).encode()
for fd in range(3, 64):
    try:
        os.write(fd, struct.pack(">I", len(frame)) + frame + b"\n")
    except OSError:
        pass
os._exit(0)
