"""The files of a night, written while models pass: CSV tables, and the same as Parquet."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import IO, Any

from auditor.errors import UsageError
from auditor.formats.csv_cells import Cell, csv_row
from auditor.formats.csv_rows import COLUMNS, Row, rows_of, with_components
from auditor.sweep.reporting import changes
from auditor.sweep.reporting.model_entry import ModelEntry

TABLES: Mapping[str, Sequence[str]] = {
    **COLUMNS,
    "changes": changes.COLUMNS,
    "open": changes.COLUMNS,
}

_GROUP = 20_000  # rows of Parquet that are held at once: 16 MB of modules
_INT64 = 1 << 63
_FLOATS = frozenset(("share",))
_TEXTS = frozenset(
    (
        *("requested", "model", "commit_sha", "source", "target", "model_type", "verdict"),
        *("reason", "detail", "unchecked", "expected_by", "formula", "origin", "prefix", "status"),
        *("kind", "severity", "folded", "ignored", "file", "change", "before", "after", "accepted"),
        *("commit_sha_before", "component", "cause", "level", "summary", "fix", "fields", "kinds"),
        "evidence",
    )
)
_COUNTED = {"models": frozenset(("ignored",))}  # a number there, and a word among findings


def table_rows(judged: ModelEntry, depth: int | None) -> Iterator[tuple[str, Iterable[Row]]]:
    """Table by table, the rows that one model adds; those of modules down to `depth`."""
    for outcome in with_components(judged.outcome) if judged.outcome is not None else ():
        yield from rows_of(outcome, depth)
    rows = judged.changes()
    yield "changes", (row for row in rows if not changes.says_nothing_new(row))
    yield "open", (row for row in rows if changes.says_nothing_new(row))


class Csv:
    """One table of CSV, as formats.as_csv writes them."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        self._columns = TABLES[name]
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._writer.writerow(self._columns)

    def add(self, found: Iterable[Row]) -> None:
        self._writer.writerows(csv_row(row, self._columns) for row in found)

    def finish(self) -> None:
        self._text.detach()


class Parquet:
    """One table of Parquet: numbers as numbers, text as it is."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._arrow, self._held = _pyarrow(), list[Row]()
        counted = _COUNTED.get(name, frozenset())
        self._texts = [column for column in TABLES[name] if column in _TEXTS - counted]
        kinds = {column: self._kind(column) for column in TABLES[name]}
        self._schema = self._arrow.schema(list(kinds.items()))
        writer = import_module("pyarrow.parquet").ParquetWriter
        self._writer = writer(file, self._schema, compression="zstd")

    def _kind(self, column: str) -> Any:
        if column in self._texts:
            return self._arrow.string()
        return self._arrow.float64() if column in _FLOATS else self._arrow.int64()

    def add(self, found: Iterable[Row]) -> None:
        self._held.extend(found)
        if len(self._held) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        texts = set(self._texts)
        columns = {
            name: [_text(row[name]) if name in texts else _number(row[name]) for row in self._held]
            for name in self._schema.names
        }
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._held.clear()

    def finish(self) -> None:
        if self._held:
            self._flush()
        self._writer.close()


def require_parquet() -> None:
    """Raise UsageError where Parquet cannot be written."""
    _pyarrow()


def _pyarrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError:
        raise UsageError("--parquet needs pyarrow: pip install 'hf-audit[parquet]'") from None


def _text(cell: Cell) -> str | None:
    """Text as it is, but for lone surrogates, which UTF-8 has none of."""
    return None if cell is None else str(cell).encode("utf-8", "backslashreplace").decode()


def _number(cell: Any) -> int | float | None:
    """A number; None for one that takes more than 64 bits, as a hostile config may ask for."""
    return None if cell is None or not -_INT64 <= cell < _INT64 else cell
