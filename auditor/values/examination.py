"""`--values`: all numbers of files on this machine, a sample of those on the Hub."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace

from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.downloader.waits import Talk
from auditor.errors import UsageError
from auditor.reconciler.ignore import Ignore
from auditor.report import Report, Unaudited
from auditor.values.local_examination import with_numbers
from auditor.values.sampling import Sampler, parse_budget
from auditor.values.unread import without_headers_alone

INSTALL = 'pip install "hf-audit[values]"'


def require_numpy() -> None:
    """Raise UsageError where numpy is not installed."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError(f"--values needs numpy: {INSTALL}")


class ValuesReader:
    """Looks at the numbers of the models of one audit."""

    def __init__(
        self, *, statistics: bool, budget: str | None, token: str | None, say: Callable[[str], None]
    ) -> None:
        self._statistics = statistics
        self._say = say
        self._sampler = Sampler(parse_budget(budget), statistics=statistics, token=token, say=say)

    def __call__(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        models: int = 1,
        redirected: bool | None = None,
    ) -> Report | Unaudited:
        """The outcome with what its numbers tell, or with why they were not read."""
        if snapshot.folder is not None:
            show = Talk.of(self._say).progress
            return with_numbers(outcome, snapshot, ignore, statistics=self._statistics, show=show)
        if snapshot.source is Source.HUB and snapshot.commit is not None:
            return self._sampler(outcome, snapshot, ignore, models=models, redirected=redirected)
        why = "values: the weight files are not on this machine"
        return replace(outcome, unchecked=(*without_headers_alone(outcome), why))
