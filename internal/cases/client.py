"""A client of the daemon's API over its Unix socket, for the runners here."""
import http.client
import json
import socket
import time


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Reply:
    """An answer: the HTTP status, the body as it came, and how long it took."""

    def __init__(self, status, content_type, body, seconds):
        self.status, self.content_type, self.body, self.seconds = status, content_type, body, seconds

    def json(self):
        """The body decoded strictly, or None."""
        try:
            return json.loads(self.body.decode("utf-8"))
        except ValueError:
            return None


class Client:
    def __init__(self, socket_path):
        self._path = socket_path

    def ask(self, method, path, body=None, timeout=60):
        """Sends one request. OSError means that nobody answered in time."""
        connection = _UnixConnection(self._path, timeout)
        begun = time.monotonic()
        try:
            # Lone surrogates and NUL go out as JSON escapes: judging them is the
            # daemon's business.
            data = None if body is None else json.dumps(body).encode("ascii")
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = connection.getresponse()
            text = answer.read()
            return Reply(answer.status, answer.getheader("Content-Type", ""), text, time.monotonic() - begun)
        except http.client.HTTPException as error:
            raise OSError("no HTTP answer: %r" % error) from error
        finally:
            connection.close()

    def alive(self):
        try:
            return self.ask("GET", "/healthz", timeout=10).status == 200
        except OSError:
            return False
