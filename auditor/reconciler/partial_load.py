"""What loading could report: what is not plainly as expected, and what is converted with it.

Of ninety thousand tensors hardly any differs, and all others are known to load. With a tensor go
those that are converted together with it: one expert of a layer with all the others.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from auditor.analytic import Expectation, ExpectedTensor
from auditor.analytic.conversions import (
    class_memory,
    converted_groups,
    tensors_before_conversion,
    tied_pairs,
)
from auditor.analytic.loading import Loading
from auditor.reconciler.from_pretrained import (
    Destination,
    StateDictLoad,
    Target,
    destinations,
    forms_with_prefix,
)

_Shape = tuple[int, ...]


def whole_load(expectation: Expectation, stored: Mapping[str, _Shape]) -> StateDictLoad:
    """All of it."""
    loading = expectation.loading
    shapes, tied, unset = class_memory(expectation)
    target = Target(expectation.prefix, loading, shapes, tied, unset)
    return StateDictLoad(stored, destinations(stored, loading), target, missing=shapes)


def load_of_differences(
    expectation: Expectation, stored: Mapping[str, _Shape], whole: Collection[str]
) -> StateDictLoad:
    """The part of a load that has the report of all of it.

    `whole` are the names that are expected, and stored in that shape.
    """
    loading = expectation.loading
    names = tensors_before_conversion(expectation)
    loose = {name: shape for name, shape in stored.items() if name not in whole}
    lacking = [name for name, tensor in names.items() if tensor.name not in whole]
    taken = loading.conversions(lacking)
    made_with = _made_with(names, loading)
    groups = {one.name for one in taken.values()}
    leads = destinations(loose, loading)
    reached = _reached(loose, leads, expectation.prefix, made_with)
    groups.update(made_with[name] for name in reached)
    made: dict[str, _Shape] = {}
    beside: dict[str, _Shape] = {}
    for group in converted_groups(_members(groups, names, loading), loading).values():
        made.update(group.in_memory)
        beside.update((one.name, stored[one.name]) for one in group.on_disk if one.name in whole)
    if beside:
        loose |= beside
        leads = destinations(loose, loading)
    missing = [*(name for name in lacking if name not in taken), *made]
    shapes: Mapping[str, _Shape]
    if loading.memory is None:
        reached = _reached(loose, leads, expectation.prefix, names)
        taken = loading.conversions(reached)
        shapes = {name: names[name].shape for name in reached if name not in taken} | made
        unset = frozenset[str]()
    else:
        shapes, _, unset = loading.memory
        missing += (name for name in shapes if name not in names and name not in made_with)
    target = Target(expectation.prefix, loading, shapes, tied_pairs(expectation), unset)
    return StateDictLoad(loose, leads, target, missing)


def _reached(
    stored: Iterable[str],
    leads: Mapping[str, Destination],
    prefix: str,
    known: Mapping[str, object],
) -> set[str]:
    """Those of the known names at which loading may look."""
    looks = chain(stored, (one.name for one in leads.values())) if known else ()
    forms = chain.from_iterable(forms_with_prefix(name, prefix) for name in looks)
    return {name for name in forms if name in known}


def _made_with(names: Iterable[str], loading: Loading) -> Mapping[str, str]:
    """Each name that a conversion makes -> the first one that is made with it.

    A list of modules has one of the number 0, so that not all of its names have to be read.
    """
    rules = loading.converters
    lists = all("*." in source for rule in rules for source in rule.sources)
    some = (name for name in names if not lists or ".0." in name)
    taken = loading.conversions(some).values()
    return {made: one.name for one in taken for made in one.made}


def _members(
    groups: Collection[str], names: Mapping[str, ExpectedTensor], loading: Loading
) -> Mapping[str, ExpectedTensor]:
    """The tensors of these groups, by their names before they are converted."""
    begin = tuple({_before(first, loading) for first in groups})
    taken = loading.conversions(name for name in names if name.startswith(begin))
    return {name: names[name] for name, one in taken.items() if one.name in groups}


def _before(first: str, loading: Loading) -> str:
    """How the names of a group begin, as far as conversion leaves them: with their layer."""
    places = (first.find(rule.targets[0]) for rule in loading.converters)
    return first[: max(0, min((place for place in places if place >= 0), default=0))]
