# want: passed crashed
# The supervisor and its report must survive every signal the program can send.
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for target in (os.getppid(), 0, 1 if os.getpid() < 100 else os.getppid()):
    for number in (signal.SIGTERM, signal.SIGUSR1):
        try:
            os.kill(target, number)
        except OSError:
            pass
