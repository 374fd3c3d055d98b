"""The files of a night, written while models pass: CSV tables, and the same as Parquet."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import IO

from auditor.errors import UsageError
from auditor.formats.csv_cells import Cell, csv_row, csv_text, safe
from auditor.formats.csv_rows import COLUMNS, Columns, Row, rows_of, with_components
from auditor.sweep.reporting.changes import COLUMNS as CHANGES
from auditor.sweep.reporting.changes import Change
from auditor.sweep.reporting.model_entry import ModelEntry

TABLES: Mapping[str, Columns] = {**COLUMNS, "changes": CHANGES, "open": CHANGES}

_GROUP = 20_000  # rows of Parquet that are held at once: 16 MB of modules


Rows = Mapping[str, list[Row]]  # by the name of their table


def rows_by_table(entry: ModelEntry, depth: int | None) -> Rows:
    """The rows that one model adds to each table; those of modules down to `depth`."""
    rows: Rows = {name: [] for name in TABLES}
    for outcome in with_components(entry.outcome) if entry.outcome else ():
        for name, found in rows_of(outcome, depth):
            rows[name].extend(found)
    for row in entry.changes():
        nothing_new = row["change"] == Change.STILL_OPEN.value or row["severity"] == "info"
        rows["open" if nothing_new else "changes"].append(row)
    return rows


class Csv:
    """One table of CSV, as formats.as_csv writes them."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name, self._columns = file, name, tuple(TABLES[name])
        self._write([self._columns])

    def add(self, rows: Rows) -> None:
        self._write(csv_row(row, self._columns) for row in rows[self._name])

    def _write(self, rows: Iterable[Iterable[Cell]]) -> None:
        self._file.write(csv_text(rows).encode())

    def close(self) -> None:
        """All is written already."""


class Parquet:
    """One table of Parquet: numbers as numbers, text as it is."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        try:
            self._arrow = import_module("pyarrow")
        except ImportError:
            raise UsageError("--parquet needs pyarrow: pip install 'hf-audit[parquet]'") from None
        kinds = {str: self._arrow.string(), int: self._arrow.int64(), float: self._arrow.float64()}
        self._name, self._columns, self._held = name, TABLES[name], list[Row]()
        self._schema = self._arrow.schema([(one, kinds[of]) for one, of in self._columns.items()])
        writer = import_module("pyarrow.parquet").ParquetWriter
        self._writer = writer(file, self._schema, compression="zstd")

    def add(self, rows: Rows) -> None:
        self._held.extend(rows[self._name])
        if len(self._held) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        columns = {
            name: [_text(row[name]) if kind is str else safe(row[name]) for row in self._held]
            for name, kind in self._columns.items()
        }
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._held.clear()

    def close(self) -> None:
        if self._held:
            self._flush()
        self._writer.close()


Table = Csv | Parquet


def _text(cell: Cell) -> str | None:
    """Text as it is, but for lone surrogates, which UTF-8 has none of."""
    return None if cell is None else str(cell).encode("utf-8", "backslashreplace").decode()
