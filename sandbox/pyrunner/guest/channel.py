"""The program's end of the line to its supervisor.

Events go out, one JSON object a line; the tests' text comes in, once. After
user code has started, nothing here is looked up by name in a module or a
class: both directions are closures over captured functions, so that patching
os.write, json or this very module changes nothing.
"""

from _thread import RLock
from errno import EINTR
from json.decoder import JSONDecoder
from os import _exit, close, read, write

try:
    from _json import encode_basestring_ascii
except ImportError:  # an interpreter built without its C accelerators
    from json.encoder import py_encode_basestring_ascii as encode_basestring_ascii

EXIT_CHANNEL_BROKEN = 70
TESTS_BYTES_MAX = 256 << 20

# Taken from a decoder now: the C scanner keeps no tie to the class, which
# user code can patch to see the tests before they run.
_scan_json = JSONDecoder().scan_once


class Channel:
    """Channel(fd_out, fd_in, nonce) sends events and receives the tests."""

    __slots__ = ("_ends",)

    def __init__(self, fd_out, fd_in, nonce):
        self._ends = (_sender(fd_out, nonce), _receiver(fd_in))

    def send(self, event):
        self._ends[0](event)

    def receive_tests(self):
        return self._ends[1]()

    def detach(self):
        """Gives both ends away. The channel object, which frames below user
        code may still name, can send nothing afterwards."""
        ends, self._ends = self._ends, None
        return ends


def _sender(fd, nonce):
    encode = _encoder()
    head = '{"nonce":' + encode(nonce) + ","
    put, each, total, lock = write, map, sum, RLock()
    end_process, exit_code, broken = _exit, EXIT_CHANNEL_BROKEN, OSError
    pending, draining = [], [False]

    def send(event):
        pairs = [encode(key) + ":" + encode(value) for key, value in event.items()]
        line = (head + ",".join(pairs) + "}\n").encode("ascii")
        with lock:
            pending.append((line, []))
            if draining[0]:
                return  # a signal handler inside the loop below: it will send this too
            draining[0] = True
            try:
                while pending:
                    line, written = pending[0]
                    rest = line[total(written):]
                    if rest:
                        # Written and noted in one step, between which no signal
                        # handler can raise: what it leaves is sent next time,
                        # and no line is torn.
                        written.extend(each(put, (fd,), (rest,)))
                    else:
                        del pending[0]
            except broken:
                end_process(exit_code)
            finally:
                draining[0] = False

    return send


def _encoder():
    quote, kind_of, show_int = encode_basestring_ascii, type, int.__repr__
    text, whole, refuse = str, int, TypeError

    def encode(value):
        if kind_of(value) is text:
            return quote(value)
        if value is None:
            return "null"
        if value is True:
            return "true"
        if value is False:
            return "false"
        if kind_of(value) is whole:
            return show_int(value)
        raise refuse("no event value")

    return encode


def _receiver(fd):
    take, shut, end_process, scan = read, close, _exit, _scan_json
    size, number, smallest = len, int.from_bytes, min
    exit_code, broken, retry, limit = EXIT_CHANNEL_BROKEN, OSError, EINTR, TESTS_BYTES_MAX

    def read_exactly(count):
        chunks, missing = [], count
        while missing:
            try:
                chunk = take(fd, smallest(missing, 1 << 20))
            except broken as error:
                if error.errno == retry:
                    continue
                end_process(exit_code)
            if not chunk:
                end_process(exit_code)
            chunks.append(chunk)
            missing -= size(chunk)
        return b"".join(chunks)

    def receive_tests():
        length = number(read_exactly(4), "big")
        if length > limit:
            end_process(exit_code)
        message, _ = scan(read_exactly(length).decode("utf-8"), 0)
        shut(fd)
        return message["tests"]

    return receive_tests
