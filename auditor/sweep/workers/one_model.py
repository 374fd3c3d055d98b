"""One model of a sweep: fetched, unless it is stored, and audited. Runs wherever it is sent."""

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from threading import Event, Lock
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from auditor.audit.guard import TOO_LITTLE_MEMORY, crash, is_lack_of_memory
from auditor.checkpoint.hub_listing import Listing, listing_of
from auditor.checkpoint.selecting import INDEX, WEIGHTS, select, select_config, with_companions
from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.checkpoint.snapshot_reader import load, load_own_and_shared
from auditor.checkpoint.snapshot_writer import dump_own, dump_shared, fingerprint
from auditor.downloader import hub, local_folder
from auditor.downloader.fetching import ignore_message, with_base_model
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import run_into
from auditor.downloader.waits import Talk, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.report import Unaudited
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.packing import Kept, Shared, compress_text, decompress_text, digest_of
from auditor.sweep.store.reading import Recorded
from auditor.sweep.workers.allowance import LARGE, Allowance, Bounds, ByteGate
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.same_headers import Recent, audited, recorded

T = TypeVar("T")

# Seconds for which an examination waits for the one before. Threads that examine at the same time
# take turns at the interpreter, each with cold caches: one after another they take a tenth less.
_TURN = 0.5


class Done(NamedTuple):
    """What became of one model."""

    model: str
    commit_sha: str
    recorded: Recorded
    snapshot: Kept | None = None  # None: it was stored already, or it could not be read


class Auditor:
    """Audits one model after another, from several threads."""

    def __init__(
        self, policy: Policy, token: str | None, budget: Budget, waits: Waits | None = None
    ) -> None:
        self.talk = Talk(ignore_message, waits)
        self._policy = policy
        self._token = token
        self._budget = budget
        self._shards = ThreadPoolExecutor(policy.shards)
        self._reads = ThreadPoolExecutor(policy.at_once)
        self._outcomes, self._packed = Recent[Recorded](), Recent[Shared]()
        self._large, self._examining = ByteGate(0), ByteGate(LARGE)
        self._turn = Lock()

    def allowance(self) -> Allowance:
        """What the next model may take."""
        bounds = Bounds.of_a_model(self._policy)
        return Allowance(bounds, self._budget, self.talk, Event(), self._large)

    def audit(self, waiting: Waiting, allowance: Allowance, *, alone: bool = True) -> Done | None:
        """What came of a model; what goes wrong with it is said there.

        None: memory ran out, and it was not `alone` under way.
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
        """A model waits no more and holds up no other, whatever has become of its audit."""
        allowance.over.set()
        for gate in (self._large, self._examining):
            gate.leave(allowance)

    def close(self) -> None:
        """Begin no more reads; those under way end by themselves."""
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
        mine = self._turn.acquire(timeout=_TURN)  # else the one before takes too long
        try:
            shared = self._shared(snapshot)
            record = audited(snapshot, shared.digest, self._outcomes)
            own = compress_text(dump_own(snapshot)) if fetched else None
        finally:
            if mine:
                self._turn.release()
        kept = Kept(own, shared) if own else None
        return Done(waiting.model, waiting.commit_sha, record, kept)

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
        model = HubModel(id=waiting.model, revision=waiting.commit_sha)
        session = allowance.session(model, self._token)
        listing = _listing(waiting) or hub.fetch_listing(model, session)
        names = {file.name for file in listing.files}
        companions = self._policy.companions  # asked for before config and header
        pool = self._reads if companions else _FirstApart(self._reads)
        if INDEX in names and WEIGHTS not in names:
            pool = self._shards
        choose = with_companions if companions else select
        found = hub.read_from_listing(model, listing, session, choose, pool=pool)

        def config_of(base: HubModel) -> Snapshot:
            """An adapter's base, which takes of what the adapter is allowed."""
            session = allowance.session(base, self._token)
            listing = hub.fetch_listing(base, session)
            return hub.read_from_listing(base, listing, session, select_config, pool=self._reads)

        return with_base_model(found, local_folder.read, config_of)


def _size(snapshot: Snapshot) -> int:
    """Bytes of what is examined."""
    texts = (text.content for text in (snapshot.config, snapshot.index) if text)
    return sum(map(len, texts)) + sum(head.length for head in snapshot.headers)


def failed(waiting: Waiting, reason: Reason, detail: str) -> Done:
    """The outcome of a model that could not be fetched, or of whose audit nothing was left."""
    outcome = unaudited_model(waiting.model, waiting.commit_sha, reason, detail)
    return Done(waiting.model, waiting.commit_sha, recorded(outcome))


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
        found = load(content, name)
    else:
        found = load_own_and_shared(content, decompress_text(waiting.shared), name)
    return replace(found, source=Source.HUB)


def _listing(waiting: Waiting) -> Listing | None:
    """The model's files as the list API had them; None where that has to be asked again."""
    if waiting.listing is None:
        return None
    siblings: Any = json.loads(decompress_text(waiting.listing))
    entry = {"id": waiting.model, "sha": waiting.commit_sha, "siblings": siblings}
    return listing_of(entry, waiting.model)


class _FirstApart(Executor):
    """Runs in a pool what it is given first: the read of a config, while the weights' is here."""

    def __init__(self, pool: Executor) -> None:
        self._pool: Executor | None = pool

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        pool, self._pool = self._pool, None
        if pool:
            return pool.submit(fn, *args, **kwargs)
        future = Future[T]()
        run_into(future, partial(fn, *args, **kwargs))
        return future
