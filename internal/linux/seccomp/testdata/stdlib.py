"""Ordinary programs' ways with the standard library; no processes, no sockets."""
import asyncio
import bz2
import concurrent.futures
import ctypes
import datetime
import decimal
import errno
import hashlib
import json
import locale
import lzma
import mmap
import multiprocessing.pool
import os
import pathlib
import platform
import queue
import random
import resource
import select
import selectors
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import uuid
import zipfile


def refused(call, *args, error=PermissionError, **kwargs):
    try:
        call(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{call} was not refused")


def files(root):
    path = root / "a.txt"
    path.write_text("text")
    shutil.copy2(path, root / "b.txt")
    shutil.copytree(root, root / "tree", ignore=shutil.ignore_patterns("tree"))
    os.link(path, root / "hard")
    os.symlink(path, root / "soft")
    os.mkfifo(root / "fifo")
    os.utime(path, (10**9, 10**9))
    os.chmod(path, 0o600)
    os.replace(root / "b.txt", root / "c.txt")
    assert sorted(n for _, _, names in os.walk(root) for n in names)
    with tarfile.open(root / "t.tar.gz", "w:gz") as tar:
        tar.add(path, "a.txt")
    with tarfile.open(root / "t.tar.gz") as tar:
        tar.extractall(root / "out")
    with zipfile.ZipFile(root / "z.zip", "w", zipfile.ZIP_LZMA) as z:
        z.write(path, "a.txt")
    with tempfile.TemporaryFile() as f, mmap.mmap(-1, 4096) as m:
        f.write(b"x" * 100)
        f.truncate(10)
        f.flush()
        os.fsync(f.fileno())
        os.posix_fallocate(f.fileno(), 0, 4096)
        m[:4] = b"abcd"
    with tempfile.NamedTemporaryFile(dir=root) as f:
        assert os.stat(f.name).st_size == 0
    fd = os.memfd_create("m")
    os.write(fd, b"1")
    with open(path, "rb") as f:
        os.sendfile(fd, f.fileno(), 0, 4)
    os.set_inheritable(fd, True)
    os.dup2(fd, os.dup(fd))
    assert not os.isatty(fd)
    os.close(fd)
    shutil.rmtree(root / "tree")
    assert shutil.disk_usage(root).total


def memory_and_computing():
    assert hashlib.sha256(b"").hexdigest().startswith("e3b0")
    hashlib.scrypt(b"p", salt=b"s", n=2, r=1, p=1)
    decimal.getcontext().prec = 50
    assert str(decimal.Decimal(2).sqrt()).startswith("1.41421356")
    assert lzma.decompress(lzma.compress(b"x")) == bz2.decompress(bz2.compress(b"x"))
    random.seed()
    uuid.uuid4(), os.urandom(8), ssl.create_default_context()
    ctypes.CDLL(None).getpid()
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    json.dumps(platform.uname()._asdict())
    assert bytearray(64 << 20)
    datetime.datetime.now().astimezone()


def threads():
    results = queue.Queue()
    workers = [threading.Thread(target=results.put, args=(i,)) for i in range(16)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert results.qsize() == 16
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]
    with multiprocessing.pool.ThreadPool(2) as pool:
        assert pool.map(abs, [-1]) == [1]
    event = threading.Event()
    assert not event.wait(0.01)
    threading.stack_size(1 << 20)
    t = threading.Thread(target=time.sleep, args=(0.01,))
    t.start(), t.join()


def signals_and_time():
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    signal.raise_signal(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGALRM, lambda *_: seen.append(2))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(0.05)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    os.kill(os.getpid(), signal.SIGUSR2)
    assert signal.sigtimedwait([signal.SIGUSR2], 1).si_signo == signal.SIGUSR2
    assert seen == [1, 1, 2]
    time.monotonic(), time.process_time(), time.thread_time(), os.times()
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
    resource.getrusage(resource.RUSAGE_SELF)
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.nice(0), os.getloadavg(), os.getgroups(), os.getresuid(), os.setpgid(0, 0)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def waiting():
    r, w = os.pipe()
    poll = select.poll()
    poll.register(r, select.POLLIN)
    assert poll.poll(1) == []
    os.write(w, b"1")
    with selectors.DefaultSelector() as s:
        s.register(r, selectors.EVENT_READ)
        assert s.select(1)
    assert select.select([r], [], [], 1)[0]
    left, right = socket.socketpair()
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    left.sendall(b"hello")
    assert right.recv(5) == b"hello"
    socket.send_fds(left, [b"x"], [r])
    assert socket.recv_fds(right, 1, 1)[1]

    async def main():
        await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(10)))
        await asyncio.to_thread(time.sleep, 0.001)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)
        return 1

    assert asyncio.run(main()) == 1


def database(root):
    with sqlite3.connect(root / "db") as db:
        db.execute("pragma journal_mode=wal")
        db.execute("create table t(x)")
        db.executemany("insert into t values(?)", [(i,) for i in range(100)])
        assert db.execute("select sum(x) from t").fetchone() == (4950,)


def refusals(root):
    refused(os.fork)
    assert os.system("true") != 0
    refused(subprocess.run, ["/bin/true"])
    refused(os.posix_spawn, "/bin/true", ["true"], {})
    refused(os.execv, "/bin/true", ["true"])
    refused(socket.socket, socket.AF_INET)
    refused(socket.socket, socket.AF_UNIX)
    refused(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)
    refused(os.setuid, os.getuid())
    refused(os.chroot, "/")
    refused(os.mknod, root / "dev", 0o20600, os.makedev(1, 3))
    refused(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
    libc = ctypes.CDLL(None, use_errno=True)
    for name, args in {
        "ptrace": (0, 0, 0, 0), "unshare": (0x10000000,), "mount": (0, 0, 0, 0, 0), "personality": (0x40000,),
        "prctl": (4, 1, 0, 0, 0), "inotify_init": (), "shmget": (0, 4096, 0o600), "mq_open": (b"/q", 0o100, 0o600, 0),
    }.items():
        assert getattr(libc, name)(*args) == -1, name
        assert ctypes.get_errno() == errno.EPERM, (name, ctypes.get_errno())


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    files(folder)
    memory_and_computing()
    threads()
    signals_and_time()
    waiting()
    database(folder)
    refusals(folder)
print("all well on", sys.version.split()[0])
