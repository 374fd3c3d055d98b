"""List every tensor of an outcome: as text, as tensors.csv, and in HTML.

Text and CSV are yielded line by line, because a large model has a hundred thousand tensors.
"""

from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element

from auditor.formats.escapes import Cell, csv_text, safe
from auditor.formats.markup import Child, element, html_table, scrolled
from auditor.formats.tables import Name, SimpleTable
from auditor.formats.text import counted, cut_middle, plain_line
from auditor.messages import printable
from auditor.names.folding import expand, fold
from auditor.reconciler.tensor_rows import TensorRow
from auditor.reconciler.tensor_values import TensorValues
from auditor.report import VALUES, Report, Unaudited

TENSORS = ("model", "commit_sha", *TensorRow._fields, "component")
# Additional columns if numbers were read.
NUMBERS = tuple(name for name in VALUES if name not in TENSORS)

_Shape = tuple[int, ...] | None


# --- for people ---------------------------------------------------------------------------------

_WIDEST = 100  # most cells of a name; the longest names of real models take 90
_MOST_DIMENSIONS = 8  # most axes shown of a shape; real models have at most five

_Line = tuple[str, str, str, str, str, str, str]
_HEADING: _Line = ("tensor", "dtype", "shape", "expected", "parameters", "status", "file")
_FIGURES = _HEADING.index("parameters")


def tensor_lines(outcome: Report | Unaudited) -> Iterator[str]:
    """Yield the lines of a table for the outcome and each component, with blank lines between."""
    for part in outcome.every:
        if part.tensors is None:
            continue
        yield "\n"
        if part.component is not None:
            yield plain_line(f"in {part.component}")
        widths = [0] * len(_HEADING)
        for line in _lines(part.tensors.rows()):
            widths = list(map(max, widths, map(len, line)))
        for line in _lines(part.tensors.rows()):
            yield _aligned(line, widths)


def _lines(rows: Iterable[TensorRow]) -> Iterator[_Line]:
    yield _HEADING
    stored = absent = parameters = 0
    for row in rows:
        stored, absent = stored + (row.file is not None), absent + (row.file is None)
        parameters += row.parameters or 0
        is_equal = row.shape is not None and row.shape == row.expected_shape
        file = printable(row.file or "-")
        yield (
            _name(row.name),
            printable(row.dtype or "-"),
            _shape(row.shape),
            "=" if is_equal else _shape(row.expected_shape),
            "-" if row.file is None or row.parameters is None else f"{row.parameters:,}",
            row.status,
            f"{file}  as {_name(row.expected_name)}" if row.expected_name else file,
        )
    total = f"{counted(stored, 'tensor')} stored" + (f", {absent:,} not" if absent else "")
    yield (total, "", "", "", f"{parameters:,}", "", "")


def _name(name: str) -> str:
    # True for nearly all names, and faster than measuring a width.
    is_short = name.isascii() and len(name) <= _WIDEST
    return printable(name) if is_short else cut_middle(name, _WIDEST)


def _shape(shape: _Shape) -> str:
    """Return `768 x 3072`, `()` for a single number, or `-` for an unknown shape."""
    if shape is None:
        return "-"
    is_cut = len(shape) > _MOST_DIMENSIONS
    more = f" x ... ({len(shape):,} dimensions)" if is_cut else ""
    return " x ".join(map(str, shape[:_MOST_DIMENSIONS])) + more or "()"


def _aligned(line: _Line, widths: Sequence[int]) -> str:
    cells = (
        cell.rjust(width) if at == _FIGURES else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return plain_line("  ".join(cells))


# --- as CSV -------------------------------------------------------------------------------------


def columns_of(outcomes: Iterable[Report | Unaudited]) -> tuple[str, ...]:
    """Return the columns of tensors.csv, with columns about numbers if numbers were read."""
    has_numbers = any(part.values for outcome in outcomes for part in outcome.every)
    return (*TENSORS, *NUMBERS) if has_numbers else TENSORS


def csv_lines(outcome: Report | Unaudited, columns: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an outcome in tensors.csv, without the heading."""
    return (csv_line(map(safe, row)) for row in tensor_cells(outcome, columns))


def tensor_cells(outcome: Report | Unaudited, columns: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each tensor of an outcome and its components."""
    for part in outcome.every:
        values = part.values.tensors if part.values else ()
        values_by_place = {(tensor.name, tensor.file): tensor for tensor in values}
        model: dict[str, Cell] = {
            "model": part.model,
            "commit_sha": part.commit,
            "component": part.component,
        }
        for row in part.tensors.rows() if part.tensors else ():
            cells = model | row._asdict()
            cells["shape"] = _json_shape(row.shape)
            cells["expected_shape"] = _json_shape(row.expected_shape)
            if tensor := values_by_place.get((row.name, row.file or "")):
                cells |= _numbers(tensor)
            yield tuple(map(cells.get, columns))


def _json_shape(shape: _Shape) -> str | None:
    """Return the text of a shape as safetensors headers have it; None for an unknown shape."""
    return None if shape is None else str([*shape])


def _numbers(tensor: TensorValues) -> dict[str, Cell]:
    values = {name: getattr(tensor, name) for name in NUMBERS}
    return {
        name: ("no", "yes")[value] if type(value) is bool else value
        for name, value in values.items()
    }


def csv_line(row: Iterable[Cell]) -> str:
    """Return a row as a line of CSV; its cells must be guarded already, or be headings.

    One heading is `nan`, which guarding would change.
    """
    return csv_text([row])


# --- in HTML ------------------------------------------------------------------------------------

MOST_ROWS = 2_000  # most rows of the list; tensors.csv has all. A row takes 200 bytes of a page
MOST_FOLDED = 100_000  # most tensors to fold: random names, which do not fold, take 3 s

_Row = tuple[str, int, TensorRow]  # a name or a pattern, its number of names, and one of them


def tensor_list(part: Report | Unaudited) -> Element | None:
    """Return a collapsed section with the tensors; None if the outcome has no list of tensors.

    `tensor_list.js` adds a field that filters the list, which is readable without JavaScript.
    """
    tensors = tuple(part.tensors.rows()) if part.tensors else ()
    if not tensors:
        return None
    listed = tensors[:MOST_FOLDED]
    is_short = len(tensors) <= MOST_ROWS
    rows = [(row.name, 1, row) for row in tensors] if is_short else _folded(listed)
    shown = rows[:MOST_ROWS]
    left = len(tensors) - len(listed) + sum(count for _, count, _ in rows[MOST_ROWS:])
    table = _table(shown, several=len({row.file for row in tensors if row.file}) > 1)
    name = part.model or part.requested
    owner = name if part.component is None else f"{name}, {part.component}"
    more = f"and {counted(left, 'tensor')} more, in tensors.csv"
    return element(
        "details",
        {"class": "tensors"},
        element("summary", {}, f"Tensors ({len(tensors):,})"),
        element("p", {"hidden": "hidden"}, *_filter(len(shown))),
        scrolled(f"Tensors of {owner}", html_table(table)),
        element("p", {"class": "sub"}, more) if left else None,
    )


def _filter(rows: int) -> Iterator[Child]:
    """Yield a filter field and the number of rows; the script shows them and updates the number."""
    field = element("input", {"type": "search", "autocomplete": "off", "spellcheck": "false"})
    yield element("label", {}, "Filter by name, dtype, shape or status ", field)
    yield " "
    yield element("output", {"aria-live": "polite"}, counted(rows, "row"))


def _folded(tensors: Sequence[TensorRow]) -> list[_Row]:
    """Fold tensors that differ only in the numbers in their names, in order of first appearance."""
    rows_by_kind: dict[tuple[str | None, _Shape, _Shape, str], dict[str, TensorRow]] = {}
    for row in tensors:
        kind = (row.dtype, row.shape, row.expected_shape, row.status)
        rows_by_kind.setdefault(kind, {}).setdefault(row.name, row)
    places = {row.name: at for at, row in reversed([*enumerate(tensors)])}
    folded = [
        (pattern, len(names), row_by_name[names[0]])
        for row_by_name in rows_by_kind.values()
        for pattern in fold(row_by_name, words=False)
        for names in (expand(pattern),)
    ]
    return sorted(folded, key=lambda row: places[row[2].name])


def _table(rows: Sequence[_Row], *, several: bool) -> SimpleTable:
    """Return the table of tensors; leave out counts, expected shapes or files that add nothing."""
    is_folded = any(count > 1 for _, count, _ in rows)
    differs = any(row.shape != row.expected_shape and row.expected_shape for _, _, row in rows)
    left_out = {
        "tensors": not is_folded,
        "expected shape": not differs,
        "file": is_folded or not several,
    }
    cells = [
        {
            "tensor": Name(name),
            "tensors": count,
            "dtype": row.dtype,
            "shape": _json_shape(row.shape),
            "expected shape": "="
            if row.shape == row.expected_shape
            else _json_shape(row.expected_shape),
            "parameters of one": row.parameters,
            "status": row.status,
            "file": row.file,
        }
        for name, count, row in rows
    ]
    columns = tuple(name for name in cells[0] if not left_out.get(name))
    return SimpleTable("tensors", columns, tuple(tuple(map(row.get, columns)) for row in cells))
