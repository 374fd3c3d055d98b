"""Tables of counts as text, Markdown, CSV, JSON or LaTeX."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from auditor.claims.hand_counts import CountTable
from auditor.formats.text import printable

_CellText = str | int | None


def _shown(cell: _CellText) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if type(cell) is int else printable(str(cell))


def _figures(table: CountTable) -> tuple[bool, ...]:
    """Which columns hold figures, and are aligned to the right."""
    return tuple(
        any(type(row[at]) is int for row in table.rows) for at in range(len(table.columns))
    )


def as_text(tables: Sequence[CountTable]) -> str:
    return "\n".join(map(_text_of, tables))


def _text_of(table: CountTable) -> str:
    rows = [table.columns, *([_shown(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.columns))]
    right = _figures(table)
    lines = (
        "  ".join(
            cell.rjust(width) if figure else cell.ljust(width)
            for cell, width, figure in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def as_markdown(tables: Sequence[CountTable]) -> str:
    return "\n".join(map(_markdown_of, tables))


def _markdown_of(table: CountTable) -> str:
    rules = ("---:" if figure else "---" for figure in _figures(table))
    rows = (table.columns, tuple(rules), *(tuple(map(_shown, row)) for row in table.rows))
    return "".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |\n" for row in rows
    )


def as_csv_text(tables: Sequence[CountTable]) -> str:
    """One table after another, an empty line between them; cells a spreadsheet runs are quoted."""
    texts = []
    for table in tables:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows([_plain(cell) for cell in row] for row in table.rows)
        texts.append(out.getvalue())
    return "\n".join(texts)


def _plain(cell: _CellText) -> _CellText:
    if isinstance(cell, str):
        text = printable(cell)
        return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t"} else text
    return cell


def as_objects(tables: Sequence[CountTable]) -> dict[str, Any]:
    """Title -> rows, each an object by column."""
    return {
        table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        for table in tables
    }


def as_json_text(tables: Sequence[CountTable]) -> str:
    return json.dumps(as_objects(tables), ensure_ascii=False) + "\n"


def as_latex(tables: Sequence[CountTable]) -> str:
    from auditor.formats.explanation import escaped_latex  # noqa: PLC0415 - rich, for this alone

    parts = []
    for table in tables:
        columns = "".join("r" if figure else "l" for figure in _figures(table))
        rows = (table.columns, *(tuple(map(_shown, row)) for row in table.rows))
        body = "".join(f"{' & '.join(map(escaped_latex, row))} \\\\\n" for row in rows)
        parts.append(f"\\begin{{tabular}}{{{columns}}}\n{body}\\end{{tabular}}\n")
    return "\n".join(parts)


TABLE_FORMATS: Mapping[str, Callable[[Sequence[CountTable]], str]] = MappingProxyType(
    {
        "terminal": as_text,
        "markdown": as_markdown,
        "csv": as_csv_text,
        "json": as_json_text,
        "latex": as_latex,
    }
)
