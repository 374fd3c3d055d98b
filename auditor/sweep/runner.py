"""One night: select, freeze, audit what is not in the store, and say what came of it."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from auditor.cpus import one_cpu
from auditor.downloader.hub_settings import endpoint, usable_token
from auditor.downloader.waits import Waits
from auditor.errors import Reason, UsageError
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.policy import Policy
from auditor.sweep.progress import Progress, duration
from auditor.sweep.selection import Selector
from auditor.sweep.settings import SweepSettings, folder_of
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Alarms, Night
from auditor.sweep.workers.audit_threads import AuditThreads, Crew
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import Done

if TYPE_CHECKING:  # Dask is an extra, and takes a second to import
    from auditor.sweep.workers.cluster import Cluster

_LOOK = 0.5  # seconds between looks at the budget and at models that are stuck


class Swept(Struct, frozen=True, kw_only=True):
    """What a night came to."""

    night: Night
    models: int
    audited: int  # by this run; the others' outcomes were in the store
    seconds: float
    tally: tuple[tuple[str | None, str | None, int], ...]  # (verdict, reason, models)
    alarms: Alarms
    dropped: int = 0  # nights that left the store


def sweep(
    settings: SweepSettings,
    *,
    night: str | None = None,
    token: str | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Swept:
    """Sweep the selected models once; goes on where an earlier run of the same night stopped.

    `night` is the name to keep it under, today's date (UTC) if None; `scheduler` the address of a
    Dask cluster whose workers audit instead of threads here. Raises UsageError for settings
    that cannot be met, SourceError where the Hub does not say which models there are, or where the
    cluster is lost, StoreError where the store cannot be written; what goes wrong with one model is
    that model's outcome.
    """
    endpoint()
    usable = usable_token(token)
    name = night or datetime.now(UTC).date().isoformat()
    folder_of(name)  # which its reports will have; said before there is anything to lose
    since = time.monotonic()
    budget = Budget(settings.policy.max_requests)
    shown = progress or Progress()
    waits = Waits(shown.waiting)
    with (
        StoreWriter.open(settings.output.store) as ledger,
        _auditors(settings.policy, usable, budget, waits, scheduler) as crew,
    ):
        with shown:
            with Selector(settings.policy, usable, budget, waits) as selector:
                described = [dict(one.described) for one in settings.selections]
                selections = json.dumps(described, sort_keys=True)
                versions = current_versions(companions=settings.policy.companions)
                started = ledger.begin(name, selections, versions)
                current = _planned(ledger, started, settings, selector, shown)
            first = ledger.somewhere(current) if started.plan is not None else ""
            audited = _audit(ledger, current, first, crew, shown)
            ledger.finish(current)
            keep = settings.output.keep
        return Swept(
            night=current,
            models=ledger.count(current),
            audited=audited,
            seconds=time.monotonic() - since,
            tally=ledger.tally(current.night),
            alarms=ledger.alarms(current.night),
            dropped=ledger.prune(current.night, keep) if keep else 0,
        )


@contextmanager
def _auditors(
    policy: Policy, token: str | None, budget: Budget, waits: Waits, scheduler: str | None
) -> "Iterator[Crew | Cluster]":
    if scheduler is None and policy.processes == 1:
        threads = AuditThreads(policy, token, budget, waits)
        with one_cpu(), closing(threads):
            yield Crew(threads)
        return
    try:
        from auditor.sweep.workers.cluster import Cluster  # noqa: PLC0415 - Dask is an extra
    except ImportError:
        option = "--scheduler" if scheduler else "--processes"
        detail = f"{option} needs Dask: pip install 'hf-audit[cluster]'"
        raise UsageError(detail) from None
    with Cluster(policy, token, waits, scheduler) as cluster:
        yield cluster


def _planned(
    ledger: StoreWriter, night: Night, settings: SweepSettings, selector: Selector, shown: Progress
) -> Night:
    """The night with its plan, which is frozen unless an earlier run has done that.

    Of a frozen plan those models are asked for again of which the Hub told nothing, in passing.
    """
    if night.plan is not None:
        for page in selector.named(ledger.unresolved(night)):
            ledger.add(night, night.plan, page)
        return night
    plan, found = ledger.new_plan(night.night), 0
    for selection in settings.selections:
        for page in selector.pages(selection):
            ledger.add(night, plan, page)
            found += len(page)
            shown.selected(found)
    return ledger.freeze(night.night, plan)


def _audit(
    ledger: StoreWriter, night: Night, first: str, crew: "Crew | Cluster", shown: Progress
) -> int:
    """Audit what waits; the number of outcomes that came of it.

    No more is read ahead than is under way.
    """
    shown.begin(ledger.left(night))
    waiting, audited = ledger.waiting(night, first=first), 0
    while True:
        while crew.has_room and (one := next(waiting, None)) is not None:
            crew.submit(one)
        if not crew.under_way:
            return audited
        arrived: list[Done] = []
        try:
            arrived.extend(crew.finished(_LOOK))
        finally:  # none is lost where the next one is an error
            _record(ledger, night, arrived)
        audited += len(arrived)
        for done in arrived:
            shown.done(done.recorded.summary.verdict)


def _record(ledger: StoreWriter, night: Night, arrived: Sequence[Done]) -> None:
    """Write what has arrived; models that are neighbours, as these are, share pages of a store."""
    if not arrived:
        return
    with ledger.together():
        for done in arrived:
            ledger.record(night, done.model, done.commit_sha, done.recorded, snapshot=done.snapshot)


def crash_notice(swept: Swept) -> str | None:
    """The line about models whose audit failed by a bug of ours; None: no such model."""
    count = sum(models for _, reason, models in swept.tally if reason == Reason.CRASHED)
    models = "1 model" if count == 1 else f"{count:,} models"
    notice = (
        f"the audit of {models} crashed, a bug of hf-audit: please report what audit says of it "
        f"alone; the reports name it"
    )
    return notice if count else None


def summary_line(swept: Swept) -> str:
    """What came of the night, in one line."""
    parts = [
        f"{count:,} {reason or verdict or 'pending'}" for verdict, reason, count in swept.tally
    ]
    nights = "night" if swept.dropped == 1 else "nights"
    dropped = f"; {swept.dropped:,} {nights} dropped" if swept.dropped else ""
    return (
        f"night {swept.night.night}: {swept.models:,} models ({', '.join(parts)}); "
        f"{swept.audited:,} audited in {duration(swept.seconds)}{dropped}"
    )
