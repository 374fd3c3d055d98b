"""What a worker of a cluster runs: a batch of models, audited as a process of a sweep does it.

Everything here works without Dask, which carries a batch to a worker and what came of it back.
"""

import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

from auditor.downloader.access_token import usable_token
from auditor.downloader.endpoint import endpoint
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.reading import Versions
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import Auditor, Done, failed
from auditor.sweep.workers.process_pool import CONTEXT

_LOOK = 0.5  # seconds between looks at models that are stuck
_MOST_STATIONS = 4  # sweeps with another policy each, at once on one cluster


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a sweep and its workers have to have in common: a store says nothing of workers."""

    versions: Versions
    endpoint: str
    token: str | None  # a digest: a cluster's connections are no place for a token


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some models, and all that a worker needs to know of them."""

    models: tuple[Waiting, ...]
    policy: Policy
    terms: Terms
    share: int  # the workers among which the budget of requests is divided


@dataclass(frozen=True, kw_only=True)
class RefusedBatch:
    """Why a worker audits nothing, in one line."""

    detail: str


def terms(token: str | None) -> Terms:
    """The terms here, with a token as it would be sent."""
    digest = sha256(token.encode()).hexdigest()[:16] if token else None
    return Terms(versions=current_versions(), endpoint=endpoint(), token=digest)


def audit_batch(batch: Batch, tell: Callable[[float], None]) -> tuple[Done, ...] | RefusedBatch:
    """What came of the models, in no order; those that are absent had no turn.

    A model that is stuck is given up, as the process would be that a sweep without a cluster had
    given it to. `tell` hears, every now and then, how long the budget lets no request through.
    """
    try:
        token = usable_token(None)
        fault = _fault(batch.terms, terms(token))
    except (SourceError, UsageError) as error:
        fault = str(error)
    if fault:
        return RefusedBatch(detail=f"a worker on {quoted(socket.gethostname())} {fault}")
    station = _station(batch.policy, token)
    station.budget.divide(batch.share)
    return station.audit(batch.models, tell)


def _fault(due: Terms, here: Terms) -> str | None:
    if here.versions != due.versions:
        ours = f"hf-audit {here.versions.auditor} ({here.versions.catalogue})"
        theirs = f"{due.versions.auditor} ({due.versions.catalogue})"
        return f"has {ours}, and this sweep is of {theirs}: install the same on both"
    if here.endpoint != due.endpoint:
        both = f"{quoted(here.endpoint)}, and this sweep asks {quoted(due.endpoint)}"
        return f"asks {both}: set HF_ENDPOINT where the workers start"
    if here.token != due.token:
        has = "another token than this sweep" if here.token and due.token else "no token"
        has = has if due.token else "a token, and this sweep has none"
        return f"has {has}: tokens are not sent, set HF_TOKEN where both start"
    return None


class _Station:
    """One process's auditor, and the threads that all of its batches share."""

    def __init__(self, policy: Policy, token: str | None) -> None:
        self.budget = Budget(CONTEXT, policy.max_requests)
        self._policy = policy
        self._auditor = Auditor(policy, token, self.budget)
        self._pool = ThreadPoolExecutor(policy.at_once)

    def audit(self, models: tuple[Waiting, ...], tell: Callable[[float], None]) -> tuple[Done, ...]:
        given = {self._pool.submit(self._auditor.audit, one): one for one in models}
        done, stuck = self._settled(set(given), tell)
        outcomes = [future.result() for future in done]
        if stuck:
            _retire(self)
            detail = f"its audit was not done after {self._policy.hopeless:.0f} s"
            lost = [given[future] for future in stuck if not future.cancel()]
            outcomes += [failed(waiting, Reason.CRASHED, detail) for waiting in lost]
        return tuple(outcomes)

    def _settled(
        self, left: set[Future[Done]], tell: Callable[[float], None]
    ) -> tuple[set[Future[Done]], set[Future[Done]]]:
        """The futures that are done; and the others, once none of them was for long enough."""
        done = set[Future[Done]]()
        since = now = time.monotonic()
        while left and now - since < self._policy.hopeless:
            found, left = wait(left, _LOOK, return_when=FIRST_COMPLETED)
            now = time.monotonic()
            blocked = self.budget.blocked()
            tell(blocked)
            if found or blocked:
                since = now  # waiting for the budget does not count
            done |= found
        return done, left


_stations: OrderedDict[tuple[Policy, str | None], _Station] = OrderedDict()
_opening = Lock()


def _station(policy: Policy, token: str | None) -> _Station:
    """The station of this process: its connections, and what it knows of models that are alike."""
    key = (policy, token)
    with _opening:
        if key not in _stations:
            _stations[key] = _Station(policy, token)
        _stations.move_to_end(key)
        while len(_stations) > _MOST_STATIONS:
            _stations.popitem(last=False)
        return _stations[key]


def _retire(station: _Station) -> None:
    """Let the next batch have another one: a thread that is stuck cannot be ended."""
    with _opening:
        for key in [key for key, known in _stations.items() if known is station]:
            del _stations[key]
