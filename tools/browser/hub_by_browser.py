"""The Hub as a page reads it, by the browser's requests; in place of auditor.downloader.hub.

The requests are synchronous, which a browser allows in a worker, and each is sent once. A browser
follows redirects itself and hides their headers, so that the commit of a file is known by its
address alone, which names the commit of the listing.
"""

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from auditor.bounded.json_text import parse_object
from auditor.checkpoint.filenames import Chooser
from auditor.checkpoint.hub_listing import Listing, listing_of, snapshot_of
from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot, TextFile, WeightHeader
from auditor.companions.companion_files import OF_HUB
from auditor.downloader.assemble import assemble
from auditor.downloader.headers import FIRST_READ, Received, read_header
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import do_nothing, threads
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import quoted
from auditor.tensors import Span

settings = {"endpoint": "https://huggingface.co"}

_MAX_LISTING = 16 * 1024 * 1024  # bytes, as for the command
_PATIENCE = 30_000  # milliseconds for one answer
_OK, _PARTIAL, _SERVER_FAULT = 200, 206, 500
_REASONS = {
    401: Reason.NOT_FOUND,
    403: Reason.GATED,
    404: Reason.NOT_FOUND,
    429: Reason.RATE_LIMITED,
}
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)", re.ASCII)


class _Address(NamedTuple):
    authority: str


def endpoint_url() -> _Address:
    """Return the endpoint, as auditor.downloader.hub_settings does for pasted addresses."""
    return _Address(urlsplit(settings["endpoint"]).netloc)


def read(
    model: HubModel, token: str | None, say: Callable[[str], None], choose: Chooser
) -> Snapshot:
    """Return the snapshot of a model on the Hub, at the current commit of its revision."""
    del token, say  # a page has no token and no terminal
    session = _Session()
    revision = quote(model.revision or "main", safe="")
    address = f"{settings['endpoint']}/api/models/{model.id}/revision/{revision}?blobs=true"
    content, _ = session.get(address, None, "the listing")
    if len(content) > _MAX_LISTING:
        raise SourceError(Reason.TOO_LARGE, f"the listing has {len(content):,} bytes")
    try:
        listing = listing_of(parse_object(content, "the Hub's listing"), model.id)
    except CheckpointError as error:
        raise SourceError(Reason.BAD_RESPONSE, str(error)) from None
    selection = choose({file.name for file in listing.files}, listing.model_id)
    snapshot = snapshot_of(listing, model.id, model.revision, settings["endpoint"])
    with threads(0, do_nothing) as scheduler:
        snapshot = assemble(snapshot, _Files(session, listing), selection, scheduler)
    return replace(snapshot, fetched=session.fetched)


class _Session:
    """The requests of one audit, and what they cost."""

    fetched = Fetched()

    def get(self, url: str, span: Span | None, what: str) -> Received:
        """Return a file, or a span of it up to the file's end; raise SourceError if it fails."""
        from js import XMLHttpRequest  # noqa: PLC0415 - exists in a browser only
        from pyodide.ffi import JsException  # noqa: PLC0415 - likewise

        request, since = XMLHttpRequest.new(), time.monotonic()
        request.open("GET", url, False)  # noqa: FBT003 - JavaScript's
        request.responseType = "arraybuffer"
        request.timeout = _PATIENCE
        if span is not None:
            request.setRequestHeader("Range", f"bytes={span.start}-{span.stop - 1}")
        try:
            request.send()
        except JsException:
            detail = f"{what} cannot be read: the Hub did not answer, or does not allow this page"
            raise SourceError(Reason.UNREACHABLE, detail) from None
        data: bytes = request.response.to_bytes()
        cost = Fetched(requests=1, bytes=len(data), seconds=time.monotonic() - since)
        self.fetched = self.fetched.plus(cost)
        return Received(data, _checked_size(request, data, span, what))


def _checked_size(request: Any, data: bytes, span: Span | None, what: str) -> int | None:
    """Return the complete file's size, None if unknown; raise SourceError for a wrong answer."""
    status = request.status
    if status not in {_OK, _PARTIAL}:
        reason = Reason.SERVER_ERROR if status >= _SERVER_FAULT else Reason.BAD_RESPONSE
        raise SourceError(_REASONS.get(status, reason), f"the Hub answered {status} for {what}")
    if span is None:
        if status == _OK:
            return len(data)
        raise SourceError(Reason.BAD_RESPONSE, f"the Hub answered with a part of {what}")
    if status == _OK:  # the complete file, which is right if the span covers it
        if span.start == 0 and len(data) <= span.stop:
            return len(data)
        raise SourceError(Reason.BAD_RESPONSE, f"the Hub ignored the range of {what}")
    match = _RANGE.fullmatch(request.getResponseHeader("Content-Range") or "")
    if not match or int(match[1]) != span.start or int(match[2]) + 1 - span.start != len(data):
        raise SourceError(Reason.BAD_RESPONSE, f"the Hub answered with another range of {what}")
    return None if match[3] == "*" else int(match[3])


class _Files:
    """The files of one model at one commit."""

    bounds = OF_HUB
    patient = False

    def __init__(self, session: _Session, listing: Listing) -> None:
        self._session = session
        self._address = f"{settings['endpoint']}/{listing.model_id}/resolve/{listing.commit}"

    def text(self, file: RepoFile, limit: int) -> TextFile:
        if (file.size or 0) > limit:
            detail = f"{quoted(file.name)} has {file.size:,} bytes, expected at most {limit:,}"
            raise SourceError(Reason.TOO_LARGE, detail)
        content, size = self._get(file, Span(0, limit))
        if size is not None and size > limit:
            raise SourceError(Reason.TOO_LARGE, f"{quoted(file.name)} has {size:,} bytes")
        return TextFile(name=file.name, content=content)

    def header(self, file: RepoFile, first: int = FIRST_READ) -> WeightHeader:
        return read_header(file.name, file.size, lambda span, _: self._get(file, span), first)

    def part(self, file: RepoFile, span: Span) -> bytes:
        return self._get(file, span).data

    def _get(self, file: RepoFile, span: Span) -> Received:
        """Return a span up to the file's end; raise SourceError if the listed size is wrong."""
        if file.size is not None:
            span = Span(span.start, min(span.stop, file.size))
        if not span.length:
            return Received(b"", file.size)
        received = self._session.get(f"{self._address}/{quote(file.name)}", span, quoted(file.name))
        size = received.size
        if file.size not in {None, size} or len(received.data) != min(
            span.length, (size if size is not None else span.stop) - span.start
        ):
            detail = f"{quoted(file.name)} has another size than its listing says"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        return received
