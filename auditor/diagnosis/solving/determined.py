"""A whole config from what is stored: every key that a formula shows, by its length or number."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from auditor.analytic.dims import dim
from auditor.diagnosis.changes import value_at
from auditor.diagnosis.solving.candidates import KeyChange, of_key
from auditor.diagnosis.solving.formulas import solutions
from auditor.diagnosis.solving.keys import config_with
from auditor.diagnosis.solving.trials import ClassTree, TreeComparison, Trials

_ROUNDS = 5  # widths first, what is in proportion to them after


def determined(
    config: Mapping[str, Any],
    trees: Callable[[Mapping[str, Any]], ClassTree | None],
    trials: Trials,
) -> tuple[dict[str, Any], int]:
    """The values that had to be set, by dotted path, and how many tensors differ all the same."""
    values: dict[str, Any] = {}
    least = -1
    for _ in range(_ROUNDS):
        expected = trees(values)
        if expected is None:
            break
        found = trials.compare(expected)
        least = found.differ
        if not found.differ or not found.equations:
            break
        changes = _changes(config, values, found)
        if not changes:
            break
        values.update(changes)
    return values, least


def _changes(
    config: Mapping[str, Any], values: Mapping[str, Any], found: TreeComparison
) -> dict[str, Any]:
    """The keys that a length shows by themselves; else one that a formula can be solved for."""
    votes: dict[str, dict[str, tuple[int, KeyChange]]] = {}
    derived: dict[str, dict[str, tuple[int, KeyChange]]] = {}
    for equation, number in found.equations.items():
        for symbol in sorted(equation.size.symbols):
            into = votes if equation.size == dim(symbol) else derived
            for value in islice(solutions(equation.size, symbol, equation.wanted), 1):
                for one in of_key(config, symbol, value):
                    if isinstance(value_at(values, one.key.path), list):
                        continue
                    said = into.setdefault(one.key.path, {})
                    before = said.get(str(one.value), (0, one))[0]
                    said[str(one.value)] = (before + number, one)
    changes: dict[str, Any] = {}
    several = votes or dict(
        sorted(derived.items(), key=lambda item: -max(n for n, _ in item[1].values()))[:1]
    )
    for said in several.values():
        _, one = max(said.values(), key=lambda pair: pair[0])
        if values.get(one.key.path) != one.value:
            changes.update(config_with(config, one.key.path, one.value))
    return changes
