"""Sequences of system calls, as they are made from Python; the machine code for
them is tried by the native engine's own tests."""

import errno
import os
import platform
import unittest

import tests  # noqa: F401
from sandboxd_guest import kernel

_NUMBERS = {
    "x86_64": {"getpid": 39, "close": 3, "dup3": 292, "clone3": 435, "prctl": 157},
    "aarch64": {"getpid": 172, "close": 57, "dup3": 24, "clone3": 435, "prctl": 167},
}


class SequenceTest(unittest.TestCase):
    def setUp(self):
        kernel.use_numbers(_NUMBERS[platform.machine()])

    def test_ends_where_it_is_to(self):
        sequence = kernel.Sequence(None, kernel.steps("who", [kernel.call("getpid")] * 3))
        self.assertEqual(sequence(), 3)

    def test_a_failure_names_its_step(self):
        named = kernel.steps("who", [kernel.call("getpid")]) + kernel.steps(
            "close", [kernel.call("close", 9999), kernel.call("close", 9998)])
        with self.assertRaises(kernel.Failed) as caught:
            kernel.Sequence(None, named)()
        self.assertEqual(caught.exception.at, 1)
        fields = caught.exception.fields
        self.assertEqual((fields["step"], fields["index"], fields["errno"]), ("close", 0, errno.EBADF))

    def test_what_may_fail_stops_nothing(self):
        named = kernel.steps("close", [kernel.call("close", 9999)], kernel.MAY_FAIL)
        named += kernel.steps("who", [kernel.call("getpid")])
        self.assertEqual(kernel.Sequence(None, named)(), 2)

    def test_arguments_are_filled_in_later(self):
        read, write = os.pipe()
        sequence = kernel.Sequence(None, kernel.steps("close", [kernel.call("close", 0), kernel.call("close", 0)]))
        for at, fd in enumerate((read, write)):
            sequence[at].a = fd
        sequence()
        for fd in (read, write):
            with self.assertRaises(OSError):
                os.fstat(fd)

    def test_a_fork_goes_on_in_both(self):
        read, write = os.pipe()
        clone = kernel.Cloner(0)
        named = kernel.steps("clone", [clone.call], kernel.FORK)
        child = kernel.steps("child", [kernel.call("close", read), kernel.HALT])
        caller = kernel.steps("caller", [kernel.call("close", write)])
        sequence = kernel.Sequence(None, named + child + caller)
        sequence.caller_goes_to(0, 3)
        at = sequence()
        if at == 2:
            os.write(write, b"child")
            os._exit(0)
        self.assertEqual(at, 4)
        self.assertEqual(os.read(read, 9), b"child")
        os.waitpid(sequence[0].result, 0)
        for fd in (read, clone.pidfd):
            os.close(fd)

    def test_a_call_without_a_number_is_refused(self):
        with self.assertRaises(OSError) as caught:
            kernel.call("no_such_call")
        self.assertEqual(caught.exception.errno, errno.ENOSYS)


if __name__ == "__main__":
    unittest.main()
