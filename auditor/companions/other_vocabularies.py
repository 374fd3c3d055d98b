"""Vocabularies of other formats, as far as their highest id needs it.

sentencepiece (protobuf), tiktoken (a line of base64 and a rank for each token), tekken (JSON, whose
settings stand first), vocab.json and added_tokens.json ({"token": id}), vocab.txt (a token a line).
"""

import re
from collections.abc import Iterator
from itertools import islice

from auditor.companions.json_scan import (
    MOST_ENTRIES,
    ScanError,
    highest_of_object,
    json_members,
    text_of,
    value,
)
from auditor.companions.vocabulary import MOST_ADDED, MOST_DIGITS, Token, Vocabulary, token_of

_RANKED = re.compile(rb"^[A-Za-z0-9+/=]+ (\d+)\r?$", re.MULTILINE)
_FIRST_RANKED = re.compile(rb"[A-Za-z0-9+/=]+ \d+\r?\n")
_ENTRY = re.compile(rb'("(?:[^"\\]++|\\.)*+")\s*+:\s*+(-?\d++)', re.DOTALL)
# A token that looks special, among the first bytes of a vocabulary; GPT-2's has 1 MB.
_SPECIAL = re.compile(
    rb'(?<!\\)"(<[^<>"\\\s]{1,40}+>|\[[A-Za-z0-9_]{2,20}+\])"\s*+:\s*+(\d{1,20}+)'
)
_LOOKED_AT = 4 * 1024 * 1024
_MOST_SPECIAL = 1000
_FIRST_PIECES = 16  # among which the special ones are
# The longest known, Gemma 3's, has 262,144; half a million take half a second.
_MOST_PIECES = 500_000
_BYTES = 2  # the wire type of what has a length
_LONGEST_VARINT = 10  # bytes


def sentencepiece(data: bytes) -> Vocabulary:
    """The pieces of a ModelProto, whose places are ids; of tiktoken where it is no protobuf.

    Field 1 is a piece (its field 1 the text), fields 2 to 5 are settings.
    """
    if _FIRST_RANKED.match(data):
        return tiktoken(data)
    entries, last = 0, (0, 0)
    first: list[Token] = []
    for field, start, stop in _fields(data):
        if field != 1:
            continue
        if entries < _FIRST_PIECES:
            first.append(_piece(data, (start, stop), entries))
        entries, last = entries + 1, (start, stop)
        if entries > _MOST_PIECES:
            raise ScanError(f"has more than {_MOST_PIECES:,} pieces")
    if not entries:
        raise ScanError("has no pieces")
    special = tuple(token for token in first if token.text[:1] in {"<", "["})
    return Vocabulary("sentencepiece", _piece(data, last, entries - 1), entries, special=special)


def _piece(data: bytes, span: tuple[int, int], number: int) -> Token:
    piece = data[slice(*span)]
    text = next((piece[start:stop] for field, start, stop in _fields(piece) if field == 1), b"")
    return token_of(number, text[:1024].decode(errors="replace"))


def _fields(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, start and stop of each field; ScanError where a length passes the end."""
    at, end = 0, len(data)
    while at < end:
        key, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at)  # noqa: PLR2004
        wire = key & 7
        if wire == _BYTES:
            length, at = _varint(data, at)
            start, at = at, at + length
        elif wire == 0:
            start, (_, at) = at, _varint(data, at)
        elif wire in {1, 5}:
            start, at = at, at + (8 if wire == 1 else 4)
        else:
            raise ScanError(f"is no protobuf: there is no wire type {wire}, at byte {at:,}")
        if at > end:
            raise ScanError(f"declares a field up to byte {at:,}, and has {end:,}")
        yield key >> 3, start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    for place in range(at, min(at + _LONGEST_VARINT, len(data))):
        number |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return number, place + 1
        shift += 7
    raise ScanError(f"is no protobuf: a number at byte {at:,} does not end")


def tiktoken(data: bytes) -> Vocabulary:
    if not _FIRST_RANKED.match(data):
        raise ScanError("has no line of base64 and a rank")
    best, entries = -1, 0
    for entries, found in enumerate(_RANKED.finditer(data), 1):
        if len(found[1]) > MOST_DIGITS:
            raise ScanError(f"has an id of {len(found[1]):,} digits")
        best = max(best, int(found[1]))
        if entries > MOST_ENTRIES:
            raise ScanError(f"has a vocabulary of more than {MOST_ENTRIES:,} entries")
    return Vocabulary("tiktoken", token_of(best, ""), entries)


def tekken(data: bytes) -> Vocabulary:
    """The number of ids that its settings say, which stand before the vocabulary."""
    for key, at in json_members(data, 0):
        if key != "config":
            continue
        match value(data, at):
            case {"default_vocab_size": int(size)} if size > 0:
                return Vocabulary("tekken", token_of(size - 1, ""), size)
        break
    raise ScanError("does not say its default_vocab_size")


def token_object(data: bytes) -> Vocabulary:
    """vocab.json: `{"token": id}`."""
    found = highest_of_object(data, 0)
    top = None if found.id is None else token_of(found.id, found.token)
    each = islice(_SPECIAL.finditer(data, 0, _LOOKED_AT), _MOST_SPECIAL)
    special = tuple(sorted(token_of(int(one[2]), one[1].decode(errors="replace")) for one in each))
    return Vocabulary("object", top, found.entries, special=special)


def added_object(data: bytes) -> Vocabulary:
    """added_tokens.json, likewise, whose tokens are kept."""
    found = highest_of_object(data, 0)
    if found.entries > MOST_ADDED:
        return token_object(data)
    each = (token_of(int(match[2]), text_of(match[1])) for match in _ENTRY.finditer(data))
    return Vocabulary("added", None, found.entries, tuple(sorted(each)))


def token_lines(data: bytes) -> Vocabulary:
    """vocab.txt: a token a line."""
    entries = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if not entries:
        raise ScanError("is empty")
    text = data.rstrip(b"\r\n").rpartition(b"\n")[2][:1024].decode(errors="replace")
    return Vocabulary("lines", token_of(entries - 1, text), entries)
