"""Request who pushed the commits with new or changed findings: one request for each model."""

from collections.abc import Sequence
from threading import Event

from auditor.downloader import hub
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import awaited, threads
from auditor.downloader.waits import ProgressLines
from auditor.errors import SourceError
from auditor.sweep.rate_limits import Bounds, Budget, RateLimiter
from auditor.sweep.reporting.baseline import Baseline
from auditor.sweep.reporting.changes import ALARMING
from auditor.sweep.reporting.model_entry import entry_of
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Night, Result, Store

# Requests of one night, a window's quota without a token; on a first night all findings are new.
MOST = 500
_AT_ONCE = 16  # concurrent requests
_BOUNDS = Bounds("the authors of one commit", 10.0, hub.MAX_COMMITS)


def record_authors(
    ledger: StoreWriter, night: Night, token: str | None, limiter: RateLimiter, talk: ProgressLines
) -> None:
    """Request and store the authors of the commits whose findings are new or changed.

    The authors stay unknown if the Hub does not name them or the request fails.
    """
    over = Event()

    def authors(result: Result) -> str | None:
        model = HubModel(id=result.model, revision=result.commit_sha)
        try:
            session = Budget(_BOUNDS, limiter, talk, over).session(model, token)
            return hub.fetch_authors(model, result.commit_sha, session)
        except SourceError:
            return None

    unknown = [one for one in _with_news(ledger, night) if one.commit_authors is None]
    with threads(_AT_ONCE, over.set) as pool:
        futures = [pool.submit(authors, result) for result in unknown]
        for result, future in zip(unknown, futures, strict=True):
            if names := awaited(future):
                ledger.record_authors(result.model, result.commit_sha, names)


def _with_news(store: Store, night: Night) -> Sequence[Result]:
    """Return the first MOST models with new or changed findings: new errors first, then by id.

    They do not depend on which authors are known, so a sweep that is resumed requests no more.
    """
    results: dict[str, list[Result]] = {severity: [] for severity in ALARMING}
    previous = store.previous(night.night)
    for compared in store.compared(night, previous, clean=False):
        tonight = compared.tonight
        is_on_hub = tonight and tonight.commit_sha and "://" not in tonight.model
        if tonight and is_on_hub and not compared.is_unchanged:
            entry = entry_of(compared, Baseline(), first=previous is None)
            severities = {match.finding.severity for match in entry.news}
            worst = next((one for one in ALARMING if one in severities), None)
            if worst and len(results[worst]) < MOST:
                results[worst].append(tonight)
    return [result for severity in ALARMING for result in results[severity]][:MOST]
