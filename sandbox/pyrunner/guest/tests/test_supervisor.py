"""What the supervisor does where the kernel is another than Linux."""

import errno
import os
import select
import signal
import unittest
from unittest import mock

import tests  # noqa: F401
from sandboxd_guest import supervisor


def _absent(*_):
    raise OSError(errno.ENOSYS, "as the test says")


class EndNotice(unittest.TestCase):
    def setUp(self):
        before = signal.getsignal(signal.SIGCHLD)

        def restore():
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, before)

        self.addCleanup(restore)

    def _ended(self, notice, waiting, pid):
        """Waits as the supervisor does, for at most ten seconds."""
        poll = select.poll()
        poll.register(notice, select.POLLIN)
        for _ in range(100):
            for _ in poll.poll(100):
                facts = supervisor._told_end(notice, waiting, pid)
                if facts:
                    return os.WEXITSTATUS(facts[0])
        return None

    def _child(self, code, after=None):
        pid = os.fork()
        if pid == 0:
            if after is not None:
                os.read(after, 1)
            os._exit(code)
        return pid

    def test_by_descriptor(self):
        pid = self._child(3)
        self.assertEqual(self._ended(*supervisor._end_notice(pid), pid), 3)

    def test_without_descriptors(self):
        go, said = os.pipe()
        pid = self._child(4, go)
        with mock.patch("os.pidfd_open", _absent):
            notice, waiting = supervisor._end_notice(pid)
        os.write(said, b"x")
        self.assertEqual(self._ended(notice, waiting, pid), 4)

    def test_one_that_has_ended_before(self):
        pid = self._child(5)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with mock.patch("os.pidfd_open", _absent):
            notice, waiting = supervisor._end_notice(pid)
        self.assertEqual(self._ended(notice, waiting, pid), 5)

    def test_end_right_after_the_question(self):
        go, said = os.pipe()
        pid = self._child(6, go)
        with mock.patch("os.pidfd_open", _absent):
            notice, waiting = supervisor._end_notice(pid)

        def too_early(*_):
            os.write(said, b"x")
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return 0, 0, None

        with mock.patch("os.wait4", too_early):
            self.assertIsNone(supervisor._told_end(notice, waiting, pid))
        self.assertEqual(self._ended(notice, waiting, pid), 6)

    def test_pipes_without_modes(self):
        def refuse(*_):
            raise PermissionError(errno.EPERM, "as the test says")
        with mock.patch("os.fchmod", refuse):
            supervisor._let_open(0)
