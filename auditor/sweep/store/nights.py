"""What reports read from a store: a night, and what was known before it. Never writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.sweep.store.reading import Night, Result, Store

_model = attrgetter("model")


class Compared(NamedTuple):
    """One model tonight and before; at least one of the two is there."""

    model: str
    tonight: Result | None  # None: no longer selected
    before: Result | None  # None: selected for the first time, or the first night of the store


class Nights(Store):
    """A store as reports read it."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read within is of one moment, whatever a sweep writes meanwhile."""
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.rollback()

    def chosen(self, name: str | None) -> Night:
        """The night of that name, or the latest; raises UsageError if it cannot be shown."""
        nights = [night for night in self.nights() if name in {None, night.night}]
        shown = [night for night in nights if night.plan is not None]
        if shown:
            return shown[-1]
        if nights:
            detail = "its selection goes on, or was stopped: sweep once more"
            raise UsageError(
                f"there is nothing to report of the night {quoted(nights[-1].night)}, {detail}"
            )
        if name is None:
            raise UsageError("this store has no night: `audit sweep` makes one")
        known = ", ".join(quoted(night.night) for night in self.nights()[-3:]) or "none"
        raise UsageError(f"this store has no night {quoted(name)}; its last: {known}")

    def compared(self, night: Night, previous: Night | None) -> Iterator[Compared]:
        """Every model of the night and of the one before, in the order of ids.

        What was known before is the outcome of the last night that could audit the model. If this
        night cannot audit it either, it is the outcome of the last night that could read its files;
        else that of the night before. So a night without network makes nothing new the night after.
        """
        for model, tonight, last in self._merged(night, previous):
            if previous is None or tonight is None:
                yield Compared(model, tonight, last)
                continue
            files = tonight.verdict == "unaudited"
            if last is not None and (was_audited(last) or (files and was_read(last))):
                yield Compared(model, tonight, last)
            else:
                known = self._last_audited(model, previous, files=files)
                yield Compared(model, tonight, known or last)

    def _merged(
        self, night: Night, previous: Night | None
    ) -> Iterator[tuple[str, Result | None, Result | None]]:
        both = [self.results(one.night) for one in (night, previous) if one]
        # SQLite orders UTF-8 by its bytes, which is how Python orders code points.
        for model, found in groupby(merge(*both, key=_model), _model):
            by_night = {one.night: one for one in found}
            yield model, by_night.get(night.night), by_night.get(previous.night if previous else "")

    def _last_audited(self, model: str, until: Night, *, files: bool) -> Result | None:
        """What the last finished night up to `until` found that could audit the model.

        One that could read its `files` will do, where none could audit it or that is asked for.
        """
        row = self._database.execute(_LAST_AUDITED, (model, until.night, files)).fetchone()
        return None if row is None else self.result(row[0], model)


def was_audited(result: Result) -> bool:
    """Whether a night could see the model's tensors."""
    return result.verdict in {"clean", "findings"}


def was_read(result: Result) -> bool:
    """Whether a night could read the model's files, audited or not."""
    return result.tensors is not None


_LAST_AUDITED = """
SELECT nights.night FROM nights
JOIN planned ON planned.plan = nights.plan AND planned.model = ?1
JOIN outcomes o ON o.model = planned.model AND o.commit_sha = planned.commit_sha
    AND o.auditor = nights.auditor AND o.catalogue = nights.catalogue
WHERE nights.night <= ?2 AND nights.finished IS NOT NULL
    AND (o.verdict != 'unaudited' OR o.tensors IS NOT NULL)
ORDER BY NOT ?3 AND o.verdict = 'unaudited', nights.night DESC LIMIT 1
"""
