"""Tracebacks as Python prints them, without the harness's own frames.

Made here and not by the traceback module, which user code can replace, and
from the held texts and not from linecache, which would have to hold the
tests where the solution could read them.
"""

from os import O_NONBLOCK, O_RDONLY, close, fstat, open as open_fd, read
from stat import S_ISREG

from sandboxd_guest import reprs
from sandboxd_guest.pristine import builtins_copy as __builtins__
from sandboxd_guest.sourcetext import SourceText

HARNESS = "<sandboxd>"  # the file name of code that the driver runs for the harness
_HEAD = "Traceback (most recent call last):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"

_CLOSING = "+------------------------------------\n"

_CHAIN_MAX = 20
_GROUP_DEPTH_MAX, _GROUP_WIDTH_MAX = 10, 15
_GROUP_CHARS_MAX = 1 << 20  # of the members of one exception
_NOTES_MAX = 20
_FRAMES_HEAD, _FRAMES_TAIL = 30, 100
_REPEATS_SHOWN = 3
_LIBRARY_BYTES_MAX = 2 << 20
_LIBRARY_FILES_MAX = 20
_LINE_CHARS_MAX = 500

# Through the base's descriptors: a subclass can shadow these names.
_cause_of = BaseException.__dict__["__cause__"].__get__
_context_of = BaseException.__dict__["__context__"].__get__
_suppressed_in = BaseException.__dict__["__suppress_context__"].__get__
traceback_of = BaseException.__dict__["__traceback__"].__get__
_syntax = {name: SyntaxError.__dict__[name].__get__ for name in ("msg", "filename", "lineno", "offset", "text")}
_Group = getattr(__import__("builtins"), "BaseExceptionGroup", None)
_members_of = _Group.__dict__["exceptions"].__get__ if _Group else None


class Formatter:
    """held: SourceText by file name; own: the module dictionaries whose frames
    are left out; room: characters of a message, and of a whole traceback."""

    __slots__ = ("_held", "_own", "_room", "_spent")

    def __init__(self, held, own, room):
        self._held = held
        self._own = frozenset(map(id, own))  # ids: user code must not find more
        self._room = room

    def describe(self, error, message=None):
        """What there is to tell of error, of plain types: the name of its type,
        its message, the whole traceback, user_lines, syntax_line. User code
        runs meanwhile. message: as for format."""
        if message is None:
            message = self.message(error)
        kind = type(error)
        line = self.syntax_line(error) if issubclass(kind, SyntaxError) else None
        return reprs.type_name(kind), message, self.format(error, message), self.user_lines(error), line

    def message(self, error):
        return reprs.message(error, self._room)

    def user_lines(self, error):
        """(file, line, function) of each frame of user and library code,
        outermost first."""
        entries = []
        trace = traceback_of(error)
        while trace is not None:
            code = trace.tb_frame.f_code
            if id(trace.tb_frame.f_globals) not in self._own and code.co_filename != HARNESS:
                entries.append((code.co_filename, trace.tb_lineno or 0, code.co_name))
            trace = trace.tb_next
        return entries

    def syntax_line(self, error):
        """The line of a syntax error in one of the held texts."""
        line = _syntax["lineno"](error)
        name = _syntax["filename"](error)
        return line if type(line) is int and type(name) is str and name in self._held else None

    def format(self, error, message=None):
        """The whole text, chained exceptions first, ending in a newline.
        message: error's own, where it is known; asking twice could show."""
        self._spent = 0
        text = "".join(self._chain(error, message, {}))
        shown, room = middle_cut(text, self._room), self._room
        while reprs.encoded_size(shown) > reprs.TEXT_BYTES_MAX:
            room = min(len(shown), room) * 2 // 3
            shown = middle_cut(text, room)
        return shown

    def _chain(self, error, message, libraries, depth=0):
        last, links, seen = error, [], set()
        link = ""
        while error is not None and id(error) not in seen and len(seen) < _CHAIN_MAX:
            seen.add(id(error))
            links.append((error, link))
            if _cause_of(error) is not None:
                error, link = _cause_of(error), _CAUSE
            elif not _suppressed_in(error):
                error, link = _context_of(error), _CONTEXT
            else:
                break
        parts = []
        for error, link in reversed(links):
            known = message if error is last else None
            parts.extend(self._one(error, known, libraries, depth))
            if link:
                parts.append(_indented(link, depth))
        return parts

    def _one(self, error, message, libraries, depth):
        """depth: of the exception groups around it, of which a group at the
        top is one itself."""
        kind = type(error)
        group = _Group is not None and issubclass(kind, _Group)
        if group and depth > _GROUP_DEPTH_MAX:
            return [_indented("... (max_group_depth is %d)\n" % _GROUP_DEPTH_MAX, depth)]
        outermost = group and not depth
        depth += outermost
        parts = []
        entries = self.user_lines(error)
        if entries:
            parts.append(_indented("Exception Group " + _HEAD if group else _HEAD, depth, "+" if outermost else "|"))
            parts.extend(_indented(part, depth) for part in self._stack(entries, libraries))
        name = reprs.qualified_name(kind)
        if issubclass(kind, SyntaxError):
            parts.extend(_indented(part, depth) for part in self._syntax_block(error, libraries))
            said = _syntax["msg"](error)
            message = said if type(said) is str else message
        if message is None:
            message = self.message(error)
        parts.append(_indented("%s: %s\n" % (name, message) if message else name + "\n", depth))
        parts.extend(_indented(note, depth) for note in _notes(error))
        self._spent += sum(map(len, parts))
        if group:
            self._members(error, libraries, depth, parts)
        return parts

    def _stack(self, entries, libraries):
        parts, previous, repeats = [], None, 0
        omitted = len(entries) - _FRAMES_HEAD - _FRAMES_TAIL
        for index, entry in enumerate(entries):
            repeats = repeats + 1 if entry == previous else 1
            following = entries[index + 1] if index + 1 < len(entries) else None
            previous = entry
            if repeats > _REPEATS_SHOWN:
                if entry != following:
                    parts.append(_repeated(repeats - _REPEATS_SHOWN))
                continue
            name, line, function = entry
            parts.append(('  File "%s", line %d, in %s\n' % (name, line, function), name, line))
        if omitted > 0 and len(parts) > _FRAMES_HEAD + _FRAMES_TAIL:
            gone = len(parts) - _FRAMES_HEAD - _FRAMES_TAIL
            parts[_FRAMES_HEAD:-_FRAMES_TAIL] = ["  … [cut, %d frames more]\n" % gone]
        return [part if type(part) is str else self._located(part, libraries) for part in parts]

    def _located(self, part, libraries):
        place, name, line = part
        source = self._line(name, line, libraries).strip()
        return place + ("    %s\n" % source if source else "")

    def _line(self, name, line, libraries):
        text = self._held.get(name) or libraries.get(name)
        if text is None:
            text = SourceText(_library(name) if len(libraries) < _LIBRARY_FILES_MAX else "")
            libraries[name] = text
        return text.line(line)[:_LINE_CHARS_MAX]

    def _syntax_block(self, error, libraries):
        name, line = _syntax["filename"](error), _syntax["lineno"](error)
        if type(line) is not int:
            return []
        name = name if type(name) is str else "<string>"
        parts = ['  File "%s", line %d\n' % (name, line)]
        text = _syntax["text"](error)
        if type(text) is not str or not text:
            text = self._line(name, line, libraries)
        text = text.rstrip()[:_LINE_CHARS_MAX]
        shown = text.lstrip(" \t\n\f")
        if shown:
            parts.append("    %s\n" % shown)
            offset = _syntax["offset"](error)
            column = offset - 1 - (len(text) - len(shown)) if type(offset) is int else -1
            if 0 <= column <= len(shown):
                blank = "".join(c if c.isspace() else " " for c in shown[:column])
                parts.append("    %s^\n" % blank)
        return parts

    def _members(self, group, libraries, depth, parts):
        members = _members_of(group)
        shown = members[:_GROUP_WIDTH_MAX]
        margin, lead = "  " * depth, "+-"
        for number, member in enumerate(shown, 1):
            if self._spent > _GROUP_CHARS_MAX:
                parts.append(margin + "  | … [cut, %d exceptions in all]\n" % len(members))
                break
            parts.append(margin + lead + "+---------------- %d ----------------\n" % number)
            inner = self._chain(member, None, libraries, depth + 1)
            parts.extend(inner)
            lead = "  "
        more = len(members) - len(shown)
        if more:
            parts.append(margin + "  +---------------- ... ----------------\n")
            parts.append(_indented("and %d more exception%s\n" % (more, "s" if more > 1 else ""), depth + 1))
        if not parts[-1].endswith(_CLOSING):
            parts.append(margin + "  " + _CLOSING)


def _indented(text, depth, margin="|"):
    if not depth:
        return text
    lead = "  " * depth + margin + " "
    return "".join(lead + line for line in text.splitlines(True))


def middle_cut(text, room):
    if len(text) <= room:
        return text
    head = room // 4  # the end says most
    mark = "\n… [cut, %d characters in all]\n" % len(text)
    return text[:head] + mark + text[head - room :]


def _repeated(count):
    return "  [Previous line repeated %d more time%s]\n" % (count, "" if count == 1 else "s")


def _notes(error):
    try:
        notes = error.__notes__
    except BaseException:
        return []
    if type(notes) is not list:
        return []
    return [reprs.message(note, _LINE_CHARS_MAX) + "\n" for note in notes[:_NOTES_MAX]]


def _library(name):
    """The text of a source file on disk. Only plain files are read: a fifo
    named *.py would hold the report up."""
    if not name.endswith(".py"):
        return ""
    try:
        fd = open_fd(name, O_RDONLY | O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        if not S_ISREG(fstat(fd).st_mode):
            return ""
        parts, room = [], _LIBRARY_BYTES_MAX
        while room > 0:
            part = read(fd, min(room, 1 << 16))
            if not part:
                break
            parts.append(part)
            room -= len(part)
        return b"".join(parts).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        close(fd)
