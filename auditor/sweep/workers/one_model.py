"""The audit of one model of a sweep: fetch it, unless it is stored, and examine it."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from threading import Event, Lock
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from auditor.audit.guard import TOO_LITTLE_MEMORY, crash, is_lack_of_memory
from auditor.audit.options import Options
from auditor.audit.outcome import with_code_in_files
from auditor.audit.pipeline import examine, unread
from auditor.checkpoint.hub_listing import Listing, listing_of
from auditor.checkpoint.selecting import INDEX, WEIGHTS, select, select_config, with_companions
from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.checkpoint.snapshot_reader import load, load_own_and_shared
from auditor.checkpoint.snapshot_writer import dump_own_and_shared
from auditor.downloader import hub, local_folder
from auditor.downloader.fetching import ignore_message, with_base_model
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import run_into
from auditor.downloader.waits import ProgressLines, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.report import Unaudited
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.reading import Recorded
from auditor.sweep.store.schema import (
    Shared,
    StoredObject,
    compress_text,
    decompress_text,
    digest_of,
)
from auditor.sweep.workers.allowance import LARGE, Allowance, Bounds, ByteGate
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.stored_outcome import recorded

T = TypeVar("T")

# Seconds for which an examination waits for the previous one to end. Threads that examine at the
# same time share the interpreter, each with cold caches: in sequence they take a tenth less time.
_TURN = 0.5


class Done(NamedTuple):
    """The result of auditing one model."""

    model: str
    commit_sha: str
    recorded: Recorded
    snapshot: StoredObject | None = None  # None: already stored, or not readable


class Auditor:
    """An auditor of models, which several threads call; each audit runs in the calling thread."""

    def __init__(
        self, policy: Policy, token: str | None, budget: Budget, waits: Waits | None = None
    ) -> None:
        self.talk = ProgressLines(ignore_message, waits)
        self._policy = policy
        self._token = token
        self._budget = budget
        self._shards = ThreadPoolExecutor(policy.shards)
        self._reads = ThreadPoolExecutor(policy.at_once)
        self._large, self._examining = ByteGate(0), ByteGate(LARGE)
        self._turn = Lock()

    def allowance(self) -> Allowance:
        bounds = Bounds.of_a_model(self._policy)
        return Allowance(bounds, self._budget, self.talk, Event(), self._large)

    def audit(self, waiting: Waiting, allowance: Allowance, *, alone: bool = True) -> Done | None:
        """Audit a model; an error becomes the reason of an unaudited outcome.

        Return None if memory ran out while other models were under way as well (not `alone`).
        """
        try:
            return self._audited(waiting, allowance)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other models go on
            if not is_lack_of_memory(error):
                return failed(waiting, Reason.CRASHED, crash(error))
            return failed(waiting, Reason.TOO_LITTLE_MEMORY, TOO_LITTLE_MEMORY) if alone else None
        finally:
            self.give_up(allowance)

    def give_up(self, allowance: Allowance) -> None:
        """End the waits of a model and free its place at the gates; its audit may still run."""
        allowance.over.set()
        for gate in (self._large, self._examining):
            gate.leave(allowance)

    def close(self) -> None:
        """Begin no more reads, without waiting for reads under way."""
        for pool in (self._shards, self._reads):
            pool.shutdown(wait=False, cancel_futures=True)

    def _audited(self, waiting: Waiting, allowance: Allowance) -> Done:
        try:
            stored = _stored(waiting, companions=self._policy.companions)
            snapshot = stored or self._fetched(waiting, allowance)
        except SourceError as error:
            return failed(waiting, error.reason, str(error), self._policy.engines, error.snapshot)
        except UsageError as error:
            return failed(waiting, Reason.BAD_RESPONSE, str(error), self._policy.engines)
        size = _size(snapshot)
        (self._large if size > LARGE else self._examining).enter(allowance, size)
        is_locked = self._turn.acquire(timeout=_TURN)  # False: the previous examination takes long
        try:
            options = Options(requested=snapshot.model, engines=self._policy.engines)
            record = recorded(examine(snapshot, options))
            packed_snapshot = None if stored else _packed(snapshot)
        finally:
            if is_locked:
                self._turn.release()
        return Done(waiting.model, waiting.commit_sha, record, packed_snapshot)

    def _fetched(self, waiting: Waiting, allowance: Allowance) -> Snapshot:
        model = HubModel(id=waiting.model, revision=waiting.commit_sha)
        session = allowance.session(model, self._token)
        companions = self._policy.companions
        listing = _listing(waiting)
        if listing is None or (companions and lacks_companion_sizes(listing)):
            listing = hub.fetch_listing(model, session)
        names = {file.name for file in listing.files}
        # Companions are requested before config and header.
        pool = self._reads if companions else _FirstApart(self._reads)
        if INDEX in names and WEIGHTS not in names:
            pool = self._shards
        choose = with_companions if companions else select
        snapshot = hub.read_from_listing(model, listing, session, choose, pool=pool, patient=True)

        def config_of(base: HubModel) -> Snapshot:
            """Read the config of an adapter's base, within the allowance of the adapter."""
            session = allowance.session(base, self._token)
            listing = hub.fetch_listing(base, session)
            return hub.read_from_listing(base, listing, session, select_config, pool=self._reads)

        return with_base_model(snapshot, local_folder.read, config_of)


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
    return Unaudited(
        requested=model,
        model=model if commit else None,
        commit=commit or None,
        source=Source.HUB,
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
    snapshot = replace(snapshot, source=Source.HUB)
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


class _FirstApart(Executor):
    """An executor that runs the first call (a config's read) in a pool, others in this thread."""

    def __init__(self, pool: Executor) -> None:
        self._pool: Executor | None = pool

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        pool, self._pool = self._pool, None
        if pool:
            return pool.submit(fn, *args, **kwargs)
        future = Future[T]()
        run_into(future, partial(fn, *args, **kwargs))
        return future
