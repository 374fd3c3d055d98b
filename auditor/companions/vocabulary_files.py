"""Readers of vocabulary files: added tokens and the highest id.

tokenizer.json of the tokenizers library is

    {"version", "truncation", "padding", "added_tokens": [{"id", "content", "special", ...}, ...],
     "normalizer", "pre_tokenizer", "post_processor", "decoder",
     "model": {"type": "BPE", ..., "vocab": {"token": id, ...}, "merges": [...]}}

A Unigram model has `"vocab": [["token", score], ...]`, where the position is the id. The complete
file is read, or its start with the added tokens and its end with the last token of WordPiece.

The other formats are sentencepiece (protobuf), tiktoken (a line of base64 and a rank for each
token), tekken (JSON that begins with settings), vocab.json and added_tokens.json ({"token": id}),
and vocab.txt (a line for each token).
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import TypedDict

from auditor.bounded.json_scan import (
    MOST_DIGITS,
    MOST_ENTRIES,
    EndsEarlyError,
    Highest,
    ScanError,
    highest_of_list,
    highest_of_object,
    items,
    json_members,
    positions_in_list,
    skip_space,
    text_of,
    value,
)
from auditor.companions.vocabulary import MOST_ADDED, Token, Vocabulary, token_of

_SORTED_BY_ID = frozenset({"WordPiece", "WordLevel"})  # and with the vocabulary last
# The key after a vocabulary of BPE. If it is not in the start of a file, reading on is useless.
_AFTER_VOCABULARY = b'"merges"'
_LAST = re.compile(
    rb'("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*(\d{1,20})[ \t\r\n]*\}[ \t\r\n]*\}[ \t\r\n]*\}\s*\Z',
    re.DOTALL,
)
_LONGEST_ENTRY = 4096  # bytes of the end that are looked at
_MOST_AT_ONCE = 2 * 1024 * 1024  # bytes; the 6,415 added tokens of Gemma 3 have 1.2 MB


def read_tokenizer(
    start: bytes, end: bytes = b"", *, whole: bool = True, wanted: Collection[str] = ()
) -> Vocabulary:
    """Read a tokenizer.json: `start` is the complete file, or its start if `end` is its end.

    The tokens that are `wanted` and not added are looked up in the vocabulary of a complete file.
    """
    found = _Found(whole=whole)
    try:
        found.read(start)
        unread = "" if whole else "the rest of the file"
    except EndsEarlyError:
        found.last = _last_entry(end) if found.kind in _SORTED_BY_ID else None
        unread = "it ends too early" if whole else found.lacking
    except ScanError as error:
        unread = str(error)
    highest = found.highest
    top = highest and highest.id is not None and token_of(highest.id, highest.token)
    looked_up: Mapping[str, int | None] = {}
    if whole and highest is not None and found.all_added:
        wanted = [text for text in wanted if all(text != token.text for token in found.added)]
        looked_up = _lookup(start, found.vocabulary_at, wanted)
    return Vocabulary(
        kind=found.kind or "tokenizers",
        highest=top or found.last,
        entries=highest.entries if highest else None,
        added=tuple(sorted(found.added)),
        unread=unread if highest is None or not found.all_added else "",
        truncation=found.lengths.get("truncation"),
        padding=found.lengths.get("padding"),
        **_as_fields(looked_up),
    )


def _as_fields(looked_up: Mapping[str, int | None]) -> "_LookedUp":
    known = [token_of(at, text) for text, at in looked_up.items() if at is not None]
    return _LookedUp(
        special=tuple(sorted(known)),
        absent=tuple(sorted(text for text, at in looked_up.items() if at is None)),
    )


class _LookedUp(TypedDict):
    special: tuple[Token, ...]
    absent: tuple[str, ...]


def _lookup(data: bytes, at: int, wanted: Collection[str]) -> dict[str, int | None]:
    """Return the id of each wanted token in the vocabulary at this position; None: it has none."""
    if data[at : at + 1] == b"[":
        return positions_in_list(data, at, wanted) if wanted else {}
    return {text: _id_of(data, at, text) for text in wanted}


def _id_of(data: bytes, at: int, text: str) -> int | None:
    """Return the id of a token in `{"token": id}`, however its letters are escaped."""
    for ascii_only in (True, False):
        quoted = re.escape(json.dumps(text, ensure_ascii=ascii_only).encode(errors="replace"))
        found = re.compile(rb"(?<!\\)" + quoted + rb"[ \t\r\n]*+:[ \t\r\n]*+(\d{1,20}+)").search(
            data, at
        )
        if found:
            return int(found[1])
    return None


def _last_entry(end: bytes) -> Token | None:
    found = _LAST.search(end[-_LONGEST_ENTRY:])
    try:
        return token_of(int(found[2]), text_of(found[1])) if found else None
    except ScanError:
        return None


class _Found:
    """The values collected on the way through the document."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self.added: list[Token] = []
        self.all_added = False
        self.kind: str | None = None
        self.highest: Highest | None = None
        self.last: Token | None = None
        self.vocabulary_at = 0
        self.lengths: dict[str, int] = {}  # of truncation and padding

    @property
    def lacking(self) -> str:
        if not self.all_added:
            return "the rest of its added tokens and its vocabulary"
        return "its vocabulary" if self.last is None else "all of its vocabulary but the last entry"

    def read(self, data: bytes) -> None:
        for key, at in json_members(data, 0):
            if key == "added_tokens":
                self.added.extend(_added(data, at))
                self.all_added = True
            elif key in {"truncation", "padding"}:
                if (length := _length(value(data, at))) is not None:
                    self.lengths[key] = length
            elif key == "model":
                self._model(data, at)
            if self.all_added and self.highest is not None:
                return  # the merges, which may be the longer half

    def _model(self, data: bytes, at: int) -> None:
        for key, inside in json_members(data, at):
            if key == "type":
                self.kind = str(value(data, inside))[:40]
            elif key == "vocab":
                if not self._whole and self.kind == "BPE" and _AFTER_VOCABULARY not in data:
                    raise EndsEarlyError("ends inside the vocabulary")
                self.vocabulary_at = inside
                a_list = data[inside : inside + 1] == b"["
                self.highest = (highest_of_list if a_list else highest_of_object)(data, inside)
                if self.all_added:
                    return


def _length(setting: object) -> int | None:
    """Return the number of tokens in a truncation, or in a padding to a fixed length."""
    match setting:
        case {"max_length": int(length)} | {"strategy": {"Fixed": int(length)}}:
            return length
    return None


def _added(data: bytes, at: int) -> Iterator[Token]:
    for place, entry in enumerate(_objects(data, at)):
        if place >= MOST_ADDED:
            raise ScanError(f"has more than {MOST_ADDED:,} added tokens")
        match entry:
            case {"id": int(number), "content": str(text)} if not isinstance(number, bool):
                yield token_of(number, text)
            case _:
                raise ScanError("has an added token without an id")


def _objects(data: bytes, at: int) -> Iterator[object]:
    """Yield the items of a list, one by one if the list is long or incomplete."""
    try:
        entries = value(data, at, _MOST_AT_ONCE)
    except EndsEarlyError:
        entries = None
    if isinstance(entries, list):
        yield from entries
    else:
        yield from (value(data, item) for item in items(data, at))


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


def sentencepiece(data: bytes, wanted: Collection[str] = ()) -> Vocabulary:
    """Read the pieces of a ModelProto, whose positions are ids, or a file of tiktoken.

    Field 1 is a piece (with the text in its field 1), fields 2 to 5 are settings. The tokens that
    are `wanted` are looked up among the pieces.
    """
    if _FIRST_RANKED.match(data):
        return tiktoken(data)
    entries, last = 0, (0, 0)
    first: list[Token] = []
    looked_up = tuple(text.encode(errors="replace") for text in wanted)
    for field, start, stop in _fields(data):
        if field != 1:
            continue
        if entries < _FIRST_PIECES or any(data.find(text, start, stop) > 0 for text in looked_up):
            first.append(_piece(data, (start, stop), entries))
        entries, last = entries + 1, (start, stop)
        if entries > _MOST_PIECES:
            raise ScanError(f"has more than {_MOST_PIECES:,} pieces")
    if not entries:
        raise ScanError("has no pieces")
    special = tuple(one for one in first if one.text[:1] in {"<", "["} or one.text in wanted)
    return Vocabulary("sentencepiece", _piece(data, last, entries - 1), entries, special=special)


def _piece(data: bytes, span: tuple[int, int], number: int) -> Token:
    piece = data[slice(*span)]
    text = next((piece[start:stop] for field, start, stop in _fields(piece) if field == 1), b"")
    return token_of(number, text[:1024].decode(errors="replace"))


def _fields(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and stop of each field; raise ScanError if one passes the end."""
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
            raise ScanError(
                f"is not protobuf: wire type at byte {at:,} is {wire}, expected 0, 1, 2 or 5"
            )
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
    raise ScanError(f"is not protobuf: a number at byte {at:,} does not end")


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
    """Read the number of ids in the settings, which precede the vocabulary."""
    for key, at in json_members(data, 0):
        if key != "config":
            continue
        match value(data, at):
            case {"default_vocab_size": int(size)} if size > 0:
                return Vocabulary("tekken", token_of(size - 1, ""), size)
        break
    raise ScanError("has no default_vocab_size")


def token_object(data: bytes, wanted: Collection[str] = ()) -> Vocabulary:
    """Read a vocab.json, `{"token": id}`, and look up the tokens that are `wanted`."""
    found = highest_of_object(data, 0)
    top = None if found.id is None else token_of(found.id, found.token)
    each = islice(_SPECIAL.finditer(data, 0, _LOOKED_AT), _MOST_SPECIAL)
    special = {token_of(int(one[2]), one[1].decode(errors="replace")) for one in each}
    special.update(_as_fields(_lookup(data, skip_space(data, 0), wanted))["special"])
    return Vocabulary("object", top, found.entries, special=tuple(sorted(special)))


def added_object(data: bytes) -> Vocabulary:
    """Read an added_tokens.json, `{"token": id}`, with its tokens."""
    found = highest_of_object(data, 0)
    if found.entries > MOST_ADDED:
        return token_object(data)
    each = (token_of(int(match[2]), text_of(match[1])) for match in _ENTRY.finditer(data))
    return Vocabulary("added", None, found.entries, tuple(sorted(each)))


def token_lines(data: bytes, wanted: Collection[str] = ()) -> Vocabulary:
    """Read a vocab.txt, which has a line for each token, and look up the `wanted` tokens."""
    entries = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if not entries:
        raise ScanError("is empty")
    text = data.rstrip(b"\r\n").rpartition(b"\n")[2][:1024].decode(errors="replace")
    known = {text.encode(errors="replace"): text for text in wanted}
    lines = enumerate(data.split(b"\n")) if known else ()
    special = tuple(token_of(at, known[line]) for at, line in lines if line in known)
    return Vocabulary("lines", token_of(entries - 1, text), entries, special=special)
