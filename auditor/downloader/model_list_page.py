"""Parse one page of the Hub's list of models; a broken entry does not affect the others.

A page is cut into its entries, which are parsed one by one: memory stays bounded, and a model with
millions of files affects no other.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from huggingface_hub import constants

from auditor.bounded.json_text import MAX_DEPTH, MAX_TEXT_VALUES, bounds_fault
from auditor.checkpoint.hub_listing import id_fault
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

# Most files of one model: the Hub recommends fewer, and so many take 8 MB of the list.
MAX_FILES = 100_000

# The most commas in a page: 64 MB have room for so many files, and each comma may begin an entry.
_MOST_VALUES = 2_000_000

_MOST_VALUES_IN_GROUP = 100_000  # of a group, unless one entry has more; files take 12 MB

_CUT_UP = msgspec.json.Decoder(list[msgspec.Raw]).decode
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")  # msgspec rejects a lone surrogate
_ID = re.compile(rb'"id"\s*+:\s*+"([^"\\]{1,200})"')
_BEGINS = (b",", b"[", b"{")  # the bytes after which a value begins


class ListEntry(NamedTuple):
    """An entry of the list: a valid model id, and unchecked values as the Hub sends them."""

    id: str
    sha: object = None
    siblings: object = None
    last_modified: object = None
    excess: str | None = None  # why the entry is too large to be parsed; then only its id is known


class _Entry(msgspec.Struct):
    id: str
    sha: Any = None
    siblings: Any = None
    last_modified: Any = msgspec.field(name="lastModified", default=None)


_PARSED = msgspec.json.Decoder(_Entry).decode


def entries_in(content: bytes) -> Iterator[tuple[ListEntry, ...]]:
    """Yield the entries of a page that name a model, in groups of bounded size.

    Raise SourceError if the page is not a JSON list, or is too large.
    """
    group: list[ListEntry] = []
    group_values = 0
    for piece in _pieces(content):
        if fault := bounds_fault(piece, MAX_DEPTH, MAX_TEXT_VALUES):
            entry, values = _too_large(piece, fault), 0
        else:
            entry, values = _entry(piece), sum(map(piece.count, _BEGINS))
        if group_values + values > _MOST_VALUES_IN_GROUP:
            yield tuple(group)
            group, group_values = [], 0
        group_values += values
        if entry:
            group.append(entry)
    yield tuple(group)


def _entry(piece: bytes) -> ListEntry | None:
    """Parse the JSON of one entry; return None if it does not name a model."""
    try:
        entry = _PARSED(piece)
    except ValueError:  # not an object with an id, or not UTF-8
        return None
    if id_fault(entry.id):
        return None
    files = entry.siblings
    if isinstance(files, list) and len(files) > MAX_FILES:
        excess = f"has {len(files):,} files, expected at most {MAX_FILES:,}"
        return ListEntry(entry.id, excess=excess)
    return ListEntry(entry.id, entry.sha, files, entry.last_modified)


def _too_large(piece: bytes, excess: str) -> ListEntry | None:
    """Return an entry with only the id, for JSON too large to parse; None if no id is found."""
    match = _ID.search(piece)
    name = match[1].decode("utf-8", "replace") if match else ""
    return None if id_fault(name) else ListEntry(name, excess=excess)


def _pieces(content: bytes) -> Iterator[bytes]:
    """Yield the undecoded entries of a JSON list."""
    if content.count(b",") > _MOST_VALUES:
        detail = f"a page of the list of models has more than {_MOST_VALUES:,} values"
        raise SourceError(Reason.TOO_LARGE, detail)
    for text in (content, _SURROGATE.sub(rb"\\ufffd", content)):
        with suppress(msgspec.DecodeError, RecursionError):
            return map(bytes, _CUT_UP(text))
    detail = f"the list of models is not a JSON list: is {quoted(constants.ENDPOINT)} a Hub?"
    raise SourceError(Reason.BAD_RESPONSE, detail)
