"""tokenizer.json of the tokenizers library: its added tokens, and the highest id of its model.

    {"version", "truncation", "padding", "added_tokens": [{"id", "content", "special", ...}, ...],
     "normalizer", "pre_tokenizer", "post_processor", "decoder",
     "model": {"type": "BPE", ..., "vocab": {"token": id, ...}, "merges": [...]}}

A Unigram model has `"vocab": [["token", score], ...]`, where the place is the id. Read are a whole
file, or its start, where the added tokens are, and its end, where WordPiece has its last token.
"""

import re
from collections.abc import Iterator

from auditor.companions.json_scan import (
    EndsEarlyError,
    Highest,
    ScanError,
    highest_of_list,
    highest_of_object,
    items,
    json_members,
    text_of,
    value,
)
from auditor.companions.vocabulary import MOST_ADDED, Token, Vocabulary, token_of

_SORTED_BY_ID = frozenset({"WordPiece", "WordLevel"})  # and with the vocabulary last
# What follows a vocabulary of BPE, which is too long for a start: 10 ms that tell nothing.
_AFTER_VOCABULARY = b'"merges"'
_LAST = re.compile(
    rb'("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*(\d{1,20})[ \t\r\n]*\}[ \t\r\n]*\}[ \t\r\n]*\}\s*\Z',
    re.DOTALL,
)
_LONGEST_ENTRY = 4096  # bytes of the end that are looked at
_MOST_AT_ONCE = 2 * 1024 * 1024  # bytes; the 6,415 added tokens of Gemma 3 have 1.2 MB


def read(start: bytes, end: bytes = b"", *, whole: bool = True) -> Vocabulary:
    """Read a tokenizer.json: `start` is all of it, or its first bytes and `end` its last."""
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
    return Vocabulary(
        kind=found.kind or "tokenizers",
        highest=top or found.last,
        entries=highest.entries if highest else None,
        added=tuple(sorted(found.added)),
        unread=unread if highest is None or not found.all_added else "",
    )


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
                a_list = data[inside : inside + 1] == b"["
                self.highest = (highest_of_list if a_list else highest_of_object)(data, inside)
                if self.all_added:
                    return


def _added(data: bytes, at: int) -> Iterator[Token]:
    for place, said in enumerate(_objects(data, at)):
        if place >= MOST_ADDED:
            raise ScanError(f"has more than {MOST_ADDED:,} added tokens")
        match said:
            case {"id": int(number), "content": str(text)} if not isinstance(number, bool):
                yield token_of(number, text)
            case _:
                raise ScanError("has an added token without an id")


def _objects(data: bytes, at: int) -> Iterator[object]:
    """The items of a list at once, or, where it is long or its end is not here, one by one."""
    try:
        said = value(data, at, _MOST_AT_ONCE)
    except EndsEarlyError:
        said = None
    if isinstance(said, list):
        yield from said
    else:
        yield from (value(data, item) for item in items(data, at))
