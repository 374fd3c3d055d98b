"""Read the Hub's list of models: pages of a thousand models, one request a page.

A page is cut into its entries, which are parsed one by one: memory stays bounded, and a model with
millions of files or a broken entry affects no other.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from huggingface_hub import constants

from auditor.bounded.json_text import MAX_DEPTH, MAX_TEXT_VALUES, bounds_fault
from auditor.checkpoint.hub_listing import id_fault
from auditor.downloader.answers import Answer, whole_body
from auditor.downloader.http import Session
from auditor.downloader.hub_settings import endpoint, endpoint_url, plain_url
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

PAGE = 1000  # models of one request, the most that the Hub allows

# Bounds of a page: bytes (a thousand models of twenty files have 1 MB) and seconds of network; and
# of the list: pages, ten times those of the Hub's 3 million models.
MAX_PAGE = 64 * 1024 * 1024
PAGE_SECONDS = 300.0
MAX_PAGES = 30_000

# The most files of one model: the Hub recommends fewer, and these take 8 MB of the list.
MAX_FILES = 100_000

# RFC 8288 allows other parameters before rel, and a relation without quotes.
_NEXT = re.compile(
    r'<([^<>]{1,8192})>\s*;(?:[^<>,]{0,200};)?\s*rel\s*=\s*(?:"next"|next\b)', re.IGNORECASE
)
_ADDRESS = re.compile(r"<[^<>]*>")


class ListEntry(NamedTuple):
    """An entry of the list: a valid model id, and unchecked values as the Hub sends them."""

    id: str
    sha: object = None
    siblings: object = None
    last_modified: object = None
    excess: str | None = None  # why the entry is too large to be parsed; then only its id is known


def pages(
    session: Callable[[], Session], query: Iterable[tuple[str, str]]
) -> Iterator[tuple[ListEntry, ...]]:
    """Yield the pages of /api/models, without entries that have no valid model id.

    Each page is read in a new `session()`, with its own bounds; a very long page is yielded in
    several parts. The list ends at a page without a next page. Raise SourceError if the list does
    not end, or has an empty page before its end.

    huggingface_hub's list_models hides the headers, which the budget needs, does not retry the
    first page, and reads bodies of any length.
    """
    parameters = urlencode(list(query), errors="surrogateescape")  # arguments may not be UTF-8
    address: str | None = f"{endpoint()}/api/models?{parameters}"
    addresses: set[int] = set()  # their hashes: an address may have 8 kB
    previous_ids: set[str] = set()
    while address is not None:
        _require_new(address, addresses)
        content, address = session().get(address, _page, purpose="a page of the list")
        ids: set[str] = set()
        for part in entries_in(content):
            yield part
            ids.update(entry.id for entry in part)
        if address is not None and ids <= previous_ids:
            detail = f"page {len(addresses):,} of the Hub's list of models has no new model"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        previous_ids = ids


def _require_new(address: str, addresses: set[int]) -> None:
    """Record a page's address; raise SourceError if it repeats or there are too many."""
    if hash(address) in addresses:
        detail = "the Hub's list of models is circular: the address of a page is repeated"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    if len(addresses) == MAX_PAGES:
        detail = f"the list of models has more than {MAX_PAGES:,} pages"
        ways = "select fewer models (--author, --filter, --search, --top)"
        raise SourceError(Reason.TOO_LARGE, f"{detail}; {ways}")
    addresses.add(hash(address))


def _page(answer: Answer) -> tuple[bytes, str | None]:
    """Return a page and the next page's address, None for the last page.

    Raise SourceError if the address is not on the Hub, because the token is sent to it.
    """
    content = whole_body(MAX_PAGE, "a page of the list of models")(answer)
    link = answer.headers.get("link", "")
    match = _NEXT.search(link)
    if not match:
        if re.search(r"[<>]|\bnext\b", _ADDRESS.sub("", link).lower()):
            detail = f"the Link header of the list of models is {quoted(link)}"
            expected = 'expected <ADDRESS>; rel="next"'
            raise SourceError(Reason.BAD_RESPONSE, f"{detail}, {expected}")
        return content, None
    with suppress(ValueError):
        if plain_url(match[1]).origin_ascii == endpoint_url().origin_ascii:
            return content, match[1]
    detail = f"the next page of the list of models is {quoted(match[1])}, expected one of the Hub"
    raise SourceError(Reason.BAD_RESPONSE, detail)


# --- one page -------------------------------------------------------------------------------------


# The most commas in a page: 64 MB cannot hold more files, and each comma may begin an entry.
_MOST_VALUES = 2_000_000

_MOST_VALUES_IN_GROUP = 100_000  # of a group, unless one entry has more; files take 12 MB

_CUT_UP = msgspec.json.Decoder(list[msgspec.Raw]).decode
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")  # msgspec rejects a lone surrogate
_ID = re.compile(rb'"id"\s*+:\s*+"([^"\\]{1,200})"')
_BEGINS = (b",", b"[", b"{")  # the bytes after which a value begins


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
