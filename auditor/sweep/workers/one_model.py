"""One model of a sweep: fetched, unless it is stored, and audited. Runs wherever it is sent."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock
from typing import Any, TypeVar

from huggingface_hub import constants
from msgspec import Struct
from msgspec.structs import replace

from auditor.audit.guard import outcome_of
from auditor.checkpoint.hub_listing import Listing, listing_of
from auditor.checkpoint.selecting import INDEX, WEIGHTS, select, select_config, with_companions
from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.checkpoint.snapshot_reader import load, load_own_and_shared
from auditor.checkpoint.snapshot_writer import dump_own, dump_shared, fingerprint
from auditor.downloader import hub, local_folder
from auditor.downloader.fetching import ignore_message, with_base_model
from auditor.downloader.http import Session
from auditor.downloader.http_errors import OFFLINE
from auditor.downloader.model_argument import HubModel
from auditor.downloader.waits import Rest, Wait, Waits
from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.report import Unaudited
from auditor.sweep.policy import PASSING, Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.packing import Kept, Shared, compress_text, decompress_text, digest_of
from auditor.sweep.store.reading import Recorded
from auditor.sweep.workers.allowance import LARGE, Allowance, Bounds, ByteGate
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.same_headers import Alike, Recent, recorded

T = TypeVar("T")

# Bytes of packed headers that a process remembers: a BERT's are 3.2 kB, so that 1,300 bases are
# packed once each.
_MOST_PACKED = 4 * 1024 * 1024
_MOST_OF_ONE = 256 * 1024


# Seconds for which an examination waits for the one before. Threads that examine at the same time
# take turns at the interpreter, each with cold caches: one after another they take a tenth less.
_TURN = 0.5


class Done(Struct, frozen=True, kw_only=True):
    """What became of one model."""

    model: str
    commit_sha: str
    recorded: Recorded
    snapshot: Kept | None = None  # None: it was stored already, or it could not be read
    passing: bool = False  # the reason may be gone at the next attempt

    @property
    def verdict(self) -> str:
        return self.recorded.summary.verdict


class Auditor:
    """Audits one model after another, from several threads."""

    def __init__(self, policy: Policy, token: str | None, budget: Budget) -> None:
        self._policy = policy
        self._token = token
        self._budget = budget
        self._shards = ThreadPoolExecutor(policy.shards)
        self._reads = ThreadPoolExecutor(policy.at_once)
        self._alike = Alike()
        self._packed = Recent[Shared](_MOST_PACKED, _MOST_OF_ONE)
        self._large, self._examining = ByteGate(0), ByteGate(LARGE)
        self._turn = Lock()
        self._sessions: dict[Allowance, tuple[Session, ...]] = {}  # of what is under way
        self._over = Event()

    def allowance(self) -> Allowance:
        """What the next model may take."""
        rest = Rest(Waits(_unseen), self._over)
        return Allowance(Bounds.of_a_model(self._policy), self._budget, rest, self._large)

    def audit(self, waiting: Waiting, allowance: Allowance) -> Done:
        """What goes wrong with one model is said in its outcome; raises MemoryError alone."""
        try:
            return outcome_of(
                lambda: self._audited(waiting, allowance),
                lambda detail: failed(waiting, Reason.CRASHED, detail),
            )
        finally:
            self.give_up(allowance)

    def give_up(self, allowance: Allowance) -> None:
        """A model waits no more and holds up no other, whatever has become of its audit."""
        for session in self._sessions.pop(allowance, ()):
            session.stop()
        for gate in (self._large, self._examining):
            gate.leave(allowance)

    def close(self) -> None:
        """End all waits; reads end by themselves."""
        self._over.set()
        for allowance in list(self._sessions):
            self.give_up(allowance)
        for pool in (self._shards, self._reads):
            pool.shutdown(wait=False, cancel_futures=True)

    def _audited(self, waiting: Waiting, allowance: Allowance) -> Done:
        fetched = waiting.snapshot is None
        try:
            snapshot = self._fetched(waiting, allowance) if fetched else _stored(waiting)
        except SourceError as error:
            return failed(waiting, error.reason, str(error))
        except UsageError as error:
            return failed(waiting, Reason.BAD_RESPONSE, str(error))
        size = _size(snapshot)
        (self._large if size > LARGE else self._examining).enter(allowance, size)
        with self._in_turn():
            shared = self._shared(snapshot)
            record, _ = self._alike.examine(snapshot, shared.digest)
            own = compress_text(dump_own(snapshot)) if fetched else None
        return Done(
            model=waiting.model,
            commit_sha=waiting.commit_sha,
            recorded=record,
            snapshot=Kept(own, shared) if own else None,
            passing=record.summary.reason in PASSING,
        )

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """One thread after another examines, unless the one before takes too long."""
        mine = self._turn.acquire(timeout=_TURN)
        try:
            yield
        finally:
            if mine:
                self._turn.release()

    def _shared(self, snapshot: Snapshot) -> Shared:
        """What a snapshot has in common with others, packed once."""
        key = fingerprint(snapshot)
        known = self._packed.get(key) if key else None
        if known is None:
            text = dump_shared(snapshot)
            known = Shared(digest_of(text), compress_text(text))
            if key:
                self._packed.put(key, known, len(known.content))
        return known

    def _fetched(self, waiting: Waiting, allowance: Allowance) -> Snapshot:
        require_online()
        model = HubModel(id=waiting.model, revision=waiting.commit_sha)
        session = self._session(model, allowance)
        listing = _listing(waiting) or hub.fetch_listing(model, session)
        names = {file.name for file in listing.files}
        sharded = INDEX in names and WEIGHTS not in names
        companions = self._policy.companions  # asked for before config and header
        alone = self._reads if companions else _FirstApart(self._reads)
        pool = self._shards if sharded else alone
        choose = with_companions if companions else select
        found = hub.read_from_listing(model, listing, session, choose, pool=pool)
        return with_base_model(
            found, local_folder.read, partial(self._config_of, allowance=allowance)
        )

    def _config_of(self, model: HubModel, *, allowance: Allowance) -> Snapshot:
        """An adapter's base, which takes of what the adapter is allowed."""
        session = self._session(model, allowance)
        return hub.read_from_listing(
            model, hub.fetch_listing(model, session), session, select_config, pool=_Here()
        )

    def _session(self, model: HubModel, allowance: Allowance) -> Session:
        silence = self._policy.deadline  # a sweep is not watched: what passes is waited for
        session = Session(model, self._token, ignore_message, governor=allowance, silence=silence)
        self._sessions[allowance] = (*self._sessions.get(allowance, ()), session)
        return session


def _unseen(_wait: Wait | None) -> None:
    """A wait of one model; of all of them together the budget tells."""


def _size(snapshot: Snapshot) -> int:
    """Bytes of what is examined."""
    texts = (text.content for text in (snapshot.config, snapshot.index) if text)
    return sum(map(len, texts)) + sum(head.length for head in snapshot.headers)


def require_online() -> None:
    """Raise SourceError where HF_HUB_OFFLINE forbids to ask the Hub."""
    if constants.is_offline_mode():
        raise SourceError(Reason.OFFLINE, OFFLINE)


def failed(waiting: Waiting, reason: Reason, detail: str) -> Done:
    """The outcome of a model that could not be fetched, or of whose audit nothing was left."""
    outcome = unaudited_model(waiting.model, waiting.commit_sha, reason, detail)
    return Done(
        model=waiting.model,
        commit_sha=waiting.commit_sha,
        recorded=recorded(outcome),
        passing=reason in PASSING,
    )


def unaudited_model(model: str, commit: str, reason: Reason, detail: str) -> Unaudited:
    return Unaudited(
        requested=model,
        model=model if commit else None,
        commit=commit or None,
        source=Source.HUB,
        reason=reason,
        detail=detail,
    )


def _stored(waiting: Waiting) -> Snapshot:
    """The snapshot of an earlier version's audit; it was of the Hub, and costs it nothing now."""
    content, name = decompress_text(waiting.snapshot or b""), f"the stored {waiting.model}"
    if waiting.shared is None:
        return replace(load(content, name), source=Source.HUB)
    return replace(
        load_own_and_shared(content, decompress_text(waiting.shared), name), source=Source.HUB
    )


def _listing(waiting: Waiting) -> Listing | None:
    """The model's files as the list API had them; None where that has to be asked again."""
    if waiting.listing is None:
        return None
    siblings: Any = json.loads(decompress_text(waiting.listing))
    entry = {"id": waiting.model, "sha": waiting.commit_sha, "siblings": siblings}
    try:
        return listing_of(entry, waiting.model)
    except (SourceError, CheckpointError):
        return None


class _FirstApart(Executor):
    """Runs in a pool what it is given first: the read of a config, while the weights' is here."""

    def __init__(self, pool: Executor) -> None:
        self._next = pool

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        pool, self._next = self._next, _Here()
        return pool.submit(fn, *args, **kwargs)


class _Here(Executor):
    """Runs what it is given at once."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asks
            future.set_exception(error)
        return future
