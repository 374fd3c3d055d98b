"""A scanner of JSON documents of many megabytes, which builds only the values that are needed.

`json.loads` takes 0.6 s and 300 MB for the tokenizer.json of Gemma 3; a check needs few of its ids.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from auditor.bounded.json_text import MAX_DEPTH

MOST_DIGITS = 20  # of an id: 2**63 has 19
# The longest vocabulary known, XLM-V's, has 901,629 entries; they take half a second.
MOST_ENTRIES = 1_000_000
# Strings and brackets of a skipped value; 6,400 added tokens of Gemma 3 have 100,000.
MOST_TOKENS = 1_000_000

# The number of escapes is bounded: each takes five bytes of the engine's memory.
_STRING = rb'"(?:[^"\\]++|\\.){0,100000}+"'
_SPACE = re.compile(rb"[ \t\r\n]*+")
_KEY = re.compile(rb"(" + _STRING + rb")[ \t\r\n]*+:[ \t\r\n]*+", re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_PLAIN = re.compile(rb"[^,\]}\s\"\[{]++")
# A quote alone is the start of a string that does not end, or has too many escapes. Nothing after
# it is searched: each quote in it would be taken for the start of another string.
_STEP = re.compile(_STRING + rb"|[\[\]{}\"]", re.DOTALL)
_NEXT = re.compile(rb"[ \t\r\n]*+,[ \t\r\n]*+")
_ENTRY = rb"(" + _STRING + rb")[ \t\r\n]*+:[ \t\r\n]*+(-?\d++)[ \t\r\n]*+(?:,|(?=\}))[ \t\r\n]*+"
_ONE_ENTRY = re.compile(_ENTRY, re.DOTALL)
_ENTRIES = re.compile(
    rb"(?:"
    + _ENTRY.replace(rb"(" + _STRING + rb")", _STRING).replace(rb"(-?\d++)", rb"-?\d++")
    + rb"){1,4096}+",
    re.DOTALL,
)
_IDS = re.compile(_ENTRY.replace(rb"(" + _STRING + rb")", _STRING), re.DOTALL)
_PIECE = re.compile(
    rb"\[[ \t\r\n]*+(" + _STRING + rb")[ \t\r\n]*+,[^\[\]{}\"]++\][ \t\r\n]*+(,|\])[ \t\r\n]*+",
    re.DOTALL,
)


class ScanError(Exception):
    """The document is invalid or too large."""


class EndsEarlyError(ScanError):
    """The bytes at hand end before the value does."""


class Highest(NamedTuple):
    """The highest id of a vocabulary, how many entries there are, and its token."""

    entries: int
    id: int | None = None  # None: there is no entry
    token: str = ""


def skip_space(data: bytes, at: int) -> int:
    match = _SPACE.match(data, at)
    return match.end() if match else at


def json_members(data: bytes, at: int) -> Iterator[tuple[str, int]]:
    """Yield each key of the object at this position, and the position of its value."""
    yield from _members(data, _opened(data, at, b"{"))


def _members(data: bytes, at: int) -> Iterator[tuple[str, int]]:
    if data[at : at + 1] == b"}":
        return
    while True:
        match = _KEY.match(data, at)
        if not match:
            raise _fault(data, at, "a key")
        yield text_of(match[1]), match.end()
        at = skip_space(data, skip(data, match.end()))
        if data[at : at + 1] == b"}":
            return
        comma = _NEXT.match(data, at)
        if not comma:
            raise _fault(data, at, "a comma")
        at = comma.end()


def items(data: bytes, at: int) -> Iterator[int]:
    """Yield the position of each item of the list at this position."""
    at = _opened(data, at, b"[")
    if data[at : at + 1] == b"]":
        return
    while True:
        yield at
        at = skip_space(data, skip(data, at))
        if data[at : at + 1] == b"]":
            return
        comma = _NEXT.match(data, at)
        if not comma:
            raise _fault(data, at, "a comma")
        at = comma.end()


def skip(data: bytes, at: int) -> int:
    """Return the end of the value at this position."""
    first = data[at : at + 1]
    if first not in {b"{", b"["}:
        match = (_TEXT if first == b'"' else _PLAIN).match(data, at)
        if not match or (match.end() == len(data) and first != b'"'):
            raise _fault(data, at, "a value")
        return match.end()
    depth = 0
    for count, step in enumerate(_STEP.finditer(data, at)):
        match data[step.start()]:
            case 0x7B | 0x5B:
                depth += 1
            case 0x7D | 0x5D:
                depth -= 1
            case 0x22 if step.end() == step.start() + 1:
                raise _fault(data, step.start(), "a string")
        if depth > MAX_DEPTH:
            raise ScanError(f"is nested deeper than {MAX_DEPTH} levels")
        if not depth:
            return step.end()
        if count > MOST_TOKENS:
            raise ScanError(f"has a value of more than {MOST_TOKENS:,} strings and brackets")
    raise EndsEarlyError("ends inside a value")


def value(data: bytes, at: int, most: int = 64 * 1024) -> object:
    """Return the value at this position; None if it has more than `most` bytes."""
    end = skip(data, at)
    if end - at > most:
        return None
    try:
        return json.loads(data[at:end], parse_int=_number)
    except (ValueError, RecursionError):
        raise ScanError("is not JSON") from None


def highest_of_object(data: bytes, at: int) -> Highest:
    """Return the highest id of `{"token": id, ...}`; raise ScanError for another object."""
    at = _opened(data, at, b"{")
    best, where, entries = -1, (at, at), 0
    while data[at : at + 1] != b"}":
        run = _ENTRIES.match(data, at)
        if not run:
            raise _fault(data, at, "a token and its id")
        span = (at, run.end() + 1)  # and the bracket that the last entry looks at
        digits = _IDS.findall(data, *span)
        entries += len(digits)
        longest = max(map(len, digits))
        if longest > MOST_DIGITS:
            raise ScanError(f"has an id of {longest:,} digits")
        if entries > MOST_ENTRIES:
            raise ScanError(f"has a vocabulary of more than {MOST_ENTRIES:,} entries")
        if (highest := max(map(int, digits))) > best:
            best, where = highest, span
        at = run.end()
    if not entries:
        return Highest(0)
    named = (one[1] for one in _ONE_ENTRY.finditer(data, *where) if int(one[2]) == best)
    return Highest(entries, best, text_of(next(named, b'""')))


def highest_of_list(data: bytes, at: int) -> Highest:
    """Return the highest id of `[["token", score], ...]`, where the position is the id."""
    at = _opened(data, at, b"[")
    if data[at : at + 1] == b"]":
        return Highest(0)
    end = at
    for entries, piece in enumerate(_PIECE.finditer(data, at), 1):
        if piece.start() != end:
            break
        end = piece.end()
        if piece[2] == b"]":
            return Highest(entries, entries - 1, text_of(piece[1]))
        if entries >= MOST_ENTRIES:
            raise ScanError(f"has a vocabulary of more than {MOST_ENTRIES:,} entries")
    raise _fault(data, end, "a token and its score")


def text_of(quoted: bytes) -> str:
    try:
        text = json.loads(quoted)
    except ValueError:
        raise ScanError("is not JSON") from None
    return str(text)


def _opened(data: bytes, at: int, bracket: bytes) -> int:
    """Return the position behind an opening bracket and white space."""
    at = skip_space(data, at)
    if data[at : at + 1] != bracket:
        raise _fault(data, at, bracket.decode())
    return skip_space(data, at + 1)


def _fault(data: bytes, at: int, expected: str) -> ScanError:
    """Return the error for an unexpected byte; a part may only end early."""
    if _STARTS.match(data, at):
        return EndsEarlyError("ends inside a value")
    return ScanError(f"is not a tokenizer's file: expected {expected} at byte {at:,}")


# The beginnings of tokens that the end of the bytes at hand may cut.
_STARTS = re.compile(
    rb'\s*+(?:"(?:[^"\\]++|\\.){0,100000}+(?:"\s*+(?::\s*+(?:-?\d*+\s*+)?)?|\\)?'
    rb'|\[[^\[\]{}"]*+(?:"(?:[^"\\]++|\\.){0,100000}+(?:"[^\[\]{}"]*+\]?\s*+|\\)?)?|[^,\]}\s"\[{]*+)\Z',
    re.DOTALL,
)


def _number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ScanError(f"has an integer of {len(digits):,} digits")
    return int(digits)
