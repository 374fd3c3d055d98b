"""An open store as it is read: its nights, and the outcome of each model."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec import Struct

from auditor.errors import StoreError, UsageError
from auditor.messages import quoted
from auditor.sweep.store.faults import FAULTS, store_errors
from auditor.sweep.store.opening import begin, open_store_to_read, roll_back
from auditor.sweep.store.packing import Kept, merged_object
from auditor.sweep.store.schema import SUMMARY

Blob = bytes  # of which a result has a number and a value


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


class StoredNight(NamedTuple):
    """An outcome in numbers: its columns, in the order of schema.SUMMARY."""

    verdict: str
    reason: str | None
    target: str | None
    model_type: str | None
    errors: int
    warnings: int
    infos: int
    blind: int
    residual: int | None
    tensors: int | None
    elements: int | None
    parameters: int | None
    expected: int | None
    requests: int
    bytes: int
    seconds: float


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
    target: str | None
    model_type: str | None
    errors: int | None
    warnings: int | None
    infos: int | None
    blind: int | None
    residual: int | None
    tensors: int | None
    elements: int | None
    parameters: int | None
    expected: int | None
    requests: int | None
    bytes: int | None
    seconds: float | None
    recorded: str | None
    content: Blob | None
    shared_content: Blob | None

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

    def results(self, night: str) -> Iterator[Result]:
        """One Result for each planned model, in the order of ids; read while they are asked for."""
        query = f"SELECT {_RESULT} FROM results WHERE night = ? ORDER BY model"  # noqa: S608 - our own columns
        for row in self._database.execute(query, (night,)):
            yield Result(**dict(zip(_RESULT_FIELDS, row, strict=True)))

    def result(self, night: str, model: str) -> Result | None:
        query = f"SELECT {_RESULT} FROM results WHERE night = ? AND model = ?"  # noqa: S608 - our own columns
        row = self._database.execute(query, (night, model)).fetchone()
        return None if row is None else Result(**dict(zip(_RESULT_FIELDS, row, strict=True)))


_NIGHT_FIELDS = Night.__struct_fields__
_NIGHT = ", ".join(_NIGHT_FIELDS)
_RESULT_FIELDS = Result.__struct_fields__
_RESULT = ", ".join(_RESULT_FIELDS)
assert StoredNight._fields == SUMMARY  # noqa: S101 - two lists of the same columns, side by side
