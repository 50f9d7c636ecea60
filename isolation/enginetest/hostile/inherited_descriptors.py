# want: passed
# Open are 0 to 4 and nothing else, each in one direction, and none of them leads
# on to somebody else.
import fcntl, os, socket, stat
READ, WRITE = os.O_RDONLY, os.O_WRONLY
directions = {1: WRITE, 2: WRITE, 3: WRITE, 4: READ}
for fd in range(4096):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        if fd < 5:
            print("LEAK: descriptor %d is closed" % fd)  # so that a file could take its place
        continue
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    if fd > 4:
        print("LEAK: descriptor", fd, oct(mode), os.readlink("/proc/self/fd/%d" % fd))
    elif fd and not stat.S_ISFIFO(mode):
        print("LEAK: descriptor %d is no pipe: %o" % (fd, mode))
    elif fd == 0 and not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        print("LEAK: standard input is", oct(mode))
    if fd in directions and flags & os.O_ACCMODE != directions[fd]:
        print("LEAK: descriptor %d has flags %o" % (fd, flags))
    if fd > 2 and not fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
        print("LEAK: descriptor %d stays open over exec" % fd)
    if flags & os.O_NONBLOCK or fcntl.fcntl(fd, fcntl.F_GETOWN):
        print("LEAK: descriptor %d is set up by somebody: %o" % (fd, flags))
try:
    listed = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    if [fd for fd in listed if fd > 5]:  # 5 is the listing itself
        print("LEAK: listed", listed)
except OSError:
    pass
# Their other ends stay with the daemon, where that is somebody else.
for fd, flags in () if os.getpid() > 100 else ((1, READ), (2, READ), (3, READ), (4, WRITE), (3, os.O_RDWR), (1, os.O_RDWR)):
    try:
        os.close(os.open("/proc/self/fd/%d" % fd, flags | os.O_NONBLOCK))
        print("LEAK: the other end of %d" % fd)
    except OSError:
        pass
# A socket among them would answer.
for fd in range(6):
    try:
        s = socket.socket(fileno=os.dup(fd))
        print("LEAK: socket", fd, s)
    except OSError:
        pass
