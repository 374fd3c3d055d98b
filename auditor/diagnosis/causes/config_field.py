"""config-field: one number of the config (two at most) closes every shape and name.

The keys are those of the closed form's formulas. What a key would have to be follows from the
shapes that do not fit, and from the numbers in the names.

To do: Set the key to what the files hold, or upload the weights of the model that the config
describes: one of the two is of another model.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from math import isqrt
from operator import itemgetter
from typing import Any

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import value_at, with_values
from auditor.report import Symbol

CAUSE = "config-field"
_NUMBER = re.compile(r"(?<=\.)(\d{1,6})(?=\.)")
_LABELS = "num_labels"

# Tensors of all configs that are tried without auditing again: 200 take 1 ms, 92,000 half a second.
MOST_IMPLIED = 100_000
_MOST_JUDGED = 100  # configs of which it is only worked out what they imply
_MOST_ASKED = 4  # configs of which the oracle is asked, which takes 50 ms and more of each
_MOST_AUDITED = 4  # of those that promise most
_MOST_STEPS = 8  # by which a key is off that is one of several terms of a size


def undoings(case: Case) -> Iterator[Undoing]:
    """The keys and values with which most of what differs would be expected as it is stored."""
    keys = _keys(case)
    differ = [*sorted(_counts(case)), *sorted(_sizes(case))]
    closed_form = case.report.expected is not None and case.report.expected.by == "closed-form"
    most = min(_MOST_JUDGED, MOST_IMPLIED // case.size) if closed_form else _MOST_ASKED
    every = len(case.missing) + len(case.unexpected) + len(case.mismatched)
    judged: dict[tuple[str, int], tuple[int, Undoing]] = {}
    for symbol, value in _suggested(keys, differ):
        key = (symbol.key, value)
        if not 0 < value != symbol.value or key in judged or len(judged) >= most:
            continue
        undoing = _undoing(case, symbol, value)
        judged[key] = closed, _ = (_closed(case, undoing), undoing)
        if closed == every:  # and no other can do more
            yield undoing
    promising = [pair for pair in judged.values() if 0 < pair[0] < every]
    for _, undoing in sorted(promising, key=itemgetter(0), reverse=True)[:_MOST_AUDITED]:
        yield undoing


def _keys(case: Case) -> tuple[Symbol, ...]:
    """The keys that shape a tensor by the formulas, then any other that has a number."""
    legend = case.report.expected.legend if case.report.expected else ()
    known = {(symbol.key, symbol.value) for symbol in legend}
    others = (one for one in _numbers(case.config, "") if one not in known)
    return *legend, *(Symbol("", key, value, default=False) for key, value in others)


def _numbers(values: Mapping[str, Any], within: str) -> Iterator[tuple[str, int]]:
    for key, value in values.items():
        if type(value) is int and value > 0 and not key.endswith("_token_id"):
            yield f"{within}{key}", value
        elif isinstance(value, Mapping) and key.endswith("_config"):
            yield from _numbers(value, f"{within}{key}.")


def _closed(case: Case, undoing: Undoing) -> int:
    """How many names would no longer differ, by what the config implies; 0 if others would."""
    shapes = case.implied(undoing.snapshot)
    if shapes is None:
        return 0
    good = sum(shapes.get(one.expected.name) == one.stored.shape for one in case.mismatched)
    good += sum(name not in shapes for name in case.missing)
    stored = case.shapes
    good += sum(name in shapes and shapes[name] == stored[name] for name in case.unexpected)
    alarming = {*case.missing, *(one.expected.name for one in case.mismatched)}
    opened = any(
        name not in alarming and name in stored and stored[name] != shape
        for name, shape in shapes.items()
    )
    return 0 if opened else good


def _suggested(
    keys: tuple[Symbol, ...], differ: list[tuple[int, int]]
) -> Iterator[tuple[Symbol, int]]:
    """Values by key: the length itself, then what is in proportion to it, then few steps away."""
    for key, (due, found) in product(keys, differ):
        yield key, _as_it_is(key.value, due, found)
    shaping = [key for key in keys if key.letter]
    for suggest in (_by_ratio, _by_square, _by_difference):
        for key, (due, found) in product(shaping, differ):
            yield key, suggest(key.value, due, found)
    for key, (due, found) in product(shaping, differ):
        for steps in range(1, min(_MOST_STEPS, key.value) + 1):
            if abs(found - due) % steps == 0:
                yield key, key.value + (steps if found > due else -steps)


def _as_it_is(value: int, due: int, found: int) -> int:
    return found if due == value else 0


def _by_ratio(value: int, due: int, found: int) -> int:
    return value * found // due if due and value * found % due == 0 else 0


def _by_square(value: int, due: int, found: int) -> int:
    """Of a length that is a square and one more, or none: patches of an image, and its class."""
    for more in (0, 1, 2):
        sides = [isqrt(max(0, one - more)) for one in (due, found)]
        if sides[0] and [side * side + more for side in sides] == [due, found]:
            return _by_ratio(value, *sides)
    return 0


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
        if place in missing and have:  # else the files say nothing of how many there are
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
