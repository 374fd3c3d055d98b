"""The run of a sweep, called a night: select models, freeze the plan, audit the new ones."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from auditor.downloader.fetching import ignore_message
from auditor.downloader.hub_settings import endpoint, usable_token
from auditor.downloader.waits import ProgressLines
from auditor.errors import Reason, UsageError
from auditor.extras import install
from auditor.formats.text import counted
from auditor.messages import listed, quoted
from auditor.sweep.authors import record_authors
from auditor.sweep.one_model import Auditor, Done
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.progress import Progress, duration, verdict_counts
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.selection import Selector
from auditor.sweep.settings import Policy, SweepSettings, folder_of
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Alarms, Night
from auditor.sweep.worker_pool import WorkerPool, Workers

_LOOK = 0.5  # seconds between checks of the workers

_MOST = 10  # a selection may lose one of ten models
_IDS = "ids"
_WAYS = "correct it, or repeat with --force if meant"

Described = Mapping[str, object]  # a selection, as the store records it


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
    policy = settings.policy
    limiter = RateLimiter(policy.max_requests)
    progress = progress or Progress()
    talk = ProgressLines(ignore_message, progress.talk.waits)

    start = _starter(policy, usable, limiter, talk, scheduler)
    with (
        StoreWriter.open(settings.output.store) as ledger,
        closing(WorkerPool(start, policy.hopeless, talk.waits)) as pool,
    ):
        if scheduler:  # report a bad address before there is anything to audit
            pool.start()
        with progress:
            with Selector(policy, usable, limiter, talk) as selector:
                described = [dict(selection.described) for selection in settings.selections]
                selections = json.dumps(described, sort_keys=True)
                versions = current_versions(policy=policy)
                earlier = tuple(row for row in ledger.nights() if row.finished)
                started = ledger.begin(name, selections, versions, force=force)
                try:
                    current = _planned(
                        ledger, started, settings, selector, progress, None if force else earlier
                    )
                except UsageError:
                    ledger.withdraw(name)
                    raise
            audited = _audit(ledger, current, pool, progress)
            record_authors(ledger, current, usable, limiter, talk)
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


def _starter(
    policy: Policy,
    token: str | None,
    limiter: RateLimiter,
    talk: ProgressLines,
    scheduler: str | None,
) -> Callable[[], Workers]:
    """Return the function that starts the sweep's workers; raise UsageError if Dask is missing."""
    if scheduler is None and policy.processes == 1:
        return partial(Auditor, policy, token, limiter, talk)
    try:
        from auditor.sweep.cluster import DaskWorkers  # noqa: PLC0415 - Dask is an extra
    except ImportError:
        option = "--scheduler" if scheduler else "--processes"
        detail = f"{option} needs Dask: {install('cluster')}"
        raise UsageError(detail) from None
    return partial(DaskWorkers, policy, token, talk.waits, scheduler)


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


def _audit(ledger: StoreWriter, night: Night, pool: WorkerPool, progress: Progress) -> int:
    """Audit the models without an outcome, and return the number of new outcomes.

    Models are read from the store only as fast as the workers take them.
    """
    progress.begin(ledger.left(night))
    waiting, audited = ledger.waiting(night), 0
    while True:
        while pool.has_room and (model := next(waiting, None)) is not None:
            pool.submit(model)
        if not pool.under_way:
            return audited
        arrived: list[Done] = []
        try:
            arrived.extend(pool.finished(_LOOK))
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


# --- selections that are empty or have lost models -----------------------------------------------


def require_models(selection: Described, count: int) -> None:
    """Raise UsageError if a selection has no model."""
    if not count:
        raise UsageError(f"the selection {_in_words(selection)} has no model; {_WAYS}")


def require_no_losses(
    ledger: StoreWriter, plan: int, selections: Sequence[Described], earlier: Sequence[Night]
) -> None:
    """Raise UsageError if a selection of the plan has lost more than a tenth of its models.

    It is compared with the last of the earlier nights that has the selection. Every list of ids
    counts as the same selection, unless most of its ids are new. The first N models of the Hub's
    list and a list of ids may lose as many models as they gain.
    """
    for place, selection in enumerate(selections):
        is_list = _IDS in selection
        for night, at in _earlier_places(selection, earlier):
            losses = ledger.losses((night.plan or 0, at), (plan, place))
            if is_list and 2 * losses.new > losses.now:
                continue  # another list
            replaced = losses.new if is_list or "top" in selection else 0
            if (losses.lost - replaced) * _MOST > losses.models:
                lost = listed(losses.examples)
                if more := losses.lost - len(losses.examples):
                    lost = f"{lost} and {more:,} more"
                now = counted(losses.models - losses.lost + losses.new, "model")
                raise UsageError(
                    f"the selection {_in_words(selection)} has {now}, and had {losses.models:,} in "
                    f"the night {quoted(night.night)}; lost are {lost}; {_WAYS}"
                )
            break


def _earlier_places(selection: Described, earlier: Sequence[Night]) -> Iterator[tuple[Night, int]]:
    """Yield each night that has the selection, the latest first, with the selection's place."""
    wanted = _without_ids(json.loads(json.dumps(selection)))
    for night in sorted(earlier, key=lambda row: (row.finished, row.night), reverse=True):
        try:
            tables = json.loads(night.selection)
        except ValueError:
            continue
        for at, table in enumerate(tables):
            if _without_ids(table) == wanted:
                yield night, at


def _without_ids(selection: Described) -> Described:
    return {**selection, _IDS: ""} if _IDS in selection else selection


def _in_words(selection: Described) -> str:
    texts = (
        f"{key} {' '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for key, value in selection.items()
    )
    return quoted(", ".join(texts))


# --- lines about the result -----------------------------------------------------------------------


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
