"""Bounded texts of user values: reprs, assertion messages, type names.

Exact built-in containers are walked here, so that a value of any size or
depth costs no more than the room it is given. Other objects show themselves;
whatever they raise becomes a placeholder.
"""

from sandboxd_guest.pristine import builtins_copy as __builtins__

try:
    from _json import encode_basestring_ascii as _encoded
except ImportError:  # an interpreter built without its C accelerators
    from json.encoder import py_encode_basestring_ascii as _encoded

NAME_CHARS_MAX = 200
TEXT_BYTES_MAX = 256 << 10  # of one text, as it is sent
RUN_BYTES_MAX = 1 << 20  # of a run's texts together, as they are sent
_BRIEF_CHARS, _BRIEF_BYTES = 200, 1200
_DEPTH_MAX = 40
# Safely under the smallest digit limit an interpreter can be set to (640).
_INT_BITS_MAX = 2000

_PLAIN = frozenset({type(None), bool, float, complex, type(Ellipsis), type(NotImplemented), range})
_BRACKETS = {list: "[]", tuple: "()", set: "{}", dict: "{}", frozenset: ("frozenset({", "})")}
_UNITS = {str: "characters", bytes: "bytes", bytearray: "bytes"}

# Read through the type's own descriptors: a metaclass can shadow the names.
_name_of = type.__dict__["__name__"].__get__
_qualname_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__


class _Full(Exception):
    """The room is used up."""


def type_name(kind):
    return cut(exact(_name_of(kind)), NAME_CHARS_MAX)


def qualified_name(kind):
    """The name as a traceback's last line shows it."""
    name = cut(exact(_qualname_of(kind)), NAME_CHARS_MAX)
    try:
        module = _module_of(kind)
    except AttributeError:
        module = None
    if type(module) is not str:
        return "<unknown>." + name
    return name if module in ("builtins", "__main__") else cut(module, NAME_CHARS_MAX) + "." + name


def exact(text):
    """text as a plain str: a subclass can override what we do with it."""
    return text if type(text) is str else str.__getitem__(text, slice(None))


def cut(text, room):
    if len(text) <= room:
        return text
    return text[:room] + "… [cut, %d characters in all]" % len(text)


def fit(text, room=TEXT_BYTES_MAX):
    """text, cut to what takes room bytes when it is sent: one character can
    become twelve."""
    if len(text) * 12 <= room:
        return text
    size = len(_encoded(text))
    if size <= room:
        return text
    return cut(text, fitting(text, size, room))


def encoded_size(text):
    return len(_encoded(text))


def fitting(text, size, room):
    """How many characters of text, whose encoded size is known, fit the room."""
    count = len(text)
    while size > room:
        count = min(count - 1, count * room // size)
        size = len(_encoded(text[:count]))
    return count


class Budget:
    """The bytes that all texts of a run's assertions may take together. A text
    past it is brief, and never lost entirely."""

    __slots__ = ("_left",)

    def __init__(self, size=RUN_BYTES_MAX):
        self._left = size

    def take(self, text):
        text = fit(text)
        size = len(_encoded(text))
        if size > self._left:
            return brief(text)
        self._left -= size
        return text


def brief(text):
    return fit(cut(text, _BRIEF_CHARS), _BRIEF_BYTES)


def show(value, room):
    """repr(value) in at most room characters and a mark."""
    writer = _Writer(room)
    try:
        writer.value(value, 0)
        return "".join(writer.parts)
    except _Full:
        return "".join(writer.parts) + _mark(value)
    except BaseException as error:
        return "<%s could not be shown: %s>" % (type_name(type(value)), type_name(type(error)))


def message(value, room):
    """str(value) in at most room characters and a mark."""
    kind = type(value)
    if kind is str:
        return cut(value, room)
    if kind in _BRACKETS or kind in _UNITS or kind is int:
        return show(value, room)  # their str is their repr
    try:
        return cut(exact(str(value)), room)
    except BaseException as error:
        return "<message could not be shown: %s>" % type_name(type(error))


def _mark(value):
    kind = type(value)
    if kind in _UNITS or kind in _BRACKETS:
        return "… [cut, %d %s in all]" % (len(value), _UNITS.get(kind, "items"))
    return "… [cut]"


class _Writer:
    __slots__ = ("parts", "_room", "_open")

    def __init__(self, room):
        self.parts = []
        self._room = room
        self._open = set()  # ids of the containers being written

    def _put(self, text):
        if len(text) > self._room:
            self.parts.append(text[: self._room])
            raise _Full
        self.parts.append(text)
        self._room -= len(text)

    def value(self, value, depth):
        kind = type(value)
        if kind in _UNITS:
            self._put(repr(value[: self._room + 1]))  # cut before it is formatted
        elif kind is int:
            self._int(value)
        elif kind in _PLAIN:
            self._put(repr(value))
        elif kind in _BRACKETS:
            self._container(value, kind, depth)
        else:
            self._other(value)

    def _int(self, value):
        bits = int.bit_length(value)
        if bits <= _INT_BITS_MAX:
            return self._put(repr(value))
        try:
            if bits > 4 * self._room:  # more digits than room
                raise ValueError
            self._put(repr(value))
        except ValueError:
            self._put("<int of %d bits>" % bits)

    def _other(self, value):
        try:
            text = exact(repr(value))
        except BaseException as error:
            text = "<%s could not be shown: %s>" % (type_name(type(value)), type_name(type(error)))
        self._put(text)

    def _container(self, value, kind, depth):
        opening, closing = _BRACKETS[kind]
        if not value and (kind is set or kind is frozenset):
            return self._put("set()" if kind is set else "frozenset()")
        if id(value) in self._open:
            return self._put(opening + "..." + closing)
        if depth >= _DEPTH_MAX:
            return self._put(opening + "…" + closing)
        self._open.add(id(value))
        self._put(opening)
        if kind is dict:
            self._pairs(value, depth + 1)
        else:
            self._items(value, depth + 1)
        self._put(",)" if kind is tuple and len(value) == 1 else closing)
        self._open.discard(id(value))

    def _items(self, value, depth):
        separator = ""
        for item in value:
            self._put(separator)
            self.value(item, depth)
            separator = ", "

    def _pairs(self, value, depth):
        separator = ""
        for key, item in value.items():
            self._put(separator)
            self.value(key, depth)
            self._put(": ")
            self.value(item, depth)
            separator = ", "
