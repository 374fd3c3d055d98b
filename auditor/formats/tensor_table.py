"""Every tensor of an outcome, line by line: for people, and as tensors.csv.

Lines come one at a time, for a large model has a hundred thousand.
"""

from collections.abc import Iterable, Iterator, Sequence

from auditor.formats.as_csv import yes_or_no
from auditor.formats.csv_cells import Cell, csv_text, safe
from auditor.formats.text import counted, cut_middle, plain_line
from auditor.messages import printable
from auditor.reconciler.rows import TensorRow
from auditor.reconciler.tensor_values import TensorValues
from auditor.report import VALUES, Report, Unaudited

TENSORS = ("model", "commit_sha", *TensorRow._fields, "component")
NUMBERS = tuple(one for one in VALUES if one not in TENSORS)  # columns where numbers were read

_WIDEST = 100  # of a name; the longest that models have take 90
_DIMENSIONS = 8  # of a shape that people are shown; five are the most that a model has


# --- for people ---------------------------------------------------------------------------------

_Line = tuple[str, str, str, str, str, str, str]
_HEADING: _Line = ("tensor", "dtype", "shape", "expected", "parameters", "status", "file")
_FIGURES = _HEADING.index("parameters")


def tensor_lines(outcome: Report | Unaudited) -> Iterator[str]:
    """A table for people, of an outcome and then of each of its parts, an empty line before each.

    Nothing without tensors.
    """
    for one in outcome.every:
        if one.tensors is None:
            continue
        yield "\n"
        if one.component is not None:
            yield plain_line(f"in {one.component}")
        widths = [0] * len(_HEADING)
        for line in _table(one.tensors.rows()):
            widths = list(map(max, widths, map(len, line)))
        for line in _table(one.tensors.rows()):
            yield _aligned(line, widths)


def _table(rows: Iterable[TensorRow]) -> Iterator[_Line]:
    yield _HEADING
    stored = absent = parameters = 0
    for row in rows:
        stored, absent = stored + (row.file is not None), absent + (row.file is None)
        parameters += row.parameters or 0
        yield (
            _name(row.name),
            printable(row.dtype or "-"),
            _shape(row.shape),
            "=" if row.shape is not None and row.shape == row.expected_shape else _expected(row),
            "-" if row.file is None or row.parameters is None else f"{row.parameters:,}",
            row.status,
            _place(row),
        )
    total = f"{counted(stored, 'tensor')} stored"
    if absent:
        total += f", {absent:,} not"
    yield (total, "", "", "", f"{parameters:,}", "", "")


def _place(row: TensorRow) -> str:
    """The file, and the name that loading looks for in the model where it is another."""
    file = printable(row.file or "-")
    return f"{file}  as {_name(row.expected_name)}" if row.expected_name else file


def _name(name: str) -> str:
    short = name.isascii() and len(name) <= _WIDEST  # nearly all: to measure cells takes longer
    return printable(name) if short else cut_middle(name, _WIDEST)


def _shape(shape: tuple[int, ...] | None) -> str:
    """`768 x 3072`; `()` of a tensor that is one number."""
    if shape is None:
        return "-"
    more = f" x ... ({len(shape):,} dimensions)" if len(shape) > _DIMENSIONS else ""
    return " x ".join(map(str, shape[:_DIMENSIONS])) + more or "()"


def _expected(row: TensorRow) -> str:
    return _shape(row.expected_shape)


def _aligned(line: _Line, widths: Sequence[int]) -> str:
    cells = (
        cell.rjust(width) if at == _FIGURES else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return plain_line("  ".join(cells))


# --- as CSV -------------------------------------------------------------------------------------


def columns_of(outcomes: Iterable[Report | Unaudited]) -> tuple[str, ...]:
    """The columns of tensors.csv: those of numbers, too, where some outcome's were read."""
    read = any(one.values for outcome in outcomes for one in outcome.every)
    return (*TENSORS, *NUMBERS) if read else TENSORS


def csv_lines(outcome: Report | Unaudited, columns: Sequence[str]) -> Iterator[str]:
    """The lines of an outcome in tensors.csv, below its heading."""
    return (csv_line(map(safe, row)) for row in tensor_cells(outcome, columns))


def tensor_cells(outcome: Report | Unaudited, columns: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    """One row a tensor, of an outcome and of each of its parts."""
    for one in outcome.every:
        read = one.values.tensors if one.values else ()
        numbers = {(each.name, each.file): each for each in read}
        of_model: dict[str, Cell] = {
            "model": one.model,
            "commit_sha": one.commit,
            "component": one.component,
        }
        for row in one.tensors.rows() if one.tensors else ():
            known = of_model | row._asdict()
            known["shape"] = _json_shape(row.shape)
            known["expected_shape"] = _json_shape(row.expected_shape)
            if numbers:
                known |= _numbers(numbers.get((row.name, row.file or "")))
            yield tuple(map(known.get, columns))


def _json_shape(shape: tuple[int, ...] | None) -> Cell:
    """Write a shape as safetensors headers do."""
    return None if shape is None else str(list(shape))


def _numbers(read: TensorValues | None) -> dict[str, Cell]:
    return {} if read is None else {one: yes_or_no(getattr(read, one)) for one in NUMBERS}


def csv_line(row: Iterable[Cell]) -> str:
    """A row as it is: columns, one of which is `nan`, or cells that are safe."""
    return csv_text([row])
