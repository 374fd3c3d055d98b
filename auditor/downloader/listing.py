"""The Hub's list of models: about a thousand a request, one page after another."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlencode

from huggingface_hub import constants

from auditor.containers.words import quoted
from auditor.downloader.body import Answer
from auditor.downloader.http import Session
from auditor.downloader.hub import endpoint
from auditor.downloader.patience import PassingError
from auditor.downloader.request import id_fault
from auditor.downloader.wire import Address, BadAddressError
from auditor.errors import Reason, SourceError

# Bytes of one page: a thousand models of twenty files each have 1 MB.
MAX_PAGE = 64 * 1024 * 1024
PAGE_SECONDS = 300.0  # of network for one

_NEXT = re.compile(r'<([^<>]{1,8192})>\s*;\s*rel="next"')

Entry = Mapping[str, object]  # has an "id" that is one; the rest is as the Hub sent it


def pages(session: Session, query: Iterable[tuple[str, str]]) -> Iterator[tuple[Entry, ...]]:
    """The pages of /api/models; of each the entries whose id is a model's.

    Not huggingface_hub's list_models: that hides the headers, of which the budget is made, does
    not try the first page twice, and reads bodies of any length.
    """
    address: str | None = f"{endpoint()}/api/models?{urlencode(list(query))}"
    seen = set[str]()
    while address is not None:
        if address in seen:
            raise SourceError(Reason.BAD_RESPONSE, "the Hub's list of models goes round in circles")
        seen.add(address)
        content, address = session.get(address, _page)
        yield content


def _page(answer: Answer) -> tuple[tuple[Entry, ...], str | None]:
    """The entries, and the address of the next page."""
    content = answer.body.upto(MAX_PAGE + 1)
    if len(content) > MAX_PAGE:
        detail = f"a page of the list of models has more than {MAX_PAGE:,} bytes"
        raise SourceError(Reason.TOO_LARGE, detail)
    if answer.length not in {None, len(content)}:
        detail = f"{answer.host} sent {len(content):,} bytes of a page of {answer.length:,}"
        raise PassingError(Reason.BAD_RESPONSE, detail)
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        detail = f"the list of models is no list: is {quoted(constants.ENDPOINT)} a Hub?"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    return tuple(entry for entry in entries if _names_a_model(entry)), _following(answer)


def _names_a_model(entry: object) -> bool:
    name = entry.get("id") if isinstance(entry, dict) else None
    return isinstance(name, str) and not id_fault(name)


def _following(answer: Answer) -> str | None:
    """The next page's address, which has to be of the Hub: the token goes there."""
    found = _NEXT.search(answer.headers.get("link", ""))
    if not found:
        return None
    if not _of_the_hub(found[1]):
        detail = f"the list of models goes on at {quoted(found[1])}, which is not of the Hub"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    return found[1]


def _of_the_hub(address: str) -> bool:
    try:
        return Address.of(address).origin == Address.of(endpoint()).origin
    except BadAddressError:
        return False
