"""What the profile with processes and sockets opens, and what it keeps shut."""
import asyncio
import ctypes
import errno
import multiprocessing
import multiprocessing.shared_memory
import os
import socket
import subprocess
import sys
import threading

assert subprocess.run(["/bin/echo", "hi"], capture_output=True, text=True, check=True).stdout == "hi\n"
assert subprocess.run("exit 3", shell=True, start_new_session=True).returncode == 3
pid = os.fork()
if pid == 0:
    os._exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
pid = os.posix_spawn("/bin/true", ["true"], {})
assert os.waitpid(pid, 0)[1] == 0
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
block = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)  # starts a tracker process
block.buf[0] = 1
block.close()
block.unlink()


async def spawn():
    p = await asyncio.create_subprocess_exec("/bin/echo", "x", stdout=asyncio.subprocess.PIPE)
    return (await p.communicate())[0]


assert asyncio.run(spawn()) == b"x\n"

with socket.create_server(("127.0.0.1", 0)) as server:
    client = threading.Thread(target=lambda: socket.create_connection(server.getsockname()).close())
    client.start()
    server.accept()[0].close()
    client.join()
socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for family, kind, proto in [(40, 1, 0), (38, 5, 0), (16, 3, 0), (17, 3, 0), (15, 3, 2)]:
    try:
        socket.socket(family, kind, proto)
        raise AssertionError(family)
    except OSError as e:
        assert e.errno == errno.EAFNOSUPPORT, e
for kind, proto, want in [(3, 1, (errno.EPERM, errno.EPROTONOSUPPORT)), (1, 262, (errno.EPROTONOSUPPORT,))]:
    try:
        socket.socket(socket.AF_INET, kind, proto)
        raise AssertionError(kind)
    except OSError as e:
        assert e.errno in want, e
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000) == -1 and ctypes.get_errno() == errno.EPERM
print("all well on", sys.version.split()[0])
