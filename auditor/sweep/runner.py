"""The run of a sweep, called a night: select models, freeze the plan, audit the new ones."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from auditor.downloader.hub_settings import endpoint, usable_token
from auditor.downloader.waits import Waits
from auditor.errors import Reason, UsageError
from auditor.extras import install
from auditor.formats.text import counted
from auditor.machine import one_cpu
from auditor.sweep.authors import record_authors
from auditor.sweep.losses import require_models, require_no_losses
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.policy import Policy
from auditor.sweep.progress import Progress, duration, verdict_counts
from auditor.sweep.selection import Selector
from auditor.sweep.settings import SweepSettings, folder_of
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Alarms, Night
from auditor.sweep.workers.audit_threads import AuditThreads, Crew
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import Done

if TYPE_CHECKING:  # Dask is an extra, and takes a second to import
    from auditor.sweep.workers.cluster import Cluster

_LOOK = 0.5  # seconds between checks of the budget and of stuck models


class Swept(Struct, frozen=True, kw_only=True):
    """The result of one sweep."""

    night: Night
    models: int
    audited: int  # models audited by this run; the other outcomes were in the store
    seconds: float
    tally: tuple[tuple[str | None, str | None, int], ...]  # (verdict, reason, models)
    alarms: Alarms
    dropped: int = 0  # number of nights deleted from the store


def sweep(  # noqa: PLR0913 - the options of the command
    settings: SweepSettings,
    *,
    night: str | None = None,
    token: str | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    force: bool = False,
) -> Swept:
    """Audit the selected models, except those that an earlier run of the night has audited.

    `night` is the night's name in the store, today's date (UTC) if None. `scheduler` is the address
    of a Dask cluster whose workers audit instead of threads of this process. Raise UsageError if
    the settings are impossible, SourceError if the Hub does not list the models or the cluster is
    lost, StoreError if the store cannot be written. An error in one model becomes its outcome.

    Raise UsageError, unless `force` is set, if a selection has no model or has lost more than a
    tenth of the models that it had, or if the night is finished for other selections.
    """
    endpoint()
    usable = usable_token(token)
    name = night or datetime.now(UTC).date().isoformat()
    folder_of(name)  # refuse a name that cannot be the reports' folder before any work
    since = time.monotonic()
    budget = Budget(settings.policy.max_requests)
    progress = progress or Progress()
    waits = Waits(progress.waiting)
    with (
        StoreWriter.open(settings.output.store) as ledger,
        _auditors(settings.policy, usable, budget, waits, scheduler) as crew,
    ):
        with progress:
            with Selector(settings.policy, usable, budget, waits) as selector:
                described = [dict(selection.described) for selection in settings.selections]
                selections = json.dumps(described, sort_keys=True)
                versions = current_versions(policy=settings.policy)
                earlier = tuple(row for row in ledger.nights() if row.finished)
                started = ledger.begin(name, selections, versions, force=force)
                try:
                    current = _planned(
                        ledger, started, settings, selector, progress, None if force else earlier
                    )
                except UsageError:
                    ledger.withdraw(name)
                    raise
            first = ledger.random_model(current) if started.plan is not None else ""
            audited = _audit(ledger, current, first, crew, progress)
            record_authors(ledger, current, usable, budget, waits)
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
        detail = f"{option} needs Dask: {install('cluster')}"
        raise UsageError(detail) from None
    with Cluster(policy, token, waits, scheduler) as cluster:
        yield cluster


def _planned(  # noqa: PLR0913, PLR0917 - the state of a sweep
    ledger: StoreWriter,
    night: Night,
    settings: SweepSettings,
    selector: Selector,
    progress: Progress,
    earlier: Sequence[Night] | None,
) -> Night:
    """Return the night with its plan (its selected models), made now unless an earlier run made it.

    Models of an existing plan whose commit could not be read for a temporary reason are requested
    again. Unless `earlier` is None, raise UsageError if a selection is empty or has lost models
    since the earlier nights.
    """
    if night.plan is not None:
        if earlier is not None:
            require_models(settings.selections[0].described, ledger.count(night))
        for page in selector.named(ledger.unresolved(night)):
            ledger.add(night, night.plan, page)
        return night
    plan, count = ledger.new_plan(night.night), 0
    for place, selection in enumerate(settings.selections):
        before = count
        for page in selector.pages(selection):
            ledger.add(night, plan, page, selection=place)
            count += len(page)
            progress.selected(count)
        if earlier is not None:
            require_models(selection.described, count - before)
    if earlier is not None:
        tables = [selection.described for selection in settings.selections]
        require_no_losses(ledger, plan, tables, earlier)
    return ledger.freeze(night.night, plan)


def _audit(
    ledger: StoreWriter, night: Night, first: str, crew: "Crew | Cluster", progress: Progress
) -> int:
    """Audit the models without an outcome, and return the number of new outcomes.

    Models are read from the store only as fast as the crew takes them.
    """
    progress.begin(ledger.left(night))
    waiting, audited = ledger.waiting(night, first=first), 0
    while True:
        while crew.has_room and (model := next(waiting, None)) is not None:
            crew.submit(model)
        if not crew.under_way:
            return audited
        arrived: list[Done] = []
        try:
            arrived.extend(crew.finished(_LOOK))
        finally:  # record the outcomes that arrived before an error
            _record(ledger, night, arrived)
        audited += len(arrived)
        for done in arrived:
            progress.done(done.recorded.summary.verdict)


def _record(ledger: StoreWriter, night: Night, arrived: Sequence[Done]) -> None:
    """Write outcomes in one transaction, because neighbouring ids share pages of the database."""
    if not arrived:
        return
    with ledger.together():
        for done in arrived:
            ledger.record(night, done.model, done.commit_sha, done.recorded, snapshot=done.snapshot)


def crash_notice(swept: Swept) -> str | None:
    """Return a line about models whose audit crashed by a bug; None if no audit crashed."""
    count = sum(models for _, reason, models in swept.tally if reason == Reason.CRASHED)
    notice = (
        f"the audit of {counted(count, 'model')} crashed, which is a bug of hf-audit; the reports "
        f"name them: please report the output of `audit MODEL` for one"
    )
    return notice if count else None


def summary_line(swept: Swept) -> str:
    """Return the result of the night in one line."""
    counts = {reason or verdict or "pending": count for verdict, reason, count in swept.tally}
    dropped = f"; {counted(swept.dropped, 'night')} dropped" if swept.dropped else ""
    return (
        f"night {swept.night.night}: {counted(swept.models, 'model')} ({verdict_counts(counts)}); "
        f"{swept.audited:,} audited in {duration(swept.seconds)}{dropped}"
    )
