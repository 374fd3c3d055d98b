"""The bytes of a pickle, and the arguments of its opcodes as Python's own pickle writes them.

Another spelling is a fault. The unpickler in C reads much more: hexadecimal and octal integers,
underscores in them, octal escapes in strings. That is not repeated here: two readings of one text
are what a hostile file is made of.
"""

import math
import re

from auditor.messages import quoted

MAX_LONG = 256  # bytes of one integer, 616 digits; torch's magic number has ten
_MAX_DIGITS = 2 * MAX_LONG
_MAX_INDEX_DIGITS = 20  # of u64

_INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
_INDEX = re.compile(rb"0|[1-9][0-9]*")
_FLOAT = re.compile(rb"-?(?:inf|nan|[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)")
_BOOLS = {b"00": False, b"01": True}
# What repr() of a string of Python 2 escapes, and nothing else.
_PLAIN = re.compile(rb"(?:[^\\]|\\[\\'\"nrt]|\\x[0-9a-fA-F]{2})*", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


class FaultError(Exception):
    """What no unpickler could do, what two could do differently, or what passes a bound.

    The verb comes first.
    """


def integer(line: bytes) -> int:
    """Of INT and LONG; `00` and `01` are bools of INT, for which see `integer_or_bool`."""
    if len(line) > _MAX_DIGITS or not _INTEGER.fullmatch(line):
        raise FaultError(f"has the integer {_shown(line)}, which pickle never writes so")
    return int(line)


def integer_or_bool(line: bytes) -> int:
    return _BOOLS[line] if line in _BOOLS else integer(line)


def index(line: bytes) -> int:
    """Of GET and PUT."""
    if len(line) > _MAX_INDEX_DIGITS or not _INDEX.fullmatch(line):
        raise FaultError(f"has the place {_shown(line)} in its memo, which pickle never writes so")
    return int(line)


def floating(line: bytes) -> float:
    value = float(line) if len(line) <= _MAX_DIGITS and _FLOAT.fullmatch(line) else None
    if value is None or (math.isinf(value) and not line.endswith(b"inf")):
        raise FaultError(f"has the number {_shown(line)}, which pickle never writes so")
    return value


def string(line: bytes) -> str:
    """Of STRING: a string of Python 2 in its quotes, which torch reads as UTF-8."""
    if len(line) < len("''") or line[:1] != line[-1:] or line[:1] not in {b"'", b'"'}:
        raise FaultError("has a string without its quotes")
    inside = line[1:-1]
    if not _PLAIN.fullmatch(inside):
        raise FaultError("has a string with an escape that pickle never writes")
    return python2(_ESCAPE.sub(_unescaped, inside))


def python2(content: bytes) -> str:
    """A string of Python 2, whose bytes torch.load takes for UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise FaultError(
            "has a string of Python 2 that is not UTF-8, which torch.load refuses unless it is "
            "given another encoding"
        ) from None


def text(content: bytes) -> str:
    """UTF-8, in which pickle lets halves of characters pass."""
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise FaultError("has a string that is not UTF-8") from None


def escaped(line: bytes) -> str:
    """Of UNICODE."""
    try:
        return line.decode("raw-unicode-escape")
    except UnicodeDecodeError:
        raise FaultError("has a string with a broken escape") from None


def name(line: bytes, encoding: str = "utf-8") -> str:
    """A module or what is imported from it."""
    try:
        found = line.decode(encoding)
    except UnicodeDecodeError:
        raise FaultError(f"imports {_shown(line)}, which is not text") from None
    if not found:
        raise FaultError("imports a name without letters")
    return found


def ascii_line(line: bytes) -> str:
    """Of PERSID."""
    if not line.isascii():
        raise FaultError("names an object of the loader's own by what is not ASCII")
    return line.decode()


def _unescaped(found: re.Match[bytes]) -> bytes:
    digits, letter = found.groups()
    return bytes.fromhex(digits.decode()) if digits else _LETTERS.get(letter, letter)


def _shown(line: bytes) -> str:
    return quoted(line.decode("ascii", "backslashreplace"))


# --- the bytes ------------------------------------------------------------------------------------

# A frame says how many bytes belong together. The unpickler in C reads that many, and drops the
# rest of them if an opcode needs more; the one in Python refuses such a frame. Here a frame begins
# and ends where opcodes do.

MAX_PICKLE = 8 * 1024 * 1024  # bytes
MAX_LINE = 64 * 1024  # bytes of an argument of protocol 0
PROTOCOLS = 5


class TruncatedError(Exception):
    """The bytes end inside the pickle."""


class Reader:
    """A place in the bytes, and where the frame around it ends."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data = data
        self.position = start
        self.at = start  # of the opcode at work
        self.end = len(data)  # of the frame, or of the data outside a frame
        self.framed = False

    def leave_frame(self) -> None:
        """At the end of a frame: behind it anything may follow, unless it is the end of all."""
        if self.end == len(self.data):
            raise TruncatedError
        self.end, self.framed = len(self.data), False

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > self.end:
            self.overrun()
        return self.data[start : self.position]

    def overrun(self) -> None:
        if self.end == len(self.data):
            raise TruncatedError
        raise FaultError("has a frame that ends inside an opcode")

    def number(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "little", signed=signed)

    def line(self) -> bytes:
        stop = min(self.end, self.position + MAX_LINE)
        end = self.data.find(b"\n", self.position, stop)
        if end < 0:
            if stop == self.end:
                self.overrun()
            self.position = stop
            raise FaultError(f"has a line of more than {MAX_LINE:,} bytes")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def frame(self) -> None:
        if self.framed:
            raise FaultError("opens a frame inside a frame")
        length = self.number(8)
        if length > MAX_PICKLE:
            raise FaultError(f"has a frame of {length:,} bytes; {MAX_PICKLE:,} are the most read")
        if self.position + length > len(self.data):
            raise TruncatedError
        self.end, self.framed = self.position + length, True

    def protocol(self) -> None:
        version = self.number(1)
        if version > PROTOCOLS:
            raise FaultError(f"is of protocol {version}; {PROTOCOLS} is the latest there is")

    def require_end(self) -> None:
        """Raise FaultError where a pickle ends and the frame around it does not."""
        if self.framed and self.position != self.end:
            raise FaultError("ends before its frame does, behind which another may begin")
