"""The tensors of a model on its page: each on a row, or folded where there are too many to read.

It is readable without JavaScript; `tensor_list.js` shows a field that filters it.
"""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from auditor.formats.markup import Child, code, element, scrolled, table
from auditor.formats.text import counted
from auditor.names import expand
from auditor.reconciler.fold import fold
from auditor.reconciler.rows import TensorRow
from auditor.report import Report, Unaudited

MOST_ROWS = 2_000  # of the list; tensors.csv has all tensors. A row takes 200 bytes of a page
MOST_FOLDED = 100_000  # tensors: random names, which nothing folds, take 3 s

_Shape = tuple[int, ...] | None
_Row = tuple[str, int, TensorRow]  # a name or a pattern, how many it stands for, and one of them


def tensor_list(one: Report | Unaudited) -> Element | None:
    """A folded section; None where nothing was compared, or a night did not keep it."""
    found = tuple(one.tensors.rows()) if one.tensors else ()
    if not found:
        return None
    known = found[:MOST_FOLDED]
    rows = [(row.name, 1, row) for row in found] if len(found) <= MOST_ROWS else _folded(known)
    shown = rows[:MOST_ROWS]
    files = {row.file for row in found if row.file}
    left = len(found) - len(known) + sum(count for _, count, _ in rows[MOST_ROWS:])
    return element(
        "details",
        {"class": "tensors"},
        element("summary", {}, f"Tensors ({len(found):,})"),
        element("p", {"hidden": "hidden"}, *_filter(len(shown))),
        scrolled(f"Tensors of {_whose(one)}", _table(shown, several=len(files) > 1)),
        element("p", {"class": "sub"}, f"and {counted(left, 'tensor')} more, in tensors.csv")
        if left
        else None,
    )


def _whose(one: Report | Unaudited) -> str:
    name = one.model or one.requested
    return name if one.component is None else f"{name}, {one.component}"


def _filter(rows: int) -> Iterator[Child]:
    """Return the element that the script shows and fills; it is hidden without the script."""
    field = element("input", {"type": "search", "autocomplete": "off", "spellcheck": "false"})
    yield element("label", {}, "Filter by name, dtype, shape or status ", field)
    yield " "
    yield element("output", {"aria-live": "polite"}, counted(rows, "row"))


def _folded(found: Sequence[TensorRow]) -> list[_Row]:
    """Tensors that are alike but for the numbers in their names, in the order of the first."""
    alike: dict[tuple[str | None, _Shape, _Shape, str], dict[str, TensorRow]] = {}
    for row in found:
        kind = (row.dtype, row.shape, row.expected_shape, row.status)
        alike.setdefault(kind, {}).setdefault(row.name, row)
    places = {row.name: at for at, row in reversed([*enumerate(found)])}
    rows = [
        (pattern, len(names), each[names[0]])
        for each in alike.values()
        for pattern in fold(each, words=False)
        for names in (expand(pattern),)
    ]
    return sorted(rows, key=lambda row: places[row[2].name])


def _table(rows: Sequence[_Row], *, several: bool) -> Element:
    """Columns that would say nothing are left out: copies, expected shapes, files."""
    folded = any(count > 1 for _, count, _ in rows)
    differ = any(row.shape != row.expected_shape and row.expected_shape for _, _, row in rows)
    columns = {"tensor": False, "tensors": True, "dtype": False, "shape": False}
    columns |= {"expected shape": False, "parameters of one": True, "status": False, "file": False}
    left_out = {"tensors": not folded, "expected shape": not differ, "file": folded or not several}
    kept = [name for name in columns if not left_out.get(name)]
    cells = (_cells(*row) for row in rows)
    body = ([each[name] for name in kept] for each in cells)
    return table({name: columns[name] for name in kept}, body)


def _cells(name: str, count: int, row: TensorRow) -> dict[str, Child]:
    return {
        "tensor": code(name),
        "tensors": f"{count:,}",
        "dtype": row.dtype or "",
        "shape": _shape(row.shape),
        "expected shape": "=" if row.shape == row.expected_shape else _shape(row.expected_shape),
        "parameters of one": "" if row.parameters is None else f"{row.parameters:,}",
        "status": row.status,
        "file": row.file or "",
    }


def _shape(shape: _Shape) -> str:
    return "" if shape is None else str([*shape])
