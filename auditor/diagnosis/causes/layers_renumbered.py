"""layers-renumbered: layers are counted from another start, or with gaps where some were removed.

To do: Number the layers from 0, one after the other, and set their number in the config.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import value_at, with_names, with_values
from auditor.diagnosis.name_kinds import list_before, list_pattern, numbers, place_in_list, runs

CAUSE = "layers-renumbered"
_DEEPEST = 2  # levels of nested lists: layers, and their experts
_COUNTED = ("layer", "expert")  # words in the config key that counts them, by level
_OF_STAGES = ("stage_names", "out_features", "out_indices")  # keys that follow from the layers
_MOST_ALONE, _MOST_KEYS = 4, 2
_SHOWN = 2  # lists in a sentence


class _Layers(NamedTuple):
    """A list of layers with some differing name, and its stored numbers."""

    before: str
    stored: tuple[int, ...]
    expected: int  # expected number of layers, as far as the differing names show
    beyond: bool  # whether some numbers are unexpected

    @property
    def description(self) -> str:
        first, last, count = self.stored[0], self.stored[-1], len(self.stored)
        how = f"from {first}" if last - first + 1 == count else f"with gaps, up to {last}"
        return f"the {count} layers of {self.before.removesuffix('.')} are numbered {how}"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield all misnumbered lists numbered from 0 to n - 1; then each list alone."""
    if not case.missing:
        return
    for depth in range(_DEEPEST):
        lists = tuple(_lists(case, depth))
        if lists:
            yield from _undoings(case, lists, depth)
            return


def _lists(case: Case, depth: int) -> Iterator[_Layers]:
    lists = {list_pattern(kind, depth) for kind in case.missing_kinds} - {None}
    held = [kind for kind in case.stored_kinds if list_pattern(kind, depth) in lists]
    if not held:
        return
    missing, unexpected = numbers(case.missing_kinds, depth), numbers(case.unexpected_kinds, depth)
    for before, stored in numbers(held, depth).items():
        lacking = missing.get(before, set())
        whole = stored == set(range(len(stored)))
        if not whole and lacking and (before in unexpected or not lacking & stored):
            expected = max(lacking | (stored - unexpected.get(before, set()))) + 1
            yield _Layers(before, tuple(sorted(stored)), expected, before in unexpected)


def _undoings(case: Case, lists: tuple[_Layers, ...], depth: int) -> Iterator[Undoing]:
    for some in dict.fromkeys((lists, *((one,) for one in lists[:_MOST_ALONE]))):
        renames = _renames(case, some, depth)
        if all(one.beyond for one in some):
            yield _undoing(case, some, renames, {})
        counts = {
            (one.expected, len(one.stored)) for one in some if one.expected != len(one.stored)
        }
        if len(counts) == 1:
            ((expected, held),) = counts
            for key in _counting(case, expected, _COUNTED[depth]):
                yield _undoing(case, some, renames, {key: (expected, held)})


def _counting(case: Case, expected: int, word: str) -> list[str]:
    """Return the config keys that count the layers or experts, nested ones by path."""
    keys = []
    within = [("", case.config)]
    within += [(f"{key}.", one) for key, one in case.config.items() if isinstance(one, Mapping)]
    for path, values in within:
        for key, value in values.items():
            if word in key and value == expected and type(value) is int:
                keys.append(f"{path}{key}")
    return sorted(keys, key=lambda key: "hidden" not in key)[:_MOST_KEYS]


def _shortened(
    case: Case, key: str, stored: tuple[int, ...], expected: int
) -> Mapping[str, object]:
    """Return the config's per-layer lists without the entries of layers that are not stored."""
    path, _, _ = key.rpartition(".")
    values = value_at(case.config, path) if path else case.config
    inside = f"{path}." if path else ""
    lists = {
        f"{inside}{name}": [one[at] for at in stored]
        for name, one in values.items()
        if isinstance(one, list) and len(one) == expected and max(stored) < expected
    }
    return {**lists, **{f"{inside}{name}": None for name in _OF_STAGES if name in values}}


def _renames(case: Case, lists: tuple[_Layers, ...], depth: int) -> Mapping[str, str]:
    places = {one.before: {number: at for at, number in enumerate(one.stored)} for one in lists}
    renames = {}
    for kind in case.stored_kinds:
        at = place_in_list(kind, depth)
        if at is None:
            continue
        outer = {one[:at] for one in kind.numbers}
        renumbered = {one: places.get(list_before(kind, at, one), {}) for one in outer}
        for name, old in zip(kind.names, kind.numbers, strict=True):
            number = int(old[at])
            place = renumbered[old[:at]].get(number, number)
            if place != number:
                renames[name] = kind.filled((*old[:at], str(place), *old[at + 1 :]))
    return renames


def _undoing(
    case: Case,
    lists: tuple[_Layers, ...],
    renames: Mapping[str, str],
    fields: Mapping[str, tuple[int, int]],
) -> Undoing:
    changed = with_names(case.snapshot, renames)
    values: dict[str, object] = {key: held for key, (_, held) in fields.items()}
    also = "".join(f", and set {key} to {held}" for key, held in values.items())
    for key, (expected, _) in fields.items():
        values |= _shortened(case, key, lists[0].stored, expected)
    descriptions = " and ".join(one.description for one in lists[:_SHOWN])
    more = f" and {len(lists) - _SHOWN} more lists too" if len(lists) > _SHOWN else ""
    still = "".join(f", and {key} is still {expected}" for key, (expected, _) in fields.items())
    lost = set(range(lists[0].expected)).difference(lists[0].stored)
    still += f": layers {runs(lost)} were taken out, or lost" if still and lost else ""
    return Undoing(
        cause=CAUSE,
        snapshot=with_values(changed, values) if values else changed,
        renames=renames,
        fields=tuple((key, expected, held) for key, (expected, held) in fields.items()),
        summary=f"{descriptions}{more}{still}",
        fix=f"number them from 0, one after the other{also}"
        f"{'; or save the complete model again, if they were lost' if still and lost else ''}",
        evidence=(f"{lists[0].before}: {runs(lists[0].stored)} of {lists[0].expected}",),
    )
