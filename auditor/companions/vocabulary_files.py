"""Readers of vocabulary files: added tokens and the highest id.

tokenizer.json of the tokenizers library is

    {"version", "truncation", "padding", "added_tokens": [{"id", "content", "special", ...}, ...],
     "normalizer", "pre_tokenizer", "post_processor", "decoder",
     "model": {"type": "BPE", ..., "vocab": {"token": id, ...}, "merges": [...]}}

A Unigram model has `"vocab": [["token", score], ...]`, where the position is the id. The complete
file is read, or its start with the added tokens and its end with the last token of WordPiece.
Values that are not needed are not built: `json.loads` takes 0.6 s and 300 MB for Gemma 3's file.

The other formats are sentencepiece (protobuf), tiktoken (a line of base64 and a rank for each
token), tekken (JSON that begins with settings), vocab.json and added_tokens.json ({"token": id}),
and vocab.txt (a line for each token).
"""

import json
import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from auditor.bounded.json_text import MAX_DEPTH, decoded
from auditor.companions.vocabulary import MOST_ADDED, MOST_DIGITS, Token, Vocabulary, token_of
from auditor.errors import CheckpointError

_SORTED_BY_ID = frozenset({"WordPiece", "WordLevel"})  # their files end with the vocabulary
# Entries of a vocabulary; the longest known, XLM-V's, has 901,629 entries; they take half a second.
_MOST_ENTRIES = 1_000_000
_MAX_ADDED = 8 * 1024 * 1024  # bytes; the 6,415 added tokens of Gemma 3 have 1.2 MB
_LONGEST_ENTRY = 4096  # bytes at the end that are read

# The number of escapes is bounded: each takes five bytes of the engine's memory.
_STRING = rb'"(?:[^"\\]++|\\.){0,100000}+"'
_ENTRY = re.compile(rb"\s*+(" + _STRING + rb")\s*+:\s*+(-?\d++)\s*+(?:,|(?=\}))", re.DOTALL)
_PIECE = re.compile(rb"\s*+\[\s*+(" + _STRING + rb')\s*+,[^\[\]{}"]++\]\s*+(?:,|(?=\]))', re.DOTALL)
_LAST = re.compile(rb"(" + _STRING + rb")\s*+:\s*+(\d{1,20})\s*+\}\s*+\}\s*+\}\s*+\Z", re.DOTALL)
# A single quote character is the start of a string that is unclosed or has too many escapes.
_STEP = re.compile(_STRING + rb'|[\[\]{},"]', re.DOTALL)
_CLOSING = {b"{": b"}", b"[": b"]"}
_CUT = b"\t\r\t"  # white space that marks where a document was truncated


class _AddedToken(Struct):
    id: int
    content: str


class _Model(Struct, frozen=True):
    type: str = "tokenizers"
    vocab: Raw = Raw()


class _Tokenizer(Struct):
    truncation: Any = None
    padding: Any = None
    added_tokens: Raw = Raw(b"[]")
    model: _Model = _Model()


def read_tokenizer(
    start: bytes, end: bytes = b"", *, is_complete: bool = True, tokens: Collection[str] = ()
) -> Vocabulary:
    """Read a tokenizer.json; if it is not complete, `start` and `end` are its first and last bytes.

    Tokens in `tokens` that are not added tokens are looked up in the vocabulary, if that is
    complete.
    """
    try:
        tokenizer = decoded(start if is_complete else _closed(start), _Tokenizer)
        added = _added_tokens(bytes(tokenizer.added_tokens))
    except CheckpointError as error:
        return Vocabulary("tokenizers", unread=str(error))
    kind, vocabulary = tokenizer.model.type[:40], memoryview(tokenizer.model.vocab)
    highest, entries, unread = None, None, ""
    ids: dict[str, int] = {}
    absent: list[str] = []
    if vocabulary and (is_complete or _CUT not in bytes(vocabulary)):
        missing = {*tokens} - {token.text for token in added}
        try:
            highest, entries, ids = _entries(vocabulary, missing)
        except CheckpointError as error:
            unread = str(error)
        else:
            absent = sorted(missing - ids.keys())
    elif not is_complete:
        entry = _LAST.search(end[-_LONGEST_ENTRY:]) if kind in _SORTED_BY_ID else None
        highest = token_of(int(entry[2]), _text(entry[1])) if entry else None
        unread = "all of its vocabulary but the last entry" if highest else "its vocabulary"
    if not is_complete and (not vocabulary or _CUT in bytes(tokenizer.added_tokens)):
        unread = "the rest of its added tokens and its vocabulary"
    return Vocabulary(
        kind=kind,
        highest=highest,
        entries=entries,
        added=added,
        unread=unread,
        special=_sorted_tokens(ids),
        absent=tuple(absent),
        truncation=_length(tokenizer.truncation),
        padding=_length(tokenizer.padding),
    )


def _length(setting: object) -> int | None:
    """Return the length that a truncation or a padding sets; None if it sets no fixed length."""
    match setting:
        case {"max_length": int(length)} | {"strategy": {"Fixed": int(length)}}:
            return length
    return None


def _closed(start: bytes) -> bytes:
    """Truncate the start of a JSON document after a value, and close open brackets there.

    An object in a list, such as an added token, is kept only if it is complete.
    """
    cut, closing = 0, b""
    stack = b""  # closing brackets, innermost first
    for step in _STEP.finditer(start):
        mark, place = step[0], step.end()
        if mark in _CLOSING:
            stack = _CLOSING[mark] + stack
        elif mark in {b"}", b"]"}:
            stack = stack[1:]
        elif mark == b",":
            place = step.start()
        elif mark == b'"':
            break
        else:
            continue
        if len(stack) > MAX_DEPTH:
            break
        if b"}]" not in stack:
            cut, closing = place, stack
    return start[:cut] + _CUT + closing


def _added_tokens(entries: bytes) -> tuple[Token, ...]:
    if len(entries) > _MAX_ADDED or entries.count(b"{") > 2 * MOST_ADDED:
        raise CheckpointError(f"its added tokens have {len(entries):,} bytes, expected fewer")
    tokens = decoded(entries, list[_AddedToken], "added_tokens")
    if len(tokens) > MOST_ADDED:
        raise CheckpointError(f"it has more than {MOST_ADDED:,} added tokens")
    if any(token.id >= 10**MOST_DIGITS for token in tokens):
        raise CheckpointError(f"it has an id of more than {MOST_DIGITS} digits")
    return tuple(sorted(token_of(token.id, token.content) for token in tokens))


def _entries(
    vocabulary: memoryview, tokens: Collection[str] = ()
) -> tuple[Token | None, int, dict[str, int]]:
    """Return the token with the highest id, the number of entries, and the ids of `tokens`.

    The vocabulary is `{"token": id, ...}`, or `[["token", score], ...]` in the order of ids. It is
    read once, whatever the number of tokens; these may be written with or without escapes.
    """
    wanted = {
        json.dumps(text, ensure_ascii=ascii_only).encode(errors="replace"): text
        for text in tokens
        for ascii_only in (True, False)
    }
    is_list = bytes(vocabulary[:1]) == b"["
    pattern = _PIECE if is_list else _ENTRY
    highest, text, end, count = -1, b'""', 1, 0
    ids: dict[str, int] = {}
    while entry := pattern.match(vocabulary, end):
        if not is_list and len(entry[2]) > MOST_DIGITS:
            raise CheckpointError(f"it has an id of {len(entry[2]):,} digits")
        number = count if is_list else int(entry[2])
        if number > highest:
            highest, text = number, entry[1]
        if wanted and entry[1] in wanted and number >= 0:
            ids[wanted[entry[1]]] = number
        end, count = entry.end(), count + 1
        if count > _MOST_ENTRIES:
            raise CheckpointError(f"its vocabulary has more than {_MOST_ENTRIES:,} entries")
    if bytes(vocabulary[:1]) + bytes(vocabulary[end : end + 1000]).strip() not in {b"[]", b"{}"}:
        raise CheckpointError(f"byte {end:,} of its vocabulary is not a token and its id")
    return (token_of(highest, _text(text)) if count else None), count, ids


def _sorted_tokens(ids: Mapping[str, int]) -> tuple[Token, ...]:
    return tuple(sorted(token_of(number, text) for text, number in ids.items()))


def _text(string: bytes) -> str:
    try:
        return str(json.loads(string))
    except ValueError:
        raise CheckpointError("it is not JSON") from None


_RANKED = re.compile(rb"^[A-Za-z0-9+/=]+ (\d+)\r?$", re.MULTILINE)
_FIRST_RANKED = re.compile(rb"[A-Za-z0-9+/=]+ \d+\r?\n")
# A token that looks special, among the first bytes of a vocabulary; GPT-2's has 1 MB.
_SPECIAL = re.compile(
    rb'(?<!\\)"(<[^<>"\\\s]{1,40}+>|\[[A-Za-z0-9_]{2,20}+\])"\s*+:\s*+(\d{1,20}+)'
)
_LOOKED_AT = 4 * 1024 * 1024
_MOST_SPECIAL = 1000
_FIRST_PIECES = 16  # among the first tokens are the special tokens
# Pieces of a file; the longest known, Gemma 3's, has 262,144; half a million take half a second.
_MOST_PIECES = 500_000
_LONGEST_VARINT = 10  # bytes
_FIELD = b"\x0a"  # the start of a field 1 with a length


def sentencepiece(data: bytes, tokens: Collection[str] = ()) -> Vocabulary:
    """Read a sentencepiece ModelProto, whose piece positions are ids, or a tiktoken file.

    Field 1, which comes first, is a piece (with the text in its own field 1); the other fields are
    settings. `tokens` are looked up among the pieces.
    """
    if _FIRST_RANKED.match(data):
        return tiktoken(data)
    entries, at, text = 0, 0, b""
    special: list[Token] = []
    encoded_tokens = {one.encode(errors="replace") for one in tokens}
    while data[at : at + 1] == _FIELD:
        start, at = _field(data, at)
        piece = data[start:at]
        text = piece[slice(*_field(piece, 0))] if piece[:1] == _FIELD else b""
        is_first = entries < _FIRST_PIECES and text[:1] in {b"<", b"["}
        if is_first or text in encoded_tokens:
            special.append(_piece_token(entries, text))
        entries += 1
        if entries > _MOST_PIECES:
            raise CheckpointError(f"it has more than {_MOST_PIECES:,} pieces")
    if not entries:
        raise CheckpointError("it has no pieces")
    highest = _piece_token(entries - 1, text)
    return Vocabulary("sentencepiece", highest, entries, special=tuple(special))


def _piece_token(number: int, text: bytes) -> Token:
    return token_of(number, text[:1024].decode(errors="replace"))


def _field(data: bytes, at: int) -> tuple[int, int]:
    """Return start and stop of the content of the protobuf field at a byte."""
    if at + 1 < len(data) and (length := data[at + 1]) < min(0x80, len(data) - at - 1):
        return at + 2, at + 2 + length  # most pieces: this loop reads a quarter of a million
    length = shift = 0
    for place in range(at + 1, min(at + 1 + _LONGEST_VARINT, len(data))):
        length |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:  # noqa: PLR2004 - the continuation bit
            if place + 1 + length > len(data):
                break
            return place + 1, place + 1 + length
    raise CheckpointError(f"it is not protobuf: the field at byte {at:,} does not end")


def tiktoken(data: bytes) -> Vocabulary:
    if not _FIRST_RANKED.match(data):
        raise CheckpointError("it has no line of base64 and a rank")
    best, entries = -1, 0
    for entries, match in enumerate(_RANKED.finditer(data), 1):
        if len(match[1]) > MOST_DIGITS:
            raise CheckpointError(f"it has an id of {len(match[1]):,} digits")
        best = max(best, int(match[1]))
        if entries > _MOST_ENTRIES:
            raise CheckpointError(f"it has a vocabulary of more than {_MOST_ENTRIES:,} entries")
    return Vocabulary("tiktoken", token_of(best, ""), entries)


class _TekkenConfig(Struct):
    default_vocab_size: Annotated[int, Meta(gt=0)]


class _Tekken(Struct):
    config: _TekkenConfig


def tekken(start: bytes) -> Vocabulary:
    """Read the number of ids in the settings, which precede the vocabulary."""
    size = decoded(_closed(start), _Tekken).config.default_vocab_size
    return Vocabulary("tekken", token_of(size - 1, ""), size)


def token_object(data: bytes, tokens: Collection[str] = ()) -> Vocabulary:
    """Return the Vocabulary in a vocab.json, `{"token": id}`; look up `tokens` in it."""
    vocabulary = memoryview(data.strip())
    highest, entries, ids = _entries(vocabulary, tokens)
    matches = islice(_SPECIAL.finditer(data, 0, _LOOKED_AT), _MOST_SPECIAL)
    special = {token_of(int(match[2]), match[1].decode(errors="replace")) for match in matches}
    special.update(_sorted_tokens(ids))
    return Vocabulary("object", highest, entries, special=tuple(sorted(special)))


def added_object(data: bytes) -> Vocabulary:
    """Return the Vocabulary in an added_tokens.json, `{"token": id}`, with all its tokens."""
    vocabulary = token_object(data)
    if (vocabulary.entries or 0) > MOST_ADDED:
        return vocabulary
    tokens = decoded(data, dict[str, int])
    added = tuple(sorted(token_of(number, text) for text, number in tokens.items()))
    return Vocabulary("added", None, vocabulary.entries, added)


def token_lines(data: bytes, tokens: Collection[str] = ()) -> Vocabulary:
    """Return the Vocabulary in a vocab.txt, a line for each token; look up `tokens` in it."""
    entries = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if not entries:
        raise CheckpointError("it is empty")
    text = data.rstrip(b"\r\n").rpartition(b"\n")[2][:1024].decode(errors="replace")
    token_by_line = {text.encode(errors="replace"): text for text in tokens}
    lines = enumerate(data.split(b"\n")) if token_by_line else ()
    special = tuple(
        token_of(at, token_by_line[line]) for at, line in lines if line in token_by_line
    )
    return Vocabulary("lines", token_of(entries - 1, text), entries, special=special)
