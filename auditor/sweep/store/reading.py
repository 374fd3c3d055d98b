"""An open store as it is read: its nights, and the outcome of each model."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from heapq import merge
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec import Struct

from auditor.errors import StoreError, UsageError
from auditor.messages import quoted
from auditor.sweep.store.opening import open_store_to_read, store_errors
from auditor.sweep.store.packing import Kept, decompress_text, merged_object
from auditor.sweep.store.schema import StoredNight

_MODEL = attrgetter("model")


class Versions(NamedTuple):
    """What an outcome depends on, beside the checkpoint."""

    auditor: str
    catalogue: str


class Night(NamedTuple):
    """One night of a store."""

    night: str
    selection: str  # JSON
    plan: int | None  # None: its selection goes on, or was stopped
    auditor: str
    catalogue: str
    started: str  # ISO 8601, UTC
    finished: str | None  # None: it goes on, or was stopped


class Recorded(NamedTuple):
    """An outcome as it is written: its numbers and its JSON."""

    summary: StoredNight
    kept: Kept


class Result(Struct, frozen=True, dict=True):
    """The outcome of one model in one night. `verdict` None: it was planned and not audited yet."""

    night: str
    model: str
    commit_sha: str  # "": the Hub did not give one
    requested: str
    verdict: str | None
    reason: str | None
    tensors: int | None  # None: the model's files were not read
    content: bytes | None
    shared_content: bytes | None

    @cached_property
    def outcome(self) -> dict[str, Any] | None:
        """The JSON object of the audit (schema 1); None: not audited yet."""
        return None if self.content is None else merged_object(self.content, self.shared_content)


class SelectedModel(NamedTuple):
    """A model that a selection names, at the commit that the Hub has now."""

    model: str  # the id after renames
    commit_sha: str  # "": the Hub told nothing of it
    requested: str  # the id as it was asked for
    siblings: object = None  # its files as the list API has them, not looked at; None: not known
    refusal: Recorded | None = None  # why the Hub told nothing


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Alarms(NamedTuple):
    """How many models of a night have what an exit code is made of."""

    errors: int  # a finding of that severity, or a residual
    warnings: int  # none of those, but a warning
    unaudited: int  # it, or a component, could not be audited, and it is not counted above
    bad_requests: int
    # Of those with errors, and with warnings: it, or a component, could not be audited. What is
    # found comes before that, unless --fail-on lets it pass.
    blind_errors: int = 0
    blind_warnings: int = 0


class Compared(NamedTuple):
    """One model tonight and before; at least one of the two is there."""

    model: str
    tonight: Result | None  # None: no longer selected
    before: Result | None  # None: selected for the first time, or the first night of the store


class Store:
    """An open store, as it was when it was first read, whatever a sweep writes meanwhile.

    Of one thread: others open it for themselves.
    """

    _connect = staticmethod(open_store_to_read)

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open a store; raises UsageError for one that is not there, or another's file.

        What SQLite, or a damaged row, raises while it is open leaves as a StoreError.
        """
        with store_errors(path), ExitStack() as stack:
            try:
                database = cls._connect(path, stack)
            except OSError as error:
                where = quoted(str(path))
                raise StoreError(f"the store {where} cannot be opened or made: {error}") from None
            yield cls(database)

    def has_outcome(self, model: str, commit: str | None, versions: Versions | Night) -> bool:
        """Whether a model has an outcome of these versions; commit None: at any commit."""
        query = (
            "SELECT 1 FROM outcomes WHERE model = ? AND (auditor, catalogue) = (?, ?)"
            " AND (? IS NULL OR commit_sha = ?) LIMIT 1"
        )
        given = (model, versions.auditor, versions.catalogue, commit, commit)
        return self._database.execute(query, given).fetchone() is not None

    def has_snapshot(self, model: str, commit: str, *, companions: bool = False) -> bool:
        """Whether the files of a model are stored, its `companions` too if they are needed."""
        query = "SELECT content FROM snapshots WHERE (model, commit_sha) = (?, ?)"
        row = self._database.execute(query, (model, commit)).fetchone()
        if row is None or not companions:
            return row is not None
        return "companions" in json.loads(decompress_text(row[0]))

    # --- what reports read --------------------------------------------------------------------

    def nights(self) -> tuple[Night, ...]:
        """Every night, in the order of names: dates are in the order of time."""
        rows = self._database.execute("SELECT * FROM nights ORDER BY night")
        return tuple(Night(*row) for row in rows)

    def night(self, name: str) -> Night | None:
        return next((night for night in self.nights() if night.night == name), None)

    def previous(self, name: str) -> Night | None:
        """The last finished night before this one."""
        before = [night for night in self.nights() if night.night < name and night.finished]
        return before[-1] if before else None

    def count(self, night: Night) -> int:
        """How many models the night's plan has."""
        query = "SELECT count(*) FROM planned WHERE plan = ?"
        return int(self._database.execute(query, (night.plan,)).fetchone()[0])

    def results(self, night: str) -> Iterator[Result]:
        """One Result for each planned model, in the order of ids; read while they are asked for."""
        return self._results("night = ? ORDER BY model", night)

    def result(self, night: str, model: str) -> Result | None:
        return next(self._results("night = ? AND model = ?", night, model), None)

    def _results(self, where: str, *given: object) -> Iterator[Result]:
        query = f"SELECT {_RESULT} FROM results WHERE {where}"  # noqa: S608 - our own columns
        return (Result(*row) for row in self._database.execute(query, given))

    def chosen(self, name: str | None) -> Night:
        """The night of that name, or the latest; raises UsageError if it cannot be shown."""
        nights = [night for night in self.nights() if name in {None, night.night}]
        shown = [night for night in nights if night.plan is not None]
        if shown:
            return shown[-1]
        if nights:
            last = quoted(nights[-1].night)
            detail = "its selection goes on, or was stopped: sweep once more"
            raise UsageError(f"there is nothing to report of the night {last}, {detail}")
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
        both = [self.results(one.night) for one in (night, previous) if one]
        # SQLite orders UTF-8 by its bytes, which is how Python orders code points.
        for model, found in groupby(merge(*both, key=_MODEL), _MODEL):
            by_night = {one.night: one for one in found}
            tonight = by_night.pop(night.night, None)
            last = next(iter(by_night.values()), None)
            if previous and tonight:
                last = self._known_before(tonight, last, previous)
            yield Compared(model, tonight, last)

    def _known_before(self, tonight: Result, last: Result | None, previous: Night) -> Result | None:
        files = tonight.verdict == "unaudited"  # to have read the files of the model will do
        if last and (last.verdict in {"clean", "findings"} or (files and last.tensors is not None)):
            return last
        return next(self._results(_KNOWN, tonight.model, previous.night, files), last)

    def tally(self, night: str) -> tuple[tuple[str | None, str | None, int], ...]:
        """(verdict, reason, models) of a night, the reason of those that are unaudited."""
        query = (
            "SELECT verdict, reason, count(*) FROM results WHERE night = ?"
            " GROUP BY verdict, reason ORDER BY verdict, reason"
        )
        return tuple(self._database.execute(query, (night,)))

    def alarms(self, night: str) -> Alarms:
        """What there is to be alarmed about."""
        row = self._database.execute(_ALARMS, (night,)).fetchone()
        return Alarms(*(count or 0 for count in row))


_RESULT = ", ".join(Result.__struct_fields__)
_ALARMS = """
SELECT sum(error), sum(warning AND NOT error), sum(unseen AND NOT error AND NOT warning),
    sum(bad_request), sum(unseen AND error), sum(unseen AND warning AND NOT error)
FROM (
    SELECT coalesce(errors, 0) > 0 OR coalesce(residual, 0) != 0 AS error,
        coalesce(warnings, 0) > 0 AS warning,
        reason IS 'bad-request' AS bad_request,
        reason IS NOT 'bad-request' AND (
            verdict IS NULL OR verdict = 'unaudited' OR verdict = 'findings' AND blind > 0
        ) AS unseen
    FROM results WHERE night = ?
)
"""
_KNOWN = """
model = ? AND night IN (SELECT night FROM nights WHERE night <= ? AND finished IS NOT NULL)
    AND (verdict != 'unaudited' OR tensors IS NOT NULL)
ORDER BY NOT ? AND verdict = 'unaudited', night DESC
"""
