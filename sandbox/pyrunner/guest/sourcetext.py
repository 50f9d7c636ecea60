"""User text kept for showing: lines and segments by position."""

from array import array

from sandboxd_guest.pristine import builtins_copy as __builtins__


BYTE_ORDER_MARK = "\ufeff"  # which compile() of a str refuses


class SourceText:
    """One text. Made before user code starts and filled later: an object made
    later could be found by gc.get_objects(). For the same reason the lines
    are kept as an array of offsets, which the collector does not track."""

    __slots__ = ("_text", "_starts")

    def __init__(self, text=""):
        self.fill(text)

    def fill(self, text):
        self._text = text
        self._starts = None

    def _index(self):
        # Only what the tokenizer takes for a line end: str.splitlines knows more.
        if "\r" in self._text:
            self._text = self._text.replace("\r\n", "\n").replace("\r", "\n")
        self._starts = array("Q", [0])
        at = self._text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = self._text.find("\n", at + 1)
        self._starts.append(len(self._text) + 1)

    def line(self, number):
        """Line number, counted from 1; "" when there is none."""
        if self._starts is None:
            self._index()
        if not 0 < number < len(self._starts):
            return ""
        return self._text[self._starts[number - 1] : self._starts[number] - 1]

    def segment(self, line, column, end_line, end_column):
        """The text between two positions; columns are UTF-8 bytes, as in the
        syntax tree."""
        first = self.line(line)
        start = self._starts[line - 1] + _characters(first, column)
        end = self._starts[end_line - 1] + _characters(self.line(end_line), end_column)
        return self._text[start:end]


def _characters(line, column):
    if line.isascii():
        return column
    return len(line.encode("utf-8", "replace")[:column].decode("utf-8", "ignore"))
