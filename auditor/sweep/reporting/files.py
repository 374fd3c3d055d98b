"""The files of a night that are written model by model: CSV, Parquet, JSON arrays, SARIF."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from importlib import import_module
from typing import IO, Any
from uuid import NAMESPACE_URL, uuid5

from auditor.errors import UsageError
from auditor.extras import install
from auditor.formats.as_csv import COLUMNS, Columns, Row, rows_of
from auditor.formats.as_sarif import log_of, result_of
from auditor.formats.escapes import Cell, csv_row, csv_text, safe
from auditor.formats.json_values import json_text
from auditor.messages import printable
from auditor.sweep.reporting.changes import COLUMNS as CHANGES
from auditor.sweep.reporting.changes import NO_OUTCOME, ChangeKind
from auditor.sweep.reporting.model_entry import ModelEntry
from auditor.sweep.store.reading import Night

TABLES: Mapping[str, Columns] = {
    **COLUMNS,
    "models": {**COLUMNS["models"], "last_modified": str, "commit_authors": str},
    "changes": CHANGES,
    "open": CHANGES,
}

_GROUP = 20_000  # rows in memory before Parquet is written: 16 MB of modules


Rows = Mapping[str, list[Row]]  # rows by table name


def rows_by_table(entry: ModelEntry, depth: int | None, night: Night) -> Rows:
    """Return the rows that one model adds to each table; modules are limited to `depth`."""
    made = {"auditor": night.auditor, "audited_on": night.day.isoformat()}
    rows: Rows = {name: [] for name in TABLES}
    for outcome in entry.outcome.every if entry.outcome is not NO_OUTCOME else ():
        for name, table_rows in rows_of(outcome, depth):
            rows[name].extend(table_rows)
    rows["models"][:] = [{**row, **entry.push, **made} for row in rows["models"]]
    for row in entry.changes():
        is_known = row["change"] == ChangeKind.STILL_OPEN.value or row["severity"] == "info"
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
            raise UsageError(f"--parquet needs pyarrow: {install('parquet')}") from None
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


class JsonArray:
    """A JSON array in ASCII, written to a file that the caller closes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.length = 0
        self._places: dict[bytes, int] = {}

    def add(self, item: Any) -> int:
        """Add an item and return its index."""
        self.file.write(b",\n" if self.length else b"[\n")
        self.file.write(ascii_json(item).encode("ascii"))
        self.length += 1
        return self.length - 1

    def place(self, key: Any, make: Callable[[], Any] | None = None) -> int:
        """Return the index of the item with this key; add the item if the key is new.

        A new item is the value that `make` returns, or the key itself if `make` is None. Keys
        are compared by digests of 16 bytes.
        """
        digest = sha256(ascii_json(key).encode()).digest()[:16]
        if digest not in self._places:
            self._places[digest] = self.add(make() if make else key)
        return self._places[digest]

    def close(self) -> None:
        """Write the end of the array."""
        self.file.write(b"\n]" if self.length else b"[]")


def ascii_json(value: Any) -> str:
    """Return JSON for an HTML script element: ASCII, without `<`, which could end the element."""
    return json_text(value).replace("<", "\\u003c")


# --- SARIF 2.1.0, for pages of code-scanning results ----------------------------------------------

_STATES = {
    ChangeKind.NEW: "new",
    ChangeKind.CHANGED: "updated",
    ChangeKind.STILL_OPEN: "unchanged",
}


class Sarif:
    """The log of one run, written result by result; accepted findings are suppressed results."""

    def __init__(self, file: IO[bytes], night: Night, previous: Night | None) -> None:
        self._file, self._compared = file, previous is not None
        log = json_text(_log(night, previous))
        opening, self._end = log.split('"@"')  # the text before and after the results
        file.write(opening.encode())
        self._results = JsonArray(file)

    def add(self, entry: ModelEntry) -> None:
        seen: Counter[tuple[str, ...]] = Counter()
        for match in entry.matches:
            if match.alarming:
                result = result_of(
                    entry.model,
                    match.finding,
                    entry.causes_of(match.finding),
                    seen=seen,
                    suppressed=match.accepted,
                    state=_STATES[match.change] if self._compared else None,
                )
                self._results.add(result)

    def close(self) -> None:
        self._results.close()
        self._file.write(f"{self._end}\n".encode())


def _log(night: Night, previous: Night | None) -> Mapping[str, Any]:
    """Return the SARIF log with "@" where its results will be written."""
    name = f"audit sweep/{printable(night.night)}"
    run = {
        "automationDetails": {"id": name, "guid": _guid(night)},
        **({"baselineGuid": _guid(previous)} if previous else {}),
        "results": "@",
    }
    return log_of(run, night.auditor, properties={"catalogue": night.catalogue})


def _guid(night: Night) -> str:
    """Return an id of a night, made from its name and its start time."""
    return str(uuid5(NAMESPACE_URL, f"hf-audit:{night.night}:{night.started}"))
