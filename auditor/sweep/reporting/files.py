"""The tables of a night, as CSV and as Parquet, written model by model."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import IO

from auditor.errors import UsageError
from auditor.formats.as_csv import COLUMNS, Columns, Row, rows_of, with_components
from auditor.formats.escapes import Cell, csv_row, csv_text, safe
from auditor.sweep.reporting.changes import COLUMNS as CHANGES
from auditor.sweep.reporting.changes import Change
from auditor.sweep.reporting.model_entry import ModelEntry

TABLES: Mapping[str, Columns] = {**COLUMNS, "changes": CHANGES, "open": CHANGES}

_GROUP = 20_000  # rows in memory before Parquet is written: 16 MB of modules


Rows = Mapping[str, list[Row]]  # by table name


def rows_by_table(entry: ModelEntry, depth: int | None) -> Rows:
    """Return the rows that one model adds to each table; modules are limited to `depth`."""
    rows: Rows = {name: [] for name in TABLES}
    for outcome in with_components(entry.outcome) if entry.outcome else ():
        for name, table_rows in rows_of(outcome, depth):
            rows[name].extend(table_rows)
    for row in entry.changes():
        is_known = row["change"] == Change.STILL_OPEN.value or row["severity"] == "info"
        rows["open" if is_known else "changes"].append(row)
    return rows


class Csv:
    """A table as CSV, in the form of formats.as_csv."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name, self._columns = file, name, tuple(TABLES[name])
        self._write([self._columns])

    def add(self, rows: Rows) -> None:
        self._write(csv_row(row, self._columns) for row in rows[self._name])

    def _write(self, rows: Iterable[Iterable[Cell]]) -> None:
        self._file.write(csv_text(rows).encode())

    def close(self) -> None:
        """Do nothing: all rows are already written."""


class Parquet:
    """A table as Parquet, with typed numbers and unescaped text."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        try:
            self._arrow = import_module("pyarrow")
        except ImportError:
            raise UsageError("--parquet needs pyarrow: pip install 'hf-audit[parquet]'") from None
        kinds = {str: self._arrow.string(), int: self._arrow.int64(), float: self._arrow.float64()}
        self._name, self._columns, self._pending_rows = name, TABLES[name], list[Row]()
        fields = [(column, kinds[kind]) for column, kind in self._columns.items()]
        self._schema = self._arrow.schema(fields)
        writer = import_module("pyarrow.parquet").ParquetWriter
        self._writer = writer(file, self._schema, compression="zstd")

    def add(self, rows: Rows) -> None:
        self._pending_rows.extend(rows[self._name])
        if len(self._pending_rows) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        columns = {
            name: [
                _text(row[name]) if kind is str else safe(row[name]) for row in self._pending_rows
            ]
            for name, kind in self._columns.items()
        }
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._pending_rows.clear()

    def close(self) -> None:
        if self._pending_rows:
            self._flush()
        self._writer.close()


Table = Csv | Parquet


def _text(cell: Cell) -> str | None:
    """Return the text of a cell; lone surrogates, which UTF-8 cannot encode, are escaped."""
    return None if cell is None else str(cell).encode("utf-8", "backslashreplace").decode()
