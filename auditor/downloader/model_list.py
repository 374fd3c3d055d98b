"""The Hub's list of models: about a thousand a request, one page after another."""

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

PAGE = 1000  # models a request: the most that the Hub lists

# Each page has bounds of its own, and the list has one. Bytes: a thousand models of twenty files
# have 1 MB. Seconds of network. Pages: ten times what the Hub has, 3 million models.
MAX_PAGE = 64 * 1024 * 1024
PAGE_SECONDS = 300.0
MAX_PAGES = 30_000

_NEXT = re.compile(r'<([^<>]{1,8192})>\s*;\s*rel="next"')
_EMPTY = re.compile(rb"\s*\[\s*\]\s*")


class ListWalk:
    """A record of the pages of a list read so far, to detect a list that never ends.

    It has at most 30,000 digests of addresses, as many of pages, and the ids of one page.
    """

    def __init__(self, most: int = MAX_PAGES) -> None:
        self._most = most
        self._addresses = set[bytes]()
        self._pages = set[bytes]()
        self._before = frozenset[str]()

    def turn(self, address: str) -> None:
        """Record the address of the next page; raise SourceError if it repeats or is too many."""
        digest = _digest(address)
        if digest in self._addresses:
            detail = "the Hub's list of models goes round in circles: an address comes again"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        if len(self._addresses) == self._most:
            detail = f"the list of models has more than {self._most:,} pages, the most that are"
            ways = "ask for fewer (--author, --filter, --search, --top)"
            raise SourceError(Reason.TOO_LARGE, f"{detail} read: {ways}")
        self._addresses.add(digest)

    def bring(self, ids: Iterable[str]) -> None:
        """Record the ids of a page before the last; raise SourceError if none of them is new."""
        names = frozenset(ids)
        digest = _digest(*sorted(names))
        if digest in self._pages or names <= self._before:
            number = len(self._addresses)
            detail = f"the Hub's list of models goes on, and page {number:,} has no new model"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        self._pages.add(digest)
        self._before = names


def pages(
    session: Callable[[], Session], query: Iterable[tuple[str, str]]
) -> Iterator[tuple[ListEntry, ...]]:
    """The pages of /api/models; of each the entries whose id is a model's.

    Each page is asked for by a `session` of its own, with bounds of its own; one that holds very
    much comes in several parts. An empty page is the last one, as is one without a next. Raises
    SourceError for a list that goes on for ever.

    Not huggingface_hub's list_models: that hides the headers, of which the budget is made, does
    not try the first page twice, and reads bodies of any length.
    """
    asked = urlencode(list(query), errors="surrogateescape")  # as bytes that are no UTF-8 come here
    address: str | None = f"{endpoint()}/api/models?{asked}"
    walk = ListWalk()
    while address is not None:
        walk.turn(address)
        content, address = session().get(address, _page, purpose="a page of the list")
        if _EMPTY.fullmatch(content):
            return
        ids: list[str] = []
        for part in entries_in(content):
            yield part
            ids += (entry.id for entry in part)
        if address is not None:
            walk.bring(ids)


def _page(answer: Answer) -> tuple[bytes, str | None]:
    """A page, and the address of the next one."""
    content = whole_body(MAX_PAGE, "a page of the list of models")(answer)
    return content, _following(answer)


def _following(answer: Answer) -> str | None:
    """The next page's address, which has to be of the Hub: the token goes there."""
    found = _NEXT.search(answer.headers.get("link", ""))
    if not found:
        return None
    with suppress(ValueError):
        if plain_url(found[1]).origin_ascii == endpoint_url().origin_ascii:
            return found[1]
    detail = f"the list of models goes on at {quoted(found[1])}, which is not of the Hub"
    raise SourceError(Reason.BAD_RESPONSE, detail)


def _digest(*names: str) -> bytes:
    return blake2b("\n".join(names).encode(errors="surrogatepass"), digest_size=16).digest()
