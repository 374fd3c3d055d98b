"""Values of keys where only the oracle knows the class: lengths, as they are stored.

The library takes 50 ms and more for each config, so that few are asked about.
"""

from collections.abc import Iterator, Mapping
from itertools import islice, product
from operator import itemgetter
from typing import Any

from auditor.diagnosis.case import Case
from auditor.diagnosis.changes import with_values
from auditor.diagnosis.name_kinds import kinds_of
from auditor.diagnosis.solving.holdings import module_counts
from auditor.diagnosis.solving.keys import Key, config_with

_MOST_ASKED = 6
_MOST_SECONDS = 2.0


def suggested(case: Case) -> Iterator[tuple[Key, int]]:
    """The keys and values that close most, best first."""
    every = len(case.missing) + len(case.unexpected) + len(case.mismatched)
    judged: list[tuple[int, Key, int]] = []
    for key, value in islice(_values(case), _MOST_ASKED):
        closed = _closed(case, key, value)
        judged.append((closed, key, value))
        if closed == every:
            break
    judged.sort(key=itemgetter(0), reverse=True)
    yield from ((key, value) for closed, key, value in judged[:2] if closed)


def _values(case: Case) -> Iterator[tuple[Key, int]]:
    differ = [*sorted(_counts(case)), *sorted(_lengths(case))]
    seen: set[tuple[str, int]] = set()
    for key, (due, found) in product(_numbers(case.config, ""), differ):
        if key.value == due and found > 0 and (key.path, found) not in seen:
            seen.add((key.path, found))
            yield key, found


def _numbers(values: Mapping[str, Any], within: str) -> Iterator[Key]:
    for name, value in values.items():
        if type(value) is int and value > 0 and not name.endswith("_token_id"):
            yield Key(f"{within}{name}", value, default=False)
        elif isinstance(value, Mapping) and name.endswith("_config"):
            yield from _numbers(value, f"{within}{name}.")


def _closed(case: Case, key: Key, value: int) -> int:
    """How many names would no longer differ, by what the config implies; 0 if others would."""
    shapes = case.implied(with_values(case.snapshot, config_with(case.config, key.path, value)))
    if shapes is None:
        return 0
    stored = {case.on_disk(name): shape for name, shape in case.shapes.items()}
    missing, unexpected = _on_disk(case, case.missing), _on_disk(case, case.unexpected)
    good = sum(shapes.get(one.expected.name) == one.stored.shape for one in case.mismatched)
    good += sum(name not in shapes for name in missing)
    good += sum(name in shapes and shapes[name] == stored[name] for name in unexpected)
    alarming = {*missing, *(one.expected.name for one in case.mismatched)}
    opened = any(
        name not in alarming and name in stored and stored[name] != shape
        for name, shape in shapes.items()
    )
    return 0 if opened else good


def _on_disk(case: Case, names: tuple[str, ...]) -> list[str]:
    return [case.on_disk(name) for name in names]


def _lengths(case: Case) -> set[tuple[int, int]]:
    """(expected, stored) lengths of the axes that differ."""
    found = set()
    for pair in case.mismatched:
        stored, due = pair.stored.shape, pair.expected.shape
        if stored is not None and len(stored) == len(due):
            found |= {(one, other) for one, other in zip(due, stored, strict=True) if one != other}
    return found


def _counts(case: Case) -> set[tuple[int, int]]:
    """(expected, stored) numbers of modules in lists of which names are missing or too many."""
    missing, unexpected = _on_disk(case, case.missing), _on_disk(case, case.unexpected)
    have, more = case.holdings.counts, module_counts(kinds_of(unexpected))
    lacking = module_counts(kinds_of(missing))
    due = {place: max(count, have.get(place, 0)) for place, count in lacking.items()}
    found = {(count, have.get(place, 0)) for place, count in due.items()}
    for place in more:
        numbers = (
            int(name[len(place) + 1 :].partition(".")[0])
            for name in unexpected
            if name.startswith(f"{place}.") and name[len(place) + 1].isdecimal()
        )
        found.add((min(numbers, default=0), have.get(place, 0)))
    return {(one, other) for one, other in found if one != other and other}
