"""The audit of one model of a sweep: fetch it, unless it is stored, examine it, and pack it."""

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event, Lock
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.audit.guard import TOO_LITTLE_MEMORY, crash, is_lack_of_memory
from auditor.audit.options import Options
from auditor.audit.outcome import with_code_in_files
from auditor.audit.pipeline import examine, unread
from auditor.checkpoint.filenames import Chooser
from auditor.checkpoint.hub_listing import Listing, listing_of
from auditor.checkpoint.selecting import INDEX, WEIGHTS, select, select_config, with_companions
from auditor.checkpoint.snapshot import Fetched, Snapshot, Source
from auditor.checkpoint.snapshot_reader import load, load_own_and_shared
from auditor.checkpoint.snapshot_writer import dump_own_and_shared
from auditor.downloader import hub, local_folder, store
from auditor.downloader.fetching import ignore_message, with_base_model
from auditor.downloader.model_argument import HubModel, store_address
from auditor.downloader.waits import ProgressLines
from auditor.errors import Reason, SourceError, UsageError
from auditor.findings import Severity
from auditor.formats import as_json
from auditor.report import Report, Unaudited
from auditor.sweep.rate_limits import Bounds, Budget, RateLimiter
from auditor.sweep.settings import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.reading import Recorded
from auditor.sweep.store.schema import (
    Shared,
    StoredNight,
    StoredObject,
    compress_text,
    decompress_text,
    digest_of,
)

# A model with more bytes than this is large. Each process examines one large model at a time,
# because examining 11 MB takes 400 MB of memory.
LARGE = 4 * 1024 * 1024


class Done(NamedTuple):
    """The result of auditing one model."""

    model: str
    commit_sha: str
    recorded: Recorded
    snapshot: StoredObject | None = None  # None: already stored, or not readable


class Auditor:
    """The auditor of a sweep in this process: threads that audit, and threads that read files."""

    def __init__(
        self,
        policy: Policy,
        token: str | None,
        limiter: RateLimiter,
        talk: ProgressLines | None = None,
    ) -> None:
        self.at_once = policy.at_once
        self._policy = policy
        self._token = token
        self._limiter = limiter
        self._talk = talk or ProgressLines(ignore_message)
        self._audits = ThreadPoolExecutor(policy.at_once, "audit")
        # Enough for all files of all models: a read that waits for a thread takes its model's time.
        self._reads = ThreadPoolExecutor(8 * policy.at_once, "read")
        self._shards = ThreadPoolExecutor(policy.shards, "read shards")
        self._large = Lock()
        self._running: set[Event] = set()  # set: end the waits of a model

    def submit(self, waiting: Waiting, *, alone: bool) -> Future[Done | None]:
        """Audit a model in a thread; raise UsageError if no thread can start."""
        try:
            return self._audits.submit(self.audit, waiting, alone=alone)
        except RuntimeError as error:
            raise UsageError(f"{error}; set a lower --at-once") from None

    def check(self) -> None:
        """Do nothing: threads are not lost."""

    def is_idle(self) -> bool:
        """Return false: a thread's outcome always arrives."""
        return False

    def close(self) -> None:
        """Begin no more audits and reads, and end waits; reads under way may take seconds."""
        for pool in (self._audits, self._reads, self._shards):
            pool.shutdown(wait=False, cancel_futures=True)
        for over in tuple(self._running):
            over.set()

    def audit(self, waiting: Waiting, *, alone: bool = True) -> Done | None:
        """Audit a model; an error becomes the reason of an unaudited outcome.

        Return None if memory ran out while other models were under way as well (not `alone`).
        """
        over = Event()
        self._running.add(over)
        try:
            return self._audited(waiting, over)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other models go on
            if not is_lack_of_memory(error):
                return failed(waiting, Reason.CRASHED, crash(error))
            return failed(waiting, Reason.TOO_LITTLE_MEMORY, TOO_LITTLE_MEMORY) if alone else None
        finally:
            self._running.discard(over)

    def _audited(self, waiting: Waiting, over: Event) -> Done:
        try:
            stored = _stored(waiting, companions=self._policy.companions)
            snapshot = stored or self._fetched(waiting, over)
        except SourceError as error:
            return failed(waiting, error.reason, str(error), self._policy.engines, error.snapshot)
        except UsageError as error:
            return failed(waiting, Reason.BAD_RESPONSE, str(error), self._policy.engines)
        with self._large if _size(snapshot) > LARGE else nullcontext():
            options = Options(requested=snapshot.model, engines=self._policy.engines)
            record = recorded(examine(snapshot, options))
            packed_snapshot = None if stored else _packed(snapshot)
        return Done(waiting.model, waiting.commit_sha, record, packed_snapshot)

    def _fetched(self, waiting: Waiting, over: Event) -> Snapshot:
        budget = Budget(Bounds.of_a_model(self._policy), self._limiter, self._talk, over)

        def config_of(base: HubModel) -> Snapshot:
            """Read the config of an adapter's base, within the budget of the adapter."""
            session = budget.session(base, self._token)
            listing = hub.fetch_listing(base, session)
            return hub.read_from_listing(base, listing, session, select_config, pool=self._reads)

        choose = with_companions if self._policy.companions else select
        if address := store_address(waiting.model):
            snapshot = store.read(address, self._token, self._talk, choose)
            if snapshot.version != waiting.commit_sha:
                detail = f"{waiting.model} changed since it was listed"
                raise SourceError(Reason.COMMIT_MOVED, detail)
        else:
            snapshot = self._from_hub(waiting, budget, choose)
        return with_base_model(snapshot, local_folder.read, config_of)

    def _from_hub(self, waiting: Waiting, budget: Budget, choose: Chooser) -> Snapshot:
        model = HubModel(id=waiting.model, revision=waiting.commit_sha)
        session = budget.session(model, self._token)
        companions = self._policy.companions
        listing = _listing(waiting)
        if listing is None or (companions and lacks_companion_sizes(listing)):
            listing = hub.fetch_listing(model, session)
        names = {file.name for file in listing.files}
        pool = self._shards if INDEX in names and WEIGHTS not in names else self._reads
        return hub.read_from_listing(model, listing, session, choose, pool=pool, patient=True)


def _packed(snapshot: Snapshot) -> StoredObject:
    """Return a snapshot in its stored form, with the part that other models may share."""
    own, shared = dump_own_and_shared(snapshot)
    return StoredObject(compress_text(own), Shared(digest_of(shared), compress_text(shared)))


def _size(snapshot: Snapshot) -> int:
    """Return the number of bytes of a snapshot that an examination reads."""
    texts = (text.content for text in (snapshot.config, snapshot.index) if text)
    return sum(map(len, texts)) + sum(header.length for header in snapshot.headers)


def failed(
    waiting: Waiting,
    reason: Reason,
    detail: str,
    engines: Sequence[str] = (),
    snapshot: object = None,
) -> Done:
    """Return the result for a model that could not be fetched, or whose audit failed.

    `engines` are those whose verdicts are then unknown; the snapshot has the files, if known.
    """
    outcome = unaudited_model(waiting.model, waiting.commit_sha, reason, detail)
    outcome = with_code_in_files(outcome, snapshot, Options(requested=waiting.model))
    return Done(waiting.model, waiting.commit_sha, recorded(unread(outcome, engines)))


def unaudited_model(model: str, commit: str, reason: Reason, detail: str) -> Unaudited:
    is_in_store = store_address(model) is not None
    return Unaudited(
        requested=model,
        model=model if commit else None,
        commit=None if is_in_store else commit or None,
        version=commit or None if is_in_store else None,
        source=Source.STORE if is_in_store else Source.HUB,
        reason=reason,
        detail=detail,
    )


def _stored(waiting: Waiting, *, companions: bool) -> Snapshot | None:
    """Return the stored snapshot; None if it is absent or lacks companion files.

    Its `fetched` counts no requests, because an earlier audit read the files.
    """
    if waiting.snapshot is None:
        return None
    content, name = decompress_text(waiting.snapshot), f"the stored {waiting.model}"
    if waiting.shared is None:
        snapshot = load(content, name)
    else:
        snapshot = load_own_and_shared(content, decompress_text(waiting.shared), name)
    source = Source.HUB if snapshot.version is None else Source.STORE
    snapshot = replace(snapshot, source=source)
    if not companions:
        return replace(snapshot, companions=None)
    if snapshot.companions is not None:
        return snapshot
    names = {file.name for file in snapshot.files}
    selected = with_companions(names, snapshot.model).companions
    return None if selected else replace(snapshot, companions=selected)


def _listing(waiting: Waiting) -> Listing | None:
    """Return the listing of the model's files; None if the store has no listing."""
    if waiting.listing is None:
        return None
    siblings: Any = json.loads(decompress_text(waiting.listing))
    entry = {"id": waiting.model, "sha": waiting.commit_sha, "siblings": siblings}
    return listing_of(entry, waiting.model)


def lacks_companion_sizes(listing: Listing) -> bool:
    """Whether the listing lacks sizes of companion files, which determine how much is read.

    The list API has no sizes.
    """
    sizes = {file.name: file.size for file in listing.files}
    selected = with_companions(sizes, listing.model_id).companions or ()
    return any(sizes[name] is None for name in selected)


# --- the stored form of an outcome ----------------------------------------------------------------


def recorded(outcome: Report | Unaudited) -> Recorded:
    """Return an outcome in its stored form.

    A report is split into a part that other models may share and the model's own part. An unaudited
    outcome, which is short, and outcomes of components name the model, so they are not split.
    """
    if isinstance(outcome, Unaudited) or outcome.parts:
        return Recorded(
            summary_of(outcome), StoredObject(compress_text(as_json.stored_text(outcome)))
        )
    # The shared part has empty values for the model's own, which fix the order of keys.
    shared = as_json.stored_text(
        replace(
            outcome,
            requested="",
            model=None,
            commit=None,
            version=None,
            fetched=Fetched(),
            claims=(),
        )
    )
    own: dict[str, Any] = {
        "requested": outcome.requested,
        "model": outcome.model,
        "commit": outcome.commit,
        "version": outcome.version,
        "fetched": {
            "requests": outcome.fetched.requests,
            "bytes": outcome.fetched.bytes,
            "seconds": outcome.fetched.seconds,
        },
    }
    if outcome.claims:
        own["claims"] = as_json.claims_object(outcome.claims)
    own_text = json.dumps(own, separators=(",", ":")).encode()  # lone surrogates, too
    shared_part = Shared(digest_of(shared), compress_text(shared))
    return Recorded(summary_of(outcome), StoredObject(compress_text(own_text), shared_part))


def summary_of(outcome: Report | Unaudited) -> StoredNight:
    """Return the verdict and the counts of an outcome as columns of the store."""
    severities = [finding.severity for part in outcome.every for finding in part.findings]
    return StoredNight(
        verdict=outcome.verdict,
        reason=outcome.reason.value if isinstance(outcome, Unaudited) else None,
        errors=severities.count(Severity.ERROR),
        warnings=severities.count(Severity.WARNING),
        blind=sum(isinstance(part, Unaudited) for part in outcome.parts),
        residual=outcome.residual if isinstance(outcome, Report) else None,
        tensors=outcome.observed.tensors if outcome.observed else None,
    )
