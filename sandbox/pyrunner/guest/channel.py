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
    from _json import encode_basestring_ascii, make_encoder
except ImportError:  # an interpreter built without its C accelerators
    from json.encoder import py_encode_basestring_ascii as encode_basestring_ascii

    make_encoder = None

EXIT_CHANNEL_BROKEN = 70
TESTS_BYTES_MAX = 256 << 20

# Taken from a decoder now: the C scanner keeps no tie to the class, which
# user code can patch to see the tests before they run.
_scan_json = JSONDecoder().scan_once


_errno_of = OSError.__dict__["errno"].__get__
_traceback_of = BaseException.__dict__["__traceback__"].__get__


class Channel:
    """Channel(fd_out, fd_in, nonce) sends events and receives the tests."""

    __slots__ = ("_ends",)

    def __init__(self, fd_out, fd_in, nonce):
        place, send, receive_tests = _made_ahead.pop() if _made_ahead else _line()
        place += fd_out, '{"nonce":' + encode_basestring_ascii(nonce) + ",", fd_in
        self._ends = send, receive_tests

    def send(self, event):
        self._ends[0](event)

    def receive_tests(self):
        return self._ends[1]()

    def detach(self):
        """Gives both ends away. The channel object, which frames below user
        code may still name, can send nothing afterwards."""
        ends, self._ends = self._ends, None
        return ends


def _line():
    """Both ends, and the list that is to tell them the descriptor to write to,
    how each line begins, the descriptor to read from."""
    place = []
    return place, _sender(place), _receiver(place)


def _sender(place):
    encode, plain = _encoder(), frozenset((str, int, bool, type(None))).issuperset
    kind_of, refuse = type, TypeError
    put, each, total, lock = write, map, sum, RLock()
    end_process, exit_code, broken = _exit, EXIT_CHANNEL_BROKEN, OSError
    pending, draining, ended, last_events = [], [False], [False], ("done", "exception")
    errno_of, traceback_of = _errno_of, _traceback_of

    def send(event):
        fd, head, _ = place
        if ended[0]:
            event = {}  # nothing may follow the last event, which can be unsent yet
        if not plain(each(kind_of, event.values())):
            raise refuse("no event value")
        line = (head + "".join(encode(event, 0))[1:] + "\n").encode("ascii")
        with lock:
            if event:
                pending.append((line, []))
                ended[0] = event.get("event") in last_events
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
            except broken as error:
                # A signal handler of the program can raise such an error too; it
                # has a frame of its own.
                if traceback_of(error).tb_next is None and errno_of(error):
                    end_process(exit_code)
                raise
            finally:
                draining[0] = False

    return send


def _encoder():
    """Called with an event of plain values and 0; gives the pieces of its JSON."""
    quote = encode_basestring_ascii
    if make_encoder is not None:
        return make_encoder(None, None, quote, None, ":", ",", False, False, False)
    kind_of, text, whole, show_int = type, str, int, int.__repr__
    words = {None: "null", True: "true", False: "false"}

    def encode(event, _):
        pairs = []
        for key, value in event.items():
            kind = kind_of(value)
            said = quote(value) if kind is text else show_int(value) if kind is whole else words[value]
            pairs.append(quote(key) + ":" + said)
        return "{", ",".join(pairs), "}"

    return encode


def _receiver(place):
    take, shut, end_process, scan = read, close, _exit, _scan_json
    size, number, smallest = len, int.from_bytes, min
    errno_of, traceback_of = _errno_of, _traceback_of
    exit_code, broken, retry, limit = EXIT_CHANNEL_BROKEN, OSError, EINTR, TESTS_BYTES_MAX

    def receive_tests():
        fd, chunks, missing, parts = place[2], [], 4, 1
        while missing:
            try:
                chunk = take(fd, smallest(missing, 1 << 20))
            except broken as error:
                if traceback_of(error).tb_next is not None or not errno_of(error):
                    raise  # from a signal handler
                if errno_of(error) == retry:
                    continue
                end_process(exit_code)
            if not chunk:
                end_process(exit_code)
            chunks.append(chunk)
            missing -= size(chunk)
            if not missing and parts:  # it was the length
                missing, parts = number(b"".join(chunks), "big"), 0
                chunks.clear()
                if missing > limit:
                    end_process(exit_code)
        message, _ = scan(b"".join(chunks).decode("utf-8"), 0)
        shut(fd)
        return message["tests"]

    return receive_tests


_made_ahead = []


def make_ahead():
    """Makes the two ends of the one channel that a program needs. In a forked
    child, every object made is pages copied."""
    _made_ahead[:] = [_line()]


make_ahead()
