"""Read the Hub's list of models: pages of a thousand models, one request a page."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from urllib.parse import urlencode

from auditor.downloader.answers import Answer, whole_body
from auditor.downloader.http import Session
from auditor.downloader.hub_settings import endpoint, endpoint_url, plain_url
from auditor.downloader.model_list_page import ListEntry, entries_in
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

PAGE = 1000  # models of one request, the most that the Hub allows

# Bounds of a page: bytes (a thousand models of twenty files have 1 MB) and seconds of network; and
# of the list: pages, ten times those of the Hub's 3 million models.
MAX_PAGE = 64 * 1024 * 1024
PAGE_SECONDS = 300.0
MAX_PAGES = 30_000

# RFC 8288 allows other parameters before rel, and a relation without quotes.
_NEXT = re.compile(
    r'<([^<>]{1,8192})>\s*;(?:[^<>,]{0,200};)?\s*rel\s*=\s*(?:"next"|next\b)', re.IGNORECASE
)
_ADDRESS = re.compile(r"<[^<>]*>")


class ListWalk:
    """A record of the pages of a list read so far, to detect a list that never ends.

    At most 30,000 digests of addresses, 30,000 digests of pages and the ids of one page are kept.
    """

    def __init__(self, most: int = MAX_PAGES) -> None:
        self._most = most
        self._addresses = set[bytes]()
        self._pages = set[bytes]()
        self._previous_ids = frozenset[str]()

    def record_address(self, address: str) -> None:
        """Record the next page's address; raise SourceError if it repeats or there are too many."""
        digest = _digest(address)
        if digest in self._addresses:
            detail = "the Hub's list of models is circular: the address of a page is repeated"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        if len(self._addresses) == self._most:
            detail = f"the list of models has more than {self._most:,} pages"
            ways = "select fewer models (--author, --filter, --search, --top)"
            raise SourceError(Reason.TOO_LARGE, f"{detail}; {ways}")
        self._addresses.add(digest)

    def record_ids(self, ids: Iterable[str]) -> None:
        """Record a page's ids; raise SourceError if no id is new. Not called for the last page."""
        names = frozenset(ids)
        digest = _digest(*sorted(names))
        if digest in self._pages or names <= self._previous_ids:
            number = len(self._addresses)
            detail = f"page {number:,} of the Hub's list of models has no new model"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        self._pages.add(digest)
        self._previous_ids = names


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
    walk = ListWalk()
    while address is not None:
        walk.record_address(address)
        content, address = session().get(address, _page, purpose="a page of the list")
        ids: list[str] = []
        for part in entries_in(content):
            yield part
            ids += (entry.id for entry in part)
        if address is not None:
            walk.record_ids(ids)


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


def _digest(*names: str) -> bytes:
    return blake2b("\n".join(names).encode(errors="surrogatepass"), digest_size=16).digest()
