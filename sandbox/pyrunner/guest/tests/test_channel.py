import json
import os
import signal
import threading
import unittest

import tests  # noqa: F401
from sandboxd_guest import channel
from sandboxd_guest.channel import EXIT_CHANNEL_BROKEN, Channel


def _in_child(action):
    """Exit code of a child that does action."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.WEXITSTATUS(os.waitpid(pid, 0)[1])


class SendTest(unittest.TestCase):
    def setUp(self):
        self.read, self.write = os.pipe()
        self.channel = Channel(self.write, -1, "n\"once")

    def tearDown(self):
        os.close(self.read)
        os.close(self.write)

    def lines(self, size=1 << 16):
        return [json.loads(line) for line in os.read(self.read, size).splitlines()]

    def test_one_json_object_a_line(self):
        event = {"event": "failed", "site": None, "a": True, "b": False, "n": -12, "t": "é\n\"\\\udc00\U0001f600"}
        self.channel.send(event)
        self.channel.send({"event": "done"})
        self.assertEqual(self.lines(), [dict(event, nonce="n\"once"), {"event": "done", "nonce": "n\"once"}])

    def test_both_encoders_say_the_same(self):
        event = {"event": "a", "none": None, "yes": True, "no": False, "n": -1 << 70, "t": "\x7f\udcff\U0001f600/\\"}
        fast = channel._encoder()
        held, channel.make_encoder = channel.make_encoder, None
        try:
            slow = channel._encoder()
        finally:
            channel.make_encoder = held
        self.assertIsNot(type(fast), type(slow))
        for each in (event, {}, {"event": "done"}):
            self.assertEqual("".join(fast(each, 0)), "".join(slow(each, 0)))

    def test_refuses_what_is_no_event_value(self):
        for value in (1.5, [], {}, b"", type("Text", (str,), {})("x")):
            with self.assertRaises(TypeError):
                self.channel.send({"event": value})
        self.channel.send({"event": "done"})
        self.assertEqual([line["event"] for line in self.lines()], ["done"])

    def test_more_than_a_pipe_holds(self):
        text = "x" * (1 << 20)
        sender = threading.Thread(target=self.channel.send, args=({"event": text},))
        sender.start()
        took = b""
        while not took.endswith(b"\n"):
            took += os.read(self.read, 1 << 16)
        sender.join()
        self.assertEqual(json.loads(took)["event"], text)

    def test_lines_of_many_threads_stay_whole(self):
        def talk(number):
            for _ in range(20):
                self.channel.send({"event": str(number) * 9000})

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        took = b""
        while took.count(b"\n") < 80:
            took += os.read(self.read, 1 << 16)
        for thread in threads:
            thread.join()
        seen = [json.loads(line)["event"] for line in took.splitlines()]
        self.assertEqual(sorted(set(seen)), [str(number) * 9000 for number in range(4)])

    def test_signals_in_the_middle_of_a_line(self):
        """A handler that sends, and one that raises: no line is torn or lost."""
        class Stop(Exception):
            pass

        def send_too(*_):
            self.channel.send({"event": "handler"})

        def stop(*_):
            raise Stop

        for handler in (send_too, stop):
            before = signal.signal(signal.SIGALRM, handler)
            took = []

            def slow_reader():
                threading.Event().wait(0.2)
                while not b"".join(took).endswith(b'"last"}\n'):
                    took.append(os.read(self.read, 1 << 16))

            reader = threading.Thread(target=slow_reader)
            reader.start()
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                self.channel.send({"event": "long", "text": "y" * (1 << 19)})
            except Stop:
                pass
            self.channel.send({"event": "last"})
            reader.join()
            signal.signal(signal.SIGALRM, before)
            events = [json.loads(line)["event"] for line in b"".join(took).splitlines()]
            self.assertEqual(events, ["long", "handler", "last"] if handler is send_too else ["long", "last"])

    def test_broken_end_is_silent(self):
        def send():
            Channel(write, -1, "n").send({"event": "done"})

        read, write = os.pipe()
        os.close(read)
        self.assertEqual(_in_child(send), EXIT_CHANNEL_BROKEN)
        os.close(write)
        self.assertEqual(_in_child(send), EXIT_CHANNEL_BROKEN)

    def test_nothing_follows_the_last_event(self):
        for last in ("done", "exception"):
            channel = Channel(self.write, -1, "n")
            for name in ("loaded", last, "failed", "done", "exception"):
                channel.send({"event": name})
            self.assertEqual([line["event"] for line in self.lines()], ["loaded", last])

    def test_detached_channel_can_do_nothing(self):
        send, _ = self.channel.detach()
        with self.assertRaises(TypeError):
            self.channel.send({"event": "done"})
        send({"event": "done"})
        self.assertEqual(len(self.lines()), 1)


class ReceiveTest(unittest.TestCase):
    def exchange(self, *parts):
        read, write = os.pipe()

        def feed():
            for part in parts:
                os.write(write, part)
                threading.Event().wait(0.01)
            os.close(write)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            return Channel(-1, read, "n").receive_tests()
        finally:
            feeder.join()
            with self.assertRaises(OSError):
                os.fstat(read)  # closed, so that nobody reads more

    def test_text_in_pieces(self):
        text = "assert 'é\udc00'\r\n\x00" + "#" * 100000
        message = json.dumps({"tests": text}).encode("ascii")
        message = len(message).to_bytes(4, "big") + message
        self.assertEqual(self.exchange(message[:2], message[2:9], message[9:60000], message[60000:]), text)

    def test_end_too_early(self):
        for sent in (b"", b"\0\0", b"\0\0\0\x09{}"):
            read, write = os.pipe()
            os.write(write, sent)
            os.close(write)
            self.assertEqual(_in_child(Channel(-1, read, "n").receive_tests), EXIT_CHANNEL_BROKEN)
            os.close(read)
        self.assertEqual(_in_child(Channel(-1, 999, "n").receive_tests), EXIT_CHANNEL_BROKEN)


if __name__ == "__main__":
    unittest.main()
