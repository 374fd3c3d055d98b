"""One page of the Hub's list of models, bytes -> entries: no single model can spoil it.

A page has a thousand models of twenty files, which are 40,000 JSON values, and is read at once. One
that has many more is cut up first and read an entry at a time, so that what is held at once stays
bounded, and so that a model with millions of files is that model's trouble alone.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from auditor.containers.bounded_json import MAX_DEPTH, MAX_TEXT_VALUES, bounds_fault
from auditor.downloader.model_argument import id_fault
from auditor.errors import Reason, SourceError

# Of one model; the Hub recommends fewer for a repository, and 8 MB of its list hold that many.
MAX_FILES = 100_000

# Strings and brackets of a page that is cut up, an object without another one in it being a single
# one: this many take 4 s. A page of a million files has a million.
_MOST_MARKS = 8_000_000

_MOST_HELD = 100_000  # values of one group, unless a single entry has more; 12 MB as files

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = rb'\{[^\[\]{}"]*+(?:' + _STRING + rb'[^\[\]{}"]*+)*+\}'
_MARK = re.compile(_FLAT + rb"|" + _STRING + rb"|[\[\]{}]", re.DOTALL)
_LIST = re.compile(rb"\s*+\[")
_ID = re.compile(rb'"id"\s*+:\s*+"([^"\\]{1,200})"')


class NotAListError(ValueError):
    """A page is not a JSON list."""


class Crowded(NamedTuple):
    """A model of which the list has more than is read, and what of."""

    id: str
    detail: str


Entry = Mapping[str, object] | Crowded  # a mapping has an "id" that is one; the rest is the Hub's


def entries_in(content: bytes) -> Iterator[tuple[Entry, ...]]:
    """The entries of a page that name a model, in groups that are bounded.

    Raises NotAListError for what is not a JSON list, SourceError for one that holds too much.
    """
    if bounds_fault(content, MAX_DEPTH, MAX_TEXT_VALUES) is None:
        read = _value(content)
        if not isinstance(read, list):
            raise NotAListError
        yield tuple(entry for one in read if (entry := _entry(one)))
    else:
        yield from _groups(content)


def _groups(content: bytes) -> Iterator[tuple[Entry, ...]]:
    group: list[Entry] = []
    held = 0
    entry: Entry | None
    for piece in _pieces(content):
        if fault := bounds_fault(piece, MAX_DEPTH, MAX_TEXT_VALUES):
            entry, values = _crowded(piece, fault), 0
        else:
            entry, values = _entry(_value(piece)), sum(map(piece.count, _BEGINS))
        if held + values > _MOST_HELD:
            yield tuple(group)
            group, held = [], 0
        held += values
        if entry:
            group.append(entry)
    yield tuple(group)


def _entry(value: object) -> Entry | None:
    """An entry as it is used; None: it names no model."""
    name = value.get("id") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or id_fault(name):
        return None
    files = value.get("siblings")
    if isinstance(files, list) and len(files) > MAX_FILES:
        return Crowded(name, f"has {len(files):,} files; {MAX_FILES:,} are the most that are read")
    return value


def _crowded(piece: bytes, fault: str) -> Crowded | None:
    found = _ID.search(piece)
    name = found[1].decode("utf-8", "replace") if found else ""
    return None if not name or id_fault(name) else Crowded(name, fault)


def _value(content: bytes) -> object:
    try:
        value: object = json.loads(content)
    except ValueError:
        raise NotAListError from None
    return value


def _pieces(content: bytes) -> Iterator[bytes]:
    """The objects of a JSON list, cut out."""
    if not _LIST.match(content):
        raise NotAListError
    depth, start = 0, 0
    for number, mark in enumerate(_MARK.finditer(content)):
        if number >= _MOST_MARKS:
            detail = f"a page of the list of models has more than {_MOST_MARKS:,} strings and lists"
            raise SourceError(Reason.TOO_LARGE, detail)
        kind = mark[0]
        if depth == 1 and kind[0] == _BRACE and len(kind) > 1:
            yield kind
        elif kind in _OPENING:
            start = mark.start() if depth == 1 else start
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
            if depth == 1 and kind == b"}":
                yield content[start : mark.end()]
            elif depth == 0:
                return
    raise NotAListError


_BEGINS = (b",", b"[", b"{")  # a value, nearly
_BRACE = ord("{")
_OPENING, _CLOSING = frozenset((b"[", b"{")), frozenset((b"]", b"}"))
