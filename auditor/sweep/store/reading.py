"""An open store as it is read: its nights, and the outcome of each model."""

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
from auditor.sweep.store.opening import FAULTS, begin, open_store_to_read, roll_back, store_errors
from auditor.sweep.store.packing import Kept, merged_object
from auditor.sweep.store.schema import StoredNight

_MODEL = attrgetter("model")


class Versions(Struct, frozen=True, kw_only=True):
    """What an outcome depends on, beside the checkpoint."""

    auditor: str
    catalogue: str


class Night(Struct, frozen=True, kw_only=True):
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


class Result(Struct, frozen=True, kw_only=True, dict=True):
    """The outcome of one model in one night. `verdict` None: it was planned and not audited yet."""

    night: str
    model: str
    commit_sha: str  # "": the Hub did not give one
    requested: str
    auditor: str
    catalogue: str
    verdict: str | None
    reason: str | None
    tensors: int | None
    content: bytes | None
    shared_content: bytes | None

    @property
    def was_audited(self) -> bool:
        """Whether the night could see the model's tensors."""
        return self.verdict in {"clean", "findings"}

    @property
    def was_read(self) -> bool:
        """Whether the night could read the model's files, audited or not."""
        return self.tensors is not None

    @cached_property
    def outcome(self) -> dict[str, Any] | None:
        """The JSON object of the audit (schema 1); None: not audited yet."""
        return None if self.content is None else merged_object(self.content, self.shared_content)


class Planned(NamedTuple):
    """One model of a plan."""

    model: str
    commit_sha: str
    requested: str


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
    """An open store; a context manager. Of one thread: others open it for themselves."""

    def __init__(self, database: sqlite3.Connection, path: Path, opened: ExitStack) -> None:
        self._database = database
        self._path = path
        self._opened = opened

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Self:
        """Open a store, or make one; raises UsageError for a file that a sweep did not make.

        Raises StoreError for one that is damaged, or that cannot be had as it has to be.
        """
        if not create and not path.exists():
            raise UsageError(
                f"the store {quoted(str(path))} does not exist: `audit sweep` makes one"
            )
        try:
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            detail = f"its folder cannot be made: {error.strerror or error}"
            raise StoreError(f"the store {quoted(str(path))} cannot be opened: {detail}") from None
        with ExitStack() as stack:
            database = cls._connect(path, stack)
            return cls(database, path, stack.pop_all())

    _connect = staticmethod(open_store_to_read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None = None, error: object = None, _: object = None
    ) -> None:
        with store_errors(self._path):
            self._opened.close()
            if isinstance(error, FAULTS):
                raise error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, begun as a writer: a reader that turns writer may find itself late.

        Within another one it is a part of that.
        """
        if self._database.in_transaction:
            yield self._database
            return
        begin(self._database)
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            roll_back(self._database)
            raise

    # --- what reports read --------------------------------------------------------------------

    def nights(self) -> tuple[Night, ...]:
        """Every night, in the order of names: dates are in the order of time."""
        rows = self._database.execute(f"SELECT {_NIGHT} FROM nights ORDER BY night")  # noqa: S608 - our own columns
        return tuple(Night(**dict(zip(_NIGHT_FIELDS, row, strict=True))) for row in rows)

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

    def _results(self, where: str, *given: str) -> Iterator[Result]:
        query = f"SELECT {_RESULT} FROM results WHERE {where}"  # noqa: S608 - our own columns
        for row in self._database.execute(query, given):
            yield Result(**dict(zip(_RESULT_FIELDS, row, strict=True)))

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
            if last is not None and (last.was_audited or (files and last.was_read)):
                yield Compared(model, tonight, last)
            else:
                known = self._last_audited(model, previous, files=files)
                yield Compared(model, tonight, known or last)

    def _merged(
        self, night: Night, previous: Night | None
    ) -> Iterator[tuple[str, Result | None, Result | None]]:
        both = [self.results(one.night) for one in (night, previous) if one]
        # SQLite orders UTF-8 by its bytes, which is how Python orders code points.
        for model, found in groupby(merge(*both, key=_MODEL), _MODEL):
            by_night = {one.night: one for one in found}
            yield model, by_night.get(night.night), by_night.get(previous.night if previous else "")

    def _last_audited(self, model: str, until: Night, *, files: bool) -> Result | None:
        """What the last finished night up to `until` found that could audit the model.

        One that could read its `files` will do, where none could audit it or that is asked for.
        """
        row = self._database.execute(_LAST_AUDITED, (model, until.night, files)).fetchone()
        return None if row is None else self.result(row[0], model)

    def tally(self, night: str) -> tuple[tuple[str | None, str | None, int], ...]:
        """(verdict, reason, models) of a night, the reason of those that are unaudited."""
        rows = self._database.execute(
            "SELECT verdict, reason, count(*) FROM results WHERE night = ?"
            " GROUP BY verdict, reason ORDER BY verdict, reason",
            (night,),
        )
        return tuple(rows)

    def alarms(self, night: str) -> Alarms:
        """What there is to be alarmed about."""
        row = self._database.execute(_ALARMS, {"night": night}).fetchone()
        return Alarms(*(count or 0 for count in row))


_NIGHT_FIELDS = Night.__struct_fields__
_NIGHT = ", ".join(_NIGHT_FIELDS)
_RESULT_FIELDS = Result.__struct_fields__
_RESULT = ", ".join(_RESULT_FIELDS)
_ALARMS = """
SELECT sum(error), sum(warning), sum(unseen AND NOT error AND NOT warning), sum(bad_request),
    sum(unseen AND error), sum(unseen AND warning)
FROM (
    SELECT error, NOT error AND warnings AS warning, bad_request,
        (verdict = 'unaudited' OR verdict = 'findings' AND blind) AND NOT bad_request AS unseen
    FROM (
        SELECT coalesce(errors, 0) > 0 OR coalesce(residual, 0) != 0 AS error,
            coalesce(warnings, 0) > 0 AS warnings,
            coalesce(verdict, 'unaudited') AS verdict,
            coalesce(blind, 0) > 0 AS blind,
            coalesce(reason, '') = 'bad-request' AS bad_request
        FROM results WHERE night = :night
    )
)
"""
_LAST_AUDITED = """
SELECT nights.night FROM nights
JOIN planned ON planned.plan = nights.plan AND planned.model = ?1
JOIN outcomes o ON o.model = planned.model AND o.commit_sha = planned.commit_sha
    AND o.auditor = nights.auditor AND o.catalogue = nights.catalogue
WHERE nights.night <= ?2 AND nights.finished IS NOT NULL
    AND (o.verdict != 'unaudited' OR o.tensors IS NOT NULL)
ORDER BY NOT ?3 AND o.verdict = 'unaudited', nights.night DESC LIMIT 1
"""
