"""layers-renumbered: layer numbers do not start at 0, or have gaps where layers were removed.

To do: Number the layers from 0 without gaps, and set their number in the config.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from auditor.analytic.config_keys import keys_with
from auditor.checkpoint.change import Change
from auditor.checkpoint.json_edits import Edit
from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.solving.layer_lists import without_layers
from auditor.names.kinds import list_before, numbers, place_in_list, runs

CAUSE = "layers-renumbered"
# A word in the config key that counts the modules of a list, by the list's depth.
_COUNTED = ("layer", "expert")
_MOST_ALONE, _MOST_KEYS = 4, 2
_SHOWN = 2  # lists that the summary names


class _Layers(NamedTuple):
    """A list of layers whose names differ from the expected ones, with the stored layer numbers."""

    before: str
    stored: tuple[int, ...]
    expected: int  # expected number of layers, as far as the differing names show
    beyond: bool  # whether some numbers are unexpected

    @property
    def description(self) -> str:
        first, last, count = self.stored[0], self.stored[-1], len(self.stored)
        how = f"from {first}" if last - first + 1 == count else f"with gaps, up to {last}"
        return f"the {count} layers of {self.before.removesuffix('.')} are numbered {how}"


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model with all misnumbered lists numbered from 0, then with only one of them."""
    for depth in range(len(_COUNTED)) if case.missing else ():
        if lists := tuple(_lists(case, depth)):
            for chosen in dict.fromkeys((lists, *((one,) for one in lists[:_MOST_ALONE]))):
                yield from _proposals(case, chosen, depth)
            return


def _lists(case: Case, depth: int) -> Iterator[_Layers]:
    stored_by_list, missing, unexpected = (
        numbers(kinds, depth)
        for kinds in (case.stored.kinds, case.missing.kinds, case.unexpected.kinds)
    )
    for before, stored in stored_by_list.items():
        lacking = missing.get(before, set())
        is_counted_up = stored == set(range(len(stored)))
        if lacking and not is_counted_up and (before in unexpected or not lacking & stored):
            expected = max(lacking | (stored - unexpected.get(before, set()))) + 1
            yield _Layers(before, tuple(sorted(stored)), expected, before in unexpected)


def _proposals(case: Case, lists: tuple[_Layers, ...], depth: int) -> Iterator[Proposal]:
    """Yield proposals that renumber the lists, if each has unexpected numbers; then with a count.

    A count is corrected if all lists with a wrong count agree on the expected and stored counts.
    """
    renames = _renames(case, lists, depth)
    if all(one.beyond for one in lists):
        yield _proposal(case, lists, renames)
    counts = {(one.expected, len(one.stored)) for one in lists if one.expected != len(one.stored)}
    if len(counts) == 1:
        ((expected, count),) = counts
        for key in keys_with(case.config, expected, _COUNTED[depth])[:_MOST_KEYS]:
            yield _proposal(case, lists, renames, (key, expected, count))


def _renames(case: Case, lists: tuple[_Layers, ...], depth: int) -> Mapping[str, str]:
    places = {one.before: {number: at for at, number in enumerate(one.stored)} for one in lists}
    renames = {}
    for kind in case.stored.kinds:
        at = place_in_list(kind, depth)
        if at is None:
            continue
        for name, old in zip(kind.names, kind.numbers, strict=True):
            number = int(old[at])
            place = places.get(list_before(kind, at, old[:at]), {}).get(number, number)
            if place != number:
                renames[name] = kind.filled((*old[:at], str(place), *old[at + 1 :]))
    return renames


def _proposal(
    case: Case,
    lists: tuple[_Layers, ...],
    renames: Mapping[str, str],
    *fields: tuple[str, int, int],
) -> Proposal:
    """Return the proposal that renumbers lists; a field is (config key, its value, true count)."""
    edits: tuple[Edit, ...] = ()
    summary = " and ".join(one.description for one in lists[:_SHOWN])
    summary += f" and {len(lists) - _SHOWN} more lists too" if len(lists) > _SHOWN else ""
    fix = "number them from 0, one after the other"
    first = lists[0]
    for key, expected, count in fields:
        edits = case.edits({key: count, **without_layers(case.config, key, first.stored)})
        summary += f", and {key} is still {expected}"
        fix += f", and set {key} to {count}"
        if lost := set(range(first.expected)).difference(first.stored):
            were = "layer {} was" if len(lost) == 1 else "layers {} were"
            summary += f": {were.format(runs(lost))} removed or lost"
            fix += "; or save the complete model again, if they were lost"
    return Proposal(
        cause=CAUSE,
        change=Change(renames=renames, edits=edits),
        fields=fields,
        summary=summary,
        fix=fix,
        evidence=(f"{first.before}: {runs(first.stored)} of {first.expected}",),
    )
