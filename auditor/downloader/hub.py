"""Read a model of the Hub: its listing in one request, then config and headers at that commit."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from urllib.parse import quote

from huggingface_hub import constants
from msgspec.structs import replace

from auditor.bounded.json_text import parse_object
from auditor.checkpoint.filenames import CONFIG, Chooser
from auditor.checkpoint.hub_listing import Listing, authors_in, listing_of, snapshot_of
from auditor.checkpoint.selecting import WEIGHTS, select
from auditor.checkpoint.snapshot import (
    Fetched,
    RepoFile,
    Snapshot,
    TextFile,
    WeightHeader,
)
from auditor.companions.companion_files import OF_HUB, CompanionBounds
from auditor.downloader.answers import Answer, part_of_file, too_large, whole_body
from auditor.downloader.assemble import assemble
from auditor.downloader.headers import FIRST_READ, Received, read_header, safetensors_end
from auditor.downloader.http import RequestBudget, Session
from auditor.downloader.hub_settings import endpoint, endpoint_url, require_online, usable_token
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import Scheduler, awaited, threads
from auditor.downloader.waits import ProgressLines, ReadingProgress, headers_read
from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.tensors import Span

# Bytes of a listing: about 150 a file, so this is a hundred thousand files.
MAX_LISTING = 16 * 1024 * 1024

# Bytes of a list of commits: one commit, or the fifty of a page if the server ignores `limit`.
MAX_COMMITS = 1024 * 1024

# Concurrent reads: the 163 shards of DeepSeek-V3 take three round trips, or six with redirects.
_AT_ONCE = 64


def read(
    model: HubModel, token: str | None, say: Callable[[str], None], choose: Chooser = select
) -> Snapshot:
    """Return the snapshot of a model on the Hub, at the current commit of its revision."""
    require_online()
    lines = ProgressLines.of(say)
    session = Session(model, usable_token(token), lines)
    progress = ReadingProgress(lines.progress, headers_read(lambda: session.fetched.bytes))
    with threads(_AT_ONCE, session.stop) as scheduler:
        listing = scheduler.submit(fetch_listing, model, session)
        early = EarlyReads()
        early.begin(scheduler, session, model, choose)
        return _read_files(
            model,
            awaited(listing, partial(progress, 0, 1)),
            session,
            choose,
            scheduler=scheduler,
            early=early,
            progress=progress,
        )


def fetch_listing(model: HubModel, session: Session) -> Listing:
    """Return the commit and the files of a model, in one request."""
    address = f"{endpoint()}/api/models/{model.id}/revision/{_revision(model)}?blobs=true"
    take = whole_body(MAX_LISTING, "the listing")
    return parse_listing(session.get(address, take, purpose="the listing"), model.id)


def fetch_authors(model: HubModel, commit: str, session: Session) -> str | None:
    """Return the authors of a commit, in one request; None if the answer does not name them.

    huggingface_hub's list_repo_commits reads all pages of commits.
    """
    address = f"{endpoint()}/api/models/{model.id}/commits/{commit}?limit=1"
    take = whole_body(MAX_COMMITS, "the list of commits")
    return authors_in(session.get(address, take, purpose="who pushed the commit"), commit)


def _revision(model: HubModel) -> str:
    return quote(model.revision or constants.DEFAULT_REVISION, safe="")


def read_listing(
    model: HubModel, token: str | None, say: Callable[[str], None]
) -> tuple[Listing, Fetched]:
    """Return the commit and the files of a model, and the number of requests and bytes."""
    require_online()
    session = Session(model, usable_token(token), ProgressLines.of(say))
    return fetch_listing(model, session), session.fetched


def read_from_listing(  # noqa: PLR0913 - what is read, and how
    model: HubModel,
    listing: Listing,
    session: Session,
    choose: Chooser = select,
    *,
    pool: Executor | None = None,
    patient: bool = False,
) -> Snapshot:
    """Return the snapshot of a model whose files are known.

    `pool` provides the threads; several models may share it. If `patient`, companion files are
    retried like other files, as in a sweep, where no user waits. Otherwise they get one attempt.
    """
    with threads(_AT_ONCE, session.stop, pool) as scheduler:
        return _read_files(model, listing, session, choose, scheduler=scheduler, patient=patient)


def _read_files(  # noqa: PLR0913 - likewise, and the early reads
    model: HubModel,
    listing: Listing,
    session: Session,
    choose: Chooser,
    *,
    scheduler: Scheduler,
    early: "EarlyReads | None" = None,
    progress: Callable[[int, int], None] = lambda _count, _total: None,
    patient: bool = False,
) -> Snapshot:
    host = endpoint_url().origin_ascii
    snapshot = snapshot_of(listing, model.id, model.revision, host)
    files = _HubFiles(session, listing, early, patient=patient)
    try:
        selection = choose({file.name for file in listing.files}, listing.model_id)
        snapshot = assemble(snapshot, files, selection, scheduler, progress)
    except SourceError as error:
        error.snapshot = snapshot
        raise
    unnamed = "; its files name no commit, the listing's is given" * session.names_no_commit
    return replace(snapshot, fetched=session.fetched, origin=snapshot.origin + unnamed)


def parse_listing(content: bytes, model_id: str) -> Listing:
    """Parse the Hub's answer about a model; raise SourceError if it is not a listing."""
    try:
        answer = parse_object(content, "the Hub's listing")
    except CheckpointError as error:
        detail = f"{error}: is {quoted(constants.ENDPOINT)} a Hub?"
        raise SourceError(Reason.BAD_RESPONSE, detail) from None
    return listing_of(answer, model_id)


class _HubFiles:
    """The files of one model at one commit."""

    bounds: CompanionBounds | None = OF_HUB

    def __init__(
        self,
        session: Session,
        listing: Listing,
        early: "EarlyReads | None" = None,
        *,
        patient: bool = False,
    ) -> None:
        self.patient = patient
        self._session = session
        self._commit = listing.commit
        self._address = f"{endpoint()}/{listing.model_id}/resolve/{listing.commit}"
        self._early = early or EarlyReads()

    def text(self, file: RepoFile, limit: int) -> TextFile:
        if file.size is not None and file.size > limit:
            raise too_large(file.name, limit, file.size)
        if early := self._early.take(file, self._commit):
            return TextFile(name=file.name, content=early.data)
        take = whole_body(limit, file.name, file.size)
        content = self._session.get(
            self._url(file), take, purpose=f"the whole of {file.name}", commit=self._commit
        )
        return TextFile(name=file.name, content=content)

    def header(self, file: RepoFile, first: int = FIRST_READ) -> WeightHeader:
        def read(span: Span, end: Callable[[bytes, int | None], int]) -> Received:
            early = self._early.take(file, self._commit) if span.start == 0 else None
            return early or self.span(file, span, end)

        return read_header(file.name, file.size, read, first)

    def span(
        self,
        file: RepoFile,
        span: Span,
        end: Callable[[bytes, int | None], int] | None = None,
        *,
        purpose: str = "the header of",
    ) -> Received:
        # Each range is requested from the Hub: a redirect's signed address is for one range only.
        return self._session.get(
            self._url(file),
            part_of_file(file, span, end),
            purpose=f"{purpose} {file.name}",
            span=span,
            commit=self._commit,
        )

    def part(self, file: RepoFile, span: Span) -> bytes:
        """Read a span of a companion file, in one attempt unless `patient` is set."""
        read = self._session.get if self.patient else self._session.try_once
        received = read(
            self._url(file),
            part_of_file(file, span, lambda _data, _size: span.stop),
            purpose=f"the companion {file.name}",
            span=span if file.size != span.length else None,
            commit=self._commit,
        )
        return received.data

    def _url(self, file: RepoFile) -> str:
        return f"{self._address}/{quote(file.name)}"


# --- early reads ----------------------------------------------------------------------------------


# Most bytes of a config that is read before the listing; a longer config is read after it.
_MOST_EARLY = 1024 * 1024

_Early = tuple[str | None, Received]  # the commit of a file, and its received bytes


class EarlyReads:
    """Reads of the files that nearly every model has, started together with its listing.

    Files are requested by name, at the current commit of the revision. Each result is used once. A
    read that failed, or whose commit is not the listing's, is ignored: the file is then requested
    again, with the retries and the errors of any other read.
    """

    def __init__(self) -> None:
        self._reads: dict[str, Future[_Early]] = {}

    def begin(
        self, scheduler: Scheduler, session: Session, model: HubModel, choose: Chooser
    ) -> None:
        """Request the config and the start of the weights, if `choose` selects them.

        If a repository has no such file, this costs an extra request.
        """

        def ask(name: str, take: Callable[[Answer], Received], span: Span | None = None) -> None:
            url = f"{endpoint()}/{model.id}/resolve/{_revision(model)}/{name}"
            purpose = f"{name}, before the listing is here"
            self._reads[name] = scheduler.submit(
                session.try_once,
                url,
                lambda answer: (answer.commit, take(answer)),
                purpose=purpose,
                span=span,
            )

        with suppress(SourceError):
            selection = choose({CONFIG, WEIGHTS}, model.id)
            if selection.config == CONFIG:
                ask(CONFIG, _config)
            if selection.weights == WEIGHTS:
                file, span = RepoFile(name=WEIGHTS, size=None), Span(0, FIRST_READ)
                ask(WEIGHTS, part_of_file(file, span, safetensors_end(WEIGHTS)), span)

    def take(self, file: RepoFile, commit: str) -> Received | None:
        """Return the received bytes of a file if commit and listed size match, else None."""
        future = self._reads.pop(file.name, None)
        if future is None:
            return None
        with suppress(SourceError, UsageError):
            commit_read, received = future.result()
            if commit_read == commit and (
                file.size == received.size or None in {file.size, received.size}
            ):
                return received
        return None


def _config(answer: Answer) -> Received:
    if answer.length is None or answer.length > _MOST_EARLY:
        raise too_large(CONFIG, _MOST_EARLY)
    content = whole_body(_MOST_EARLY, CONFIG)(answer)
    return Received(content, len(content))


# --- spans ----------------------------------------------------------------------------------------


_SPANS_AT_ONCE = 8


def read_spans(
    model: str,
    commit: str,
    spans: Sequence[tuple[RepoFile, Span]],
    *,
    token: str | None,
    say: Callable[[str], None],
) -> tuple[tuple[bytes, ...], Fetched]:
    """Return the bytes of each span, in order, and the cost (requests and bytes).

    Raise SourceError if a span cannot be read, its file has another commit or size, or the server
    ignores the range; the complete file is never read.
    """
    target = HubModel(id=model, revision=commit)
    # The caller has chosen the spans, and so how many bytes there are.
    session = Session(
        target, usable_token(token), ProgressLines.of(say), budget=RequestBudget(math.inf)
    )
    files = _HubFiles(session, Listing(model, commit, ()))

    def read(file: RepoFile, span: Span) -> bytes:
        received = files.span(file, span, purpose="numbers of")
        if len(received.data) < span.length:
            detail = f"{quoted(file.name)} has {received.size:,} bytes"
            raise SourceError(
                Reason.BAD_RESPONSE, f"{detail}, expected {span.stop:,} or more: its header says so"
            )
        return received.data

    with threads(_SPANS_AT_ONCE, session.stop) as scheduler:
        reads = [scheduler.submit(read, file, span) for file, span in spans]
        data = tuple(map(awaited, reads))
    return data, session.fetched
