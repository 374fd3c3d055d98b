"""The tensors of one row, listed without the tree: what the learner compares with each sample."""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.analytic.blocks import MAX_TENSORS
from auditor.analytic.generated.expressions import Outside, evaluator, keys_of
from auditor.analytic.generated.form import Row
from auditor.bounded.json_text import is_identical

_Tensor = tuple[tuple[int, ...], tuple[str, str | None]]  # shape; role and tied_to


def of_row(row: Row, values: Mapping[str, Any]) -> Iterator[tuple[str, _Tensor]]:
    """Yield (name, tensor); raise Outside for values that the row's expressions do not cover."""
    if not evaluator(row.present)(values, ()):
        return
    indices: list[tuple[int, ...]] = [()]
    for bound, test in row.levels:
        count, is_there = evaluator(bound), evaluator(test)
        longer = list[tuple[int, ...]]()
        for index in indices:
            turns = count(values, index)
            if type(turns) is not int or turns + len(longer) > MAX_TENSORS:
                raise Outside(next(keys_of(bound), "config"))
            longer += [(*index, i) for i in range(turns) if is_there(values, (*index, i))]
        indices = longer
    shape = [evaluator(size) for size in row.shape]
    roles = [(tag, evaluator(test)) for tag, test in row.roles]
    for key, seen in row.seen.items() if indices else ():
        if not any(is_identical(one, values[key]) for one in seen):
            raise Outside(key)
    for index in indices:
        sizes = tuple(size(values, index) for size in shape)
        if any(type(size) is not int or size < 0 for size in sizes):
            raise Outside(next(keys_of(["+", *row.shape]), "config"))
        role, tied_to = next(tag for tag, test in roles if test(values, index))
        yield filled(row.template, index), (sizes, (role, tied_to and filled(tied_to, index)))


def filled(template: str, index: tuple[int, ...]) -> str:
    """Return a template with numbers in place of each `*`."""
    parts = iter(index)
    return ".".join(str(next(parts)) if part == "*" else part for part in template.split("."))
