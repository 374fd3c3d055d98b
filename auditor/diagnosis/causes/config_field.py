"""config-field: one number of the config (two at most) closes every shape and name.

The keys are those of the closed form's formulas. What a key would have to be follows from the
shapes that do not fit, and from the numbers in the names.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import value_at, with_values
from auditor.report import Symbol

CAUSE = "config-field"
_NUMBER = re.compile(r"(?<=\.)(\d{1,6})(?=\.)")
_LABELS = "num_labels"


def undoings(case: Case) -> Iterator[Undoing]:
    """Each key with each value that the evidence suggests, the most direct ones first."""
    legend = case.report.expected.legend if case.report.expected else ()
    differ = [*sorted(_counts(case)), *sorted(_sizes(case))]
    tried = set()
    for suggest in (_as_it_is, _by_ratio, _by_difference):
        for symbol, (due, found) in product(legend, differ):
            value = suggest(symbol.value, due, found)
            if value > 0 and value != symbol.value and (symbol.key, value) not in tried:
                tried.add((symbol.key, value))
                yield _undoing(case, symbol, value)


def _as_it_is(value: int, due: int, found: int) -> int:
    return found if due == value else 0


def _by_ratio(value: int, due: int, found: int) -> int:
    return value * found // due if due and value * found % due == 0 else 0


def _by_difference(value: int, due: int, found: int) -> int:
    return value + found - due


def _sizes(case: Case) -> set[tuple[int, int]]:
    """(expected, stored) lengths of the axes that differ."""
    found = set()
    for pair in case.mismatched:
        stored, due = pair.stored.shape, pair.expected.shape
        if stored is not None and len(stored) == len(due):
            found |= {(one, other) for one, other in zip(due, stored, strict=True) if one != other}
    return found


def _counts(case: Case) -> set[tuple[int, int]]:
    """(expected, stored) numbers of modules in lists of which names are missing or too many."""
    stored = _highest(tensor.name for tensor in case.stored)
    missing, unexpected = _highest(case.missing), _highest(case.unexpected)
    found = set()
    for place in missing.keys() | unexpected.keys():
        have = stored.get(place, 0)
        if place in missing:
            found.add((max(missing[place], have), _lowest(case.missing, place)))
        if place in unexpected:
            found.add((_lowest(case.unexpected, place), have))
    return {(due, have) for due, have in found if due != have}


def _highest(names: Any) -> dict[str, int]:
    """How many modules the lists have of which these names are, by what stands before a number."""
    found: dict[str, int] = {}
    for name in names:
        for number in _NUMBER.finditer(name):
            place = _NUMBER.sub("*", name[: number.start()])
            found[place] = max(found.get(place, 0), int(number[0]) + 1)
    return found


def _lowest(names: tuple[str, ...], wanted: str) -> int:
    numbers = (
        int(number[0])
        for name in names
        for number in _NUMBER.finditer(name)
        if _NUMBER.sub("*", name[: number.start()]) == wanted
    )
    return min(numbers, default=0)


def _undoing(case: Case, symbol: Symbol, value: int) -> Undoing:
    key, declared = symbol.key, symbol.value
    values: dict[str, Any] = {key: value}
    if key.rpartition(".")[2] == _LABELS and value_at(case.config, "id2label"):
        values = {"id2label": {str(at): f"LABEL_{at}" for at in range(value)}, "label2id": None}
    omitted = " (the class's default)" if symbol.default else ""
    return Undoing(
        cause=CAUSE,
        snapshot=with_values(case.snapshot, values),
        fields=((key, declared, value),),
        summary=f"{key} is {declared:,}{omitted}, the files hold {value:,}",
        fix=f"set {key} to {value} in config.json, or upload weights of a model with {declared}",
        evidence=(f"with {key} = {value}, what it concerns is expected as it is stored",),
    )
