"""What a worker of a cluster runs: a batch of models, audited by threads as a sweep has them.

Everything here works without Dask, which carries a batch to a worker and what came of it back.
"""

import gc
import socket
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from threading import Lock

from msgspec import Struct

from auditor.downloader.hub_settings import endpoint, usable_token
from auditor.errors import SourceError, UsageError
from auditor.messages import quoted
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.reading import Versions
from auditor.sweep.workers.audit_threads import YOUNG, AuditThreads, Crew
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import Done

_LOOK = 0.5  # seconds between looks at models that are stuck
_SWEEPS = 4  # with another policy each, at once on one cluster


class Terms(Struct, frozen=True, kw_only=True):
    """What a sweep and its workers have to have in common: a store says nothing of workers."""

    versions: Versions
    endpoint: str
    token: str | None  # a digest: a cluster's connections are no place for a token


class Batch(Struct, frozen=True, kw_only=True):
    """Some models, and all that a worker needs to know of them."""

    models: tuple[Waiting, ...]
    policy: Policy
    terms: Terms
    share: int  # the workers among which the budget of requests is divided


class RefusedBatch(Struct, frozen=True, kw_only=True):
    """Why a worker audits nothing, in one line."""

    detail: str


def terms(token: str | None) -> Terms:
    """The terms here, with a token as it would be sent."""
    digest = sha256(token.encode()).hexdigest()[:16] if token else None
    return Terms(versions=current_versions(), endpoint=endpoint(), token=digest)


def audit_batch(batch: Batch, tell: Callable[[float], None]) -> tuple[Done, ...] | RefusedBatch:
    """What came of the models, in no order.

    `tell` hears, every now and then, how long the budget lets no request through.
    """
    try:
        token = usable_token(None)
        fault = _fault(batch.terms, terms(token))
    except (SourceError, UsageError) as error:
        fault = str(error)
    if fault:
        return RefusedBatch(detail=f"a worker on {quoted(socket.gethostname())} {fault}")
    threads = _shared_threads(batch.policy, token)
    threads.budget.divide(batch.share)
    crew, done = Crew(threads), list[Done]()
    for waiting in batch.models:
        crew.submit(waiting)
    while crew.under_way:
        done += crew.finished(_LOOK)
        tell(threads.budget.blocked())
    return tuple(done)


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


_opening = Lock()


def _shared_threads(policy: Policy, token: str | None) -> AuditThreads:
    """Those of this process: its connections, and what it knows of models that are alike."""
    with _opening:
        return _threads(policy, token)


@lru_cache(_SWEEPS)
def _threads(policy: Policy, token: str | None) -> AuditThreads:
    gc.set_threshold(YOUNG)
    return AuditThreads(policy, token, Budget(policy.max_requests))
