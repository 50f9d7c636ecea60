"""The frame protocol's guest side: four bytes of length, most significant
first, then one JSON object. Bytes travel as base64."""

import base64
import json
import os

MAX_FROM_DAEMON = 48 << 20
MAX_TO_DAEMON = 1 << 20
# Raw bytes in one frame; base64 and the object around them must fit the cap.
CHUNK = 256 << 10


class Closed(Exception):
    """The other end is gone."""


def read_exactly(fd, count):
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            raise Closed
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read(fd):
    """Reads one frame; blocks. Raises Closed at the end of the stream."""
    size = int.from_bytes(read_exactly(fd, 4), "big")
    if not 0 < size <= MAX_FROM_DAEMON:
        raise Closed
    return json.loads(read_exactly(fd, size))


def write(fd, kind, **fields):
    """Writes one frame whole."""
    write_all(fd, frame(kind, **fields))


def frame(kind, **fields):
    """The bytes of a frame."""
    fields["type"] = kind
    body = json.dumps(fields).encode("ascii")
    if len(body) > MAX_TO_DAEMON:
        raise ValueError("a %s frame of %d bytes" % (kind, len(body)))
    return len(body).to_bytes(4, "big") + body


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def encode(data):
    return base64.b64encode(data).decode("ascii")
