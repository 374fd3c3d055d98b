"""The reading side of a store: its nights, and the outcome of each model."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from functools import cached_property
from heapq import merge
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec import Struct, ValidationError, convert

from auditor.errors import StoreError, UsageError
from auditor.formats.document import Document
from auditor.messages import quoted
from auditor.sweep.store.opening import open_store_to_read, store_errors
from auditor.sweep.store.schema import StoredNight, StoredObject, decompress_text, merged_object

_MODEL = attrgetter("model")


class Versions(NamedTuple):
    """The versions that an outcome depends on, besides the checkpoint."""

    auditor: str
    catalogue: str


class Night(NamedTuple):
    """The sweep of one night, as the store records it."""

    night: str
    selection: str  # JSON
    plan: int | None  # None: its selection is under way, or was stopped
    auditor: str
    catalogue: str
    started: str  # ISO 8601, UTC
    finished: str | None  # None: it is under way, or was stopped

    @property
    def day(self) -> date:
        """The date of the night: its name if that is a date, else the day it started."""
        try:
            return date.fromisoformat(self.night)
        except ValueError:
            return date.fromisoformat(self.started[:10])


class Recorded(NamedTuple):
    """An outcome as the store writes it: its columns and its packed JSON."""

    summary: StoredNight
    stored_outcome: StoredObject


class Result(Struct, frozen=True, dict=True):
    """The outcome of one model in one night; `verdict` is None if the model is not audited yet."""

    night: str
    model: str
    commit_sha: str  # "": the Hub returned none
    requested: str
    verdict: str | None
    reason: str | None
    tensors: int | None  # None: the model's files were not read
    last_modified: str | None  # the last commit's time on the Hub; None: unknown
    commit_authors: str | None  # None: unknown
    content: bytes | None
    shared_content: bytes | None

    @cached_property
    def outcome(self) -> dict[str, Any] | None:
        """The JSON object of the audit (schema 1); None if the model is not audited yet."""
        return None if self.content is None else merged_object(self.content, self.shared_content)

    @property
    def document(self) -> Document | None:
        """The outcome as a struct; raise StoreError if this version cannot read it."""
        try:
            return None if self.outcome is None else convert(self.outcome, Document)
        except ValidationError as error:
            detail = f"the outcome of {quoted(self.model)} cannot be read: {error}"
            raise StoreError(detail) from None


class SelectedModel(NamedTuple):
    """A selected model and its current commit on the Hub."""

    model: str  # the id after renames
    commit_sha: str  # "": the Hub returned none
    requested: str  # the id in the selection
    siblings: object = None  # its files in the list API's form, unchecked; None: unknown
    refusal: Recorded | None = None  # the unaudited outcome if there is no commit
    pushed: str | None = None  # the time of the commit; None: unknown


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Alarms(NamedTuple):
    """The numbers of models in a night that determine the exit code."""

    errors: int  # models with an error or a residual
    warnings: int  # models with warnings only
    unaudited: int  # other models that could not be audited, or with a component that could not
    bad_requests: int
    # Models counted in `errors` and in `warnings` that could not be audited completely. They count
    # as unaudited only if --fail-on ignores their findings.
    blind_errors: int = 0
    blind_warnings: int = 0


class Compared(NamedTuple):
    """A model's results tonight and before; at least one of them is not None."""

    model: str
    tonight: Result | None  # None: no longer selected
    before: Result | None  # None: selected for the first time, or the first night of the store

    @property
    def is_unchanged(self) -> bool:
        """Whether both nights have the same outcome, as the store contains it."""
        contents = [(one.content, one.shared_content) for one in self[1:] if one and one.content]
        return len(contents) == 2 and contents[0] == contents[1]  # noqa: PLR2004 - the nights


class Store:
    """An open store; all reads see the state at the first read, even if a sweep writes meanwhile.

    Only one thread may use a Store; each thread opens its own.
    """

    _connect = staticmethod(open_store_to_read)

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open a store; raise UsageError if it does not exist or is not a store.

        Within the `with` block, errors of SQLite or of damaged rows are raised as StoreErrors.
        """
        with store_errors(path), ExitStack() as stack:
            try:
                database = cls._connect(path, stack)
            except OSError as error:
                where = quoted(str(path))
                detail = error.strerror or error
                raise StoreError(f"the store {where} cannot be opened or made: {detail}") from None
            yield cls(database)

    def has_outcome(self, model: str, commit: str | None, versions: Versions | Night) -> bool:
        """Whether an outcome of these versions is stored, for any commit if `commit` is None."""
        query = (
            "SELECT 1 FROM outcomes WHERE model = ? AND (auditor, catalogue) = (?, ?)"
            " AND (? IS NULL OR commit_sha = ?) LIMIT 1"
        )
        parameters = (model, versions.auditor, versions.catalogue, commit, commit)
        return self._database.execute(query, parameters).fetchone() is not None

    def has_snapshot(self, model: str, commit: str, *, companions: bool = False) -> bool:
        """Whether a model's snapshot is stored, with companion files if `companions` is set."""
        query = "SELECT content FROM snapshots WHERE (model, commit_sha) = (?, ?)"
        row = self._database.execute(query, (model, commit)).fetchone()
        if row is None or not companions:
            return row is not None
        return "companions" in json.loads(decompress_text(row[0]))

    # --- queries of reports -------------------------------------------------------------------

    def nights(self) -> tuple[Night, ...]:
        """Return all nights, sorted by name; names that are dates sort by time."""
        rows = self._database.execute("SELECT * FROM nights ORDER BY night")
        return tuple(Night(*row) for row in rows)

    def night(self, name: str) -> Night | None:
        return next((night for night in self.nights() if night.night == name), None)

    def previous(self, name: str) -> Night | None:
        """Return the last finished night before this one, by name."""
        before = [night for night in self.nights() if night.night < name and night.finished]
        return before[-1] if before else None

    def count(self, night: Night) -> int:
        """Return the number of models in the night's plan."""
        query = "SELECT count(*) FROM planned WHERE plan = ?"
        return int(self._database.execute(query, (night.plan,)).fetchone()[0])

    def results(self, night: str) -> Iterator[Result]:
        """Yield a Result for each planned model, sorted by id; rows are read lazily."""
        return self._results("night = ? ORDER BY model", night)

    def result(self, night: str, model: str) -> Result | None:
        return next(self._results("night = ? AND model = ?", night, model), None)

    def _results(self, where: str, *parameters: object) -> Iterator[Result]:
        query = f"SELECT {_RESULT} FROM results WHERE {where}"  # noqa: S608 - our own columns
        return (Result(*row) for row in self._database.execute(query, parameters))

    def chosen(self, name: str | None) -> Night:
        """Return the night of that name, or the latest; raise UsageError if it has no plan."""
        nights = [night for night in self.nights() if name in {None, night.night}]
        planned_nights = [night for night in nights if night.plan is not None]
        if planned_nights:
            return planned_nights[-1]
        if nights:
            last = quoted(nights[-1].night)
            detail = "its selection is under way or was stopped; run the sweep again"
            raise UsageError(f"the night {last} has nothing to report: {detail}")
        if name is None:
            raise UsageError("this store has no night; `audit sweep` creates one")
        last_names = ", ".join(quoted(night.night) for night in self.nights()[-3:]) or "none"
        raise UsageError(f"this store has no night {quoted(name)}; its last ones are {last_names}")

    def compared(
        self, night: Night, previous: Night | None, *, clean: bool = True
    ) -> Iterator[Compared]:
        """Yield every model of the night and of the previous night, sorted by id.

        Without `clean`, a model that is clean in both nights is left out, and `tonight` is None for
        a model that is clean in `night`.
        `before` is the outcome of the last night that audited the model (or, if the model is
        unaudited in `night`, of the last night that read its files). If no night did, `before` is
        the outcome of `previous`. So after a night without network, known findings are not new.
        """
        where = "night = ? ORDER BY model"
        if not clean:
            where = f"verdict IS NOT 'clean' AND {where}"
        both = [self._results(where, one.night) for one in (night, previous) if one]
        # SQLite sorts UTF-8 by bytes, which is the order of Python's code points.
        for model, results in groupby(merge(*both, key=_MODEL), _MODEL):
            result_by_night = {result.night: result for result in results}
            tonight = result_by_night.pop(night.night, None)
            last = next(iter(result_by_night.values()), None)
            if previous and tonight:
                last = self._known_before(tonight, last, previous)
            yield Compared(model, tonight, last)

    def _known_before(self, tonight: Result, last: Result | None, previous: Night) -> Result | None:
        is_unaudited = tonight.verdict == "unaudited"  # then a night that read the files is enough
        if last and last.verdict in {"clean", "findings"}:
            return last
        if last and is_unaudited and last.tensors is not None:
            return last
        return next(self._results(_KNOWN, tonight.model, previous.night, is_unaudited), last)

    def tally(self, night: str) -> tuple[tuple[str | None, str | None, int], ...]:
        """Return a night's rows (verdict, reason, models); only `unaudited` has a reason."""
        query = (
            "SELECT verdict, reason, count(*) FROM results WHERE night = ?"
            " GROUP BY verdict, reason ORDER BY verdict, reason"
        )
        return tuple(self._database.execute(query, (night,)))

    def alarms(self, night: str) -> Alarms:
        """Return the numbers of models that determine the exit code."""
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
