"""What stands around the daemon for programs to find if they get out: a secret,
a file that holds it, listeners that nothing may reach."""
import os
import secrets
import socket
import threading

# The descriptor of a canary file that the daemon inherits: higher than any of
# its own will be, below the usual limit of 1024.
INHERITED_FD = 923


class Fixtures:
    def __init__(self, directory, daemon_socket):
        self.canary = "hc" + secrets.token_hex(8)
        self.host_file = os.path.join(directory, "host-file")
        with open(self.host_file, "w", encoding="utf-8") as file:
            file.write("secret " + self.canary + "\n")
        os.chmod(self.host_file, 0o644)
        self._touches = 0
        self._sockets = []
        abstract = "h-abs-" + secrets.token_hex(6)
        self.tokens = {
            "CANARY": self.canary,
            "HOSTFILE": self.host_file,
            "HOSTNAME": socket.gethostname(),
            "HOST_IP": "127.0.0.1",
            "ABSTRACT": abstract,
            "DAEMON_SOCKET": daemon_socket,
            "TCP_PORT": self._listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))[1],
            "UDP_PORT": self._listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))[1],
        }
        self._listen(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract)
        self.environment = {
            "CASES_CANARY": self.canary,
            "PYTHONPATH": os.path.join(directory, "python-" + self.canary),
            "LD_LIBRARY_PATH": os.path.join(directory, "lib-" + self.canary),
        }

    def _listen(self, family, kind, address):
        listener = socket.socket(family, kind)
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(5)
        self._sockets.append(listener)
        threading.Thread(target=self._serve, args=(listener, kind), daemon=True).start()
        return listener.getsockname()

    def _serve(self, listener, kind):
        while True:
            try:
                if kind == socket.SOCK_STREAM:
                    listener.accept()[0].close()
                else:
                    listener.recvfrom(100)
            except OSError:
                return
            self._touches += 1

    def inherit(self):
        """Opens the canary file at the high number, for the daemon to inherit."""
        opened = os.open(self.host_file, os.O_RDONLY)
        os.dup2(opened, INHERITED_FD, inheritable=True)
        if opened != INHERITED_FD:
            os.close(opened)
        return INHERITED_FD

    def snapshot(self):
        """Compare two of these to see what happened in between."""
        stat = os.stat(self.host_file)
        return self._touches, (stat.st_mtime_ns, stat.st_size, stat.st_nlink)

    def close(self):
        for listener in self._sockets:
            listener.close()
