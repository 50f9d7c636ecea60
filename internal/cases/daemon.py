"""A private daemon: its own socket, state and temporary directory."""
import os
import shutil
import subprocess
import tempfile
import time

from client import Client
from fixtures import Fixtures

START_SECONDS, STOP_SECONDS = 60, 30


class Daemon:
    """Runs sandboxd for as long as the with block, with every fixture around it."""

    def __init__(self, build, engine="", time_scale=1.0, config=""):
        """config: a file with more of a configuration."""
        self._binary = os.path.join(build, "sandboxd")
        self._config, self.scale = config_text(engine), time_scale
        if config:
            with open(config, encoding="utf-8") as file:
                self._config += file.read()
        self.pid = 0

    def __enter__(self):
        # Readable by all: the host file must be out of reach for better reasons
        # than its directory's mode.
        self._place = tempfile.mkdtemp(prefix="sandboxd-cases-")
        os.chmod(self._place, 0o755)
        self.directory = os.path.join(self._place, "daemon")
        os.makedirs(os.path.join(self.directory, "tmp"))
        socket_path = os.path.join(self.directory, "sandboxd.sock")
        self.fixtures = Fixtures(self._place, socket_path)
        self.client = Client(socket_path)
        self.cgroup_parents = set()
        try:
            self._start(socket_path)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, socket_path):
        config = os.path.join(self._place, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(self._config)
        argv = [self._binary, "--socket", socket_path, "--state-dir", os.path.join(self.directory, "state"), "--config", config]
        environment = {**os.environ, **self.fixtures.environment, "TMPDIR": os.path.join(self.directory, "tmp")}
        with open(os.path.join(self._place, "log"), "wb") as log:
            self._process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=subprocess.STDOUT, pass_fds=[self.fixtures.inherit()])
        self.pid = self._process.pid
        deadline = time.monotonic() + START_SECONDS * self.scale
        while not self.client.alive():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("sandboxd did not start:\n" + self.log()[-4000:])
            time.sleep(0.05)

    def alive(self):
        return self._process.poll() is None and self.client.alive()

    def log(self):
        with open(os.path.join(self._place, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def __exit__(self, *_):
        if self.pid:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS * self.scale)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.fixtures.close()
        shutil.rmtree(self._place, ignore_errors=True)


def config_text(engine):
    """The configuration of a daemon under test: the product's defaults, and what
    is off by default only where it is the one to be judged."""
    if engine == "process":
        return "[engines]\nallow_process = true\n"
    if engine in ("runc", "crun", "runsc"):
        return '[engine.oci]\nruntimes = ["%s"]\n' % engine
    return ""
