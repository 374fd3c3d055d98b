"""A few lines for the modules of a model, whatever its size: those that are alike in one."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from auditor.folded_names import first, how_many
from auditor.reconciler.fold import fold, refold
from auditor.reconciler.module_rows import ExpectedRows, ModuleRow
from auditor.tensors import natural_key


class Line(NamedTuple):
    """One or more modules of equal figures whose prefixes fold into one."""

    pattern: str
    modules: int
    row: ModuleRow  # of each one of them


def lines(rows: Iterable[ModuleRow], depth: int) -> list[Line]:
    """The rows down to `depth`; numbered siblings fold where all their figures are equal."""
    folded = rows.folded if isinstance(rows, ExpectedRows) else None
    alike: dict[ModuleRow, list[str]] = {}
    for row in rows if folded is None else folded:
        if row.depth <= depth:
            alike.setdefault(row._replace(prefix=""), []).append(row.prefix)
    fold_all = partial(fold, words=False) if folded is None else refold
    found = [
        Line(pattern, how_many(pattern), row)
        for row, prefixes in alike.items()
        for pattern in fold_all(prefixes)
    ]
    return sorted(found, key=lambda line: natural_key(first(line.pattern)))
