"""A model on the Hub: one request for its listing, then config and headers at that very commit."""

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import NamedTuple
from urllib.parse import quote

from huggingface_hub import constants

from auditor.checkpoint.selecting import name_fault, select
from auditor.checkpoint.selection import Chooser
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.containers.bounded_json import parse_object
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER
from auditor.downloader.access_token import usable_token
from auditor.downloader.assemble import assemble
from auditor.downloader.endpoint import asked_origin, endpoint
from auditor.downloader.headers import FIRST_READ, Received, read_header
from auditor.downloader.http import Session
from auditor.downloader.http_errors import OFFLINE
from auditor.downloader.model_argument import HubModel, id_fault
from auditor.downloader.response_body import Answer, whole_number
from auditor.downloader.retry import PassingError
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import described, quoted
from auditor.tensors import Span

# Bytes of a listing: about 150 a file, so this is a hundred thousand files.
MAX_LISTING = 16 * 1024 * 1024

# Bytes up to which a file is read from its start where the server does not know ranges: the
# longest safetensors header. The directory of a torch file of 7 GB lies behind all of its data.
_MOST_SKIPPED = MAX_HEADER + LENGTH_BYTES

_COMMIT = re.compile(r"[0-9a-f]{40}")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class Listing(NamedTuple):
    """A model at one commit: its id after renames, and every file."""

    model_id: str
    commit: str
    files: tuple[RepoFile, ...]  # sorted by name


def read(
    model: HubModel, token: str | None, say: Callable[[str], None], choose: Chooser = select
) -> Snapshot:
    """The snapshot of a model as the Hub has it now."""
    if constants.is_offline_mode():
        raise SourceError(Reason.OFFLINE, OFFLINE)
    session = Session(model, usable_token(token), say)
    return read_from_listing(model, fetch_listing(model, session), session, choose)


def fetch_listing(model: HubModel, session: Session) -> Listing:
    """The commit and the files of a model, for one request."""
    revision = quote(model.revision or constants.DEFAULT_REVISION, safe="")
    address = f"{endpoint()}/api/models/{model.id}/revision/{revision}?blobs=true"
    return parse_listing(session.get(address, whole_body(MAX_LISTING, None)), model.id)


def read_from_listing(
    model: HubModel,
    listing: Listing,
    session: Session,
    choose: Chooser = select,
    pool: Executor | None = None,
) -> Snapshot:
    """The snapshot of a model whose files are known; `pool` as `assemble` has it."""
    selection = choose({file.name for file in listing.files}, listing.model_id)
    files = _HubFiles(session, f"{endpoint()}/{listing.model_id}/resolve/{listing.commit}", listing)
    contents = assemble(files, listing.files, selection, pool)
    return Snapshot(
        model=listing.model_id,
        commit=listing.commit,
        source=Source.HUB,
        origin=_origin(model, listing),
        files=listing.files,
        **vars(contents),
        fetched=session.fetched,
    )


def parse_listing(content: bytes, model_id: str) -> Listing:
    """The Hub's answer about a model; raises SourceError where it is not such an answer."""
    try:
        answer = parse_object(content, "the Hub's listing")
    except CheckpointError as error:
        detail = f"{error}: is {quoted(constants.ENDPOINT)} a Hub?"
        raise SourceError(Reason.BAD_RESPONSE, detail) from None
    return listing_of(answer, model_id)


def listing_of(answer: Mapping[str, object], model_id: str) -> Listing:
    """The same of an answer that is parsed already: an entry of the list of models."""
    found, commit, siblings = (answer.get(key) for key in ("id", "sha", "siblings"))
    if not isinstance(found, str) or id_fault(found):
        raise _odd(model_id, f"as its id {described(found)}")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise _odd(model_id, f"as its commit {described(commit)}, expected 40 hex digits")
    if not isinstance(siblings, list):
        raise _odd(model_id, f"as its files {described(siblings)}, expected a list")
    files = {file.name: file for entry in siblings if (file := _repo_file(model_id, entry))}
    return Listing(found, commit, tuple(files[name] for name in sorted(files)))


class _HubFiles:
    """Reads the files of one model at one commit."""

    def __init__(self, session: Session, address: str, listing: Listing) -> None:
        self._session = session
        self._address = address  # up to the file's name
        self._commit = listing.commit

    def text(self, file: RepoFile, limit: int) -> TextFile:
        if file.size is not None and file.size > limit:
            raise _too_large(file.name, f"{file.size:,}", limit)
        content = self._session.get(self._url(file), whole_body(limit, file), commit=self._commit)
        return TextFile(name=file.name, content=content)

    def header(self, file: RepoFile, first: int = FIRST_READ) -> WeightHeader:
        def read(span: Span, end: Callable[[bytes, int | None], int]) -> Received:
            # The redirect's target is asked for anew: its signature holds for this range alone.
            return self._session.get(
                self._url(file), _ranged(file, span, end), span=span, commit=self._commit
            )

        return read_header(file.name, file.size, read, first)

    def stop(self) -> None:
        self._session.stop()

    def _url(self, file: RepoFile) -> str:
        return f"{self._address}/{quote(file.name)}"


def whole_body(limit: int, file: RepoFile | None) -> Callable[[Answer], bytes]:
    """Takes a whole body of at most `limit` bytes, as long as the listing says."""

    def take(answer: Answer) -> bytes:
        name = file.name if file else "the listing"
        if answer.partial:
            raise SourceError(Reason.BAD_RESPONSE, f"{answer.host} sent a part of {name}, unasked")
        content = answer.body.upto(limit + 1)
        if len(content) > limit:
            raise _too_large(name, "more", limit)
        if file and file.size not in {None, len(content)}:
            detail = f"{answer.host} sent {len(content):,} bytes of {quoted(name)}"
            raise PassingError(Reason.BAD_RESPONSE, f"{detail}, which has {file.size:,}")
        return content

    return take


def _ranged(
    file: RepoFile, span: Span, end: Callable[[bytes, int | None], int]
) -> Callable[[Answer], Received]:
    """Takes the span of a 206; of a 200, which ignores the range, no more than the header."""

    def take(answer: Answer) -> Received:
        size = _size(answer, file, span)
        if answer.partial:
            stop = span.stop if size is None else min(span.stop, size)
            data = answer.body.upto(stop - span.start)
        else:
            if span.stop > _MOST_SKIPPED:
                raise SourceError(Reason.BAD_RESPONSE, _unranged(answer, file, span))
            data = answer.body.upto(span.stop)
            stop = max(span.stop, end(data, size)) if span.start == 0 else span.stop
            stop = stop if size is None else min(stop, size)
            data = answer.body.upto(stop)[span.start :]
        if len(data) != stop - span.start:
            detail = f"{answer.host} sent {len(data):,} bytes of {stop - span.start:,} asked for"
            raise PassingError(Reason.BAD_RESPONSE, detail)
        return Received(data, size)

    return take


def _unranged(answer: Answer, file: RepoFile, span: Span) -> str:
    whole = f"{answer.host} sends the whole of {quoted(file.name)} where a part is asked for"
    return f"{whole}, and the part at byte {span.start:,} is too far from its start to wait for"


def _size(answer: Answer, file: RepoFile, span: Span) -> int | None:
    """The whole file's size, on which the listing and every header of the answer must agree."""
    claims = {file.size, answer.linked_size}
    if answer.partial:
        claims.add(_total(answer, span))
    else:
        claims.add(answer.length)
    sizes = sorted(size for size in claims if size is not None)
    if len(sizes) > 1:
        detail = f"{answer.host} and the Hub disagree on the size of {quoted(file.name)}"
        raise PassingError(
            Reason.BAD_RESPONSE, f"{detail}: {', '.join(f'{size:,}' for size in sizes)} bytes"
        )
    return sizes[0] if sizes else None


def _total(answer: Answer, span: Span) -> int | None:
    """The size in a Content-Range, which must be of the very span that was asked for."""
    given = answer.headers.get("content-range", "")
    found = _CONTENT_RANGE.fullmatch(given)
    total = whole_number(found[3]) if found else None
    last = (span.stop if total is None else min(span.stop, total)) - 1
    if not found or (int(found[1]), int(found[2])) != (span.start, last):
        detail = f"{answer.host} was asked for {span.http_range} and sent {quoted(given)}"
        raise PassingError(Reason.BAD_RESPONSE, detail)
    return total


def _repo_file(model_id: str, entry: object) -> RepoFile:
    name, size = (
        (entry.get("rfilename"), entry.get("size")) if isinstance(entry, dict) else (None, None)
    )
    if not isinstance(name, str) or name_fault(name):
        raise _odd(model_id, f"a file named {described(name)}")
    if size is not None and (type(size) is not int or not 0 <= size < _LARGEST):
        raise _odd(model_id, f"as the size of {quoted(name)} {described(size)}")
    return RepoFile(name=name, size=size)


_LARGEST = 2**63


def _odd(model_id: str, what: str) -> SourceError:
    return SourceError(Reason.BAD_RESPONSE, f"the Hub's listing of {model_id} gives {what}")


def _too_large(name: str, size: str, limit: int) -> SourceError:
    detail = f"{quoted(name)} has {size} bytes; {limit:,} are the most that are read"
    return SourceError(Reason.TOO_LARGE, detail)


def _origin(model: HubModel, listing: Listing) -> str:
    scheme, netloc = asked_origin(constants.ENDPOINT)
    renamed = f"; {model.id} is now {listing.model_id}" if model.id != listing.model_id else ""
    return f"read from {scheme}://{netloc}{renamed}"
