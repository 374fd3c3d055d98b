"""The load report of from_pretrained, from its loader on names and shapes alone.

The steps are those of core_model_loading.py and modeling_utils.py of transformers 5. Each stored
name is renamed and converted, and the base model's prefix is added or removed. Names that the model
lacks are unexpected, other shapes are mismatched, and the rest is missing, except ties and names
about which the class is silent.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from auditor.analytic import Expectation, ExpectedTensor
from auditor.analytic.conversions import (
    Conversion,
    ConversionError,
    Shapes,
    class_memory,
    converted_groups,
    converted_tensors,
    tensors_before_conversion,
    tied_pairs,
)
from auditor.analytic.loading import Loading, Rule, forms_with_prefix, renamed_by
from auditor.reconciler.loading.report import LoadReport, Mismatch

_Shape = tuple[int, ...]


class Target(NamedTuple):
    """The class into which weights are loaded, in its in-memory form."""

    prefix: str  # of the base model
    loading: Loading
    shapes: Shapes
    ties: tuple[tuple[str, str], ...] = ()
    unset: frozenset[str] = frozenset()


class Destination(NamedTuple):
    """The place to which a stored name leads."""

    name: str  # in memory; for a conversion the first name that it makes
    rule: Rule | None  # the conversion
    source: str  # its source; without a conversion the stored name


class StateDictLoad(NamedTuple):
    """Stored tensors with unique names that are loaded into a class."""

    stored: Mapping[str, _Shape]
    leads: Mapping[str, Destination]  # the result of `destinations`
    target: Target
    missing: Iterable[str]  # the names in memory that these tensors have to fill


class _Found(NamedTuple):
    """A stored tensor for which the model has a place."""

    stored: str
    shape: _Shape
    rule: Rule | None
    source: str


def simulate_load(load: StateDictLoad) -> LoadReport:
    """Simulate loading; raise UnknownOperationError for a conversion that is unknown here."""
    target, shapes = load.target, load.target.shapes
    missing, unexpected = dict.fromkeys(load.missing), set[str]()
    mismatched: set[Mismatch] = set()
    faults: list[str] = []
    for first, found in _sorted_out(load, unexpected).items():
        try:
            loaded = tuple(_loaded(first, found, shapes))
        except ConversionError as error:
            faults.append(f"{first} cannot be made of what is stored: {error}")
            continue
        for name, shape in loaded:
            if name in shapes:
                missing.pop(name, None)
                if shape != shapes[name]:
                    mismatched.add(Mismatch(name, shape, shapes[name]))
            elif name in target.unset:
                unexpected.add(name)
            else:
                faults.append(f"{name} would be loaded, and the model has no such parameter")
    _settle(missing, target.ties)
    silent = (*target.loading.silent, *target.loading.buffers)
    return LoadReport(
        missing=_uncovered(missing, target.loading.unmissed),
        unexpected=_uncovered(unexpected, silent),
        mismatched=tuple(sorted(mismatched)),
        raises=min(faults, default=None),
    )


# --- the destination of a name ----------------------------------------------------------------


def destinations(stored: Collection[str], loading: Loading) -> dict[str, Destination]:
    """Map the names that rules change to their destinations; the base model's prefix comes later.

    A paired rule applies from the name on that has its first source.
    """
    if any(rule.paired for rule in loading.renames):
        stored = sorted(stored, key=_order)  # otherwise only names that collide need an order
    own = renamed_by(loading.renames, stored, in_turn=True)
    renamed = [own[name].name if name in own else name for name in stored]
    older = loading.renamed_by_legacy(renamed)
    names = [older[name].name if name in older else name for name in renamed]
    taken = loading.conversions(names)
    found: dict[str, Destination] = {}
    for asked, name in zip(stored, names, strict=True):
        if name in taken:
            source = taken[name].pattern
            found[asked] = Destination(taken[name].name, _last_of(loading, source), source)
        elif name != asked:
            found[asked] = Destination(name, None, asked)
    return found


def _last_of(loading: Loading, source: str) -> Rule:
    """Return the conversion of a source: the last of several, as in the library."""
    return next(rule for rule in reversed(loading.converters) if source in rule.sources)


def _in_model(names: Iterable[str], target: Target) -> dict[str, str]:
    """Remove the base model's prefix if the rest is a name; add it if that makes a name."""
    forms = forms_with_prefix(names, target.prefix).items()
    return {name: next((one for one in some if one in target.shapes), name) for name, some in forms}


# --- the loaded tensors -----------------------------------------------------------------------


def _sorted_out(load: StateDictLoad, unexpected: set[str]) -> Mapping[str, list[_Found]]:
    """Group the stored tensors by the model's parameters; add all other names to `unexpected`."""
    found: dict[str, list[_Found]] = {}
    shapes = load.target.shapes
    in_model = _in_model(chain(load.stored, (one.name for one in load.leads.values())), load.target)
    for name, shape in load.stored.items():
        first, rule, source = load.leads.get(name) or (name, None, name)
        first = in_model[first]
        if first not in shapes and name in shapes:
            first, rule, source = in_model[name], None, name
        if first in shapes:
            found.setdefault(first, []).append(_Found(name, shape, rule, source))
        elif rule is None:
            unexpected.add(first)
        else:
            unexpected.update(first.replace(rule.targets[0], target) for target in rule.targets)
    return found


def _loaded(first: str, found: list[_Found], shapes: Shapes) -> Iterator[tuple[str, _Shape]]:
    """Yield name and shape for one parameter and for those that its conversion also makes."""
    if len(found) > 1 and len({(one.rule, one.source, one.shape) for one in found}) > 1:
        found = sorted(found, key=lambda one: _order(one.stored))
    rule = found[0].rule
    if rule is None:
        yield first, found[0].shape  # the first of several names for one parameter counts
        return
    collected: dict[str, list[_Shape]] = {}
    for one in found:
        collected.setdefault(one.source, []).append(one.shape)
    yield from converted_tensors(Conversion(rule, first, shapes), collected)


def _settle(missing: dict[str, None], ties: tuple[tuple[str, str], ...]) -> None:
    """Remove tied names from `missing` if a name with which they share values is there."""
    for place, (name, source) in enumerate(ties):
        if source not in missing:
            missing.pop(name, None)
        elif name not in missing:
            missing.pop(source, None)
        elif any(of == source and other not in missing for other, of in ties[place + 1 :]):
            missing.pop(name, None)


def _uncovered(names: Iterable[str], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that no pattern covers, sorted."""
    if patterns:
        silent = re.compile("|".join(f"({pattern})" for pattern in patterns))
        names = (name for name in names if not silent.search(name))
    return tuple(sorted(names))


_MOST_DIGITS = 20  # of a number that counts something


def _order(name: str) -> list[tuple[int | str, ...]]:
    """The order in which transformers loads stored names."""
    return [_part(part) for part in name.split(".")]


def _part(part: str) -> tuple[int | str, ...]:
    text = part.rstrip("0123456789")
    digits = part[len(text) :]
    if not digits or len(digits) > _MOST_DIGITS:
        return (1, part)
    return (1, text, int(digits)) if text else (0, int(digits))


# --- loads: all tensors, or those that may be reported -----------------------------------------


def whole_load(expectation: Expectation, stored: Mapping[str, _Shape]) -> StateDictLoad:
    """The load of all stored tensors."""
    loading = expectation.loading
    shapes, tied, unset = class_memory(expectation)
    target = Target(expectation.prefix, loading, shapes, tied, unset)
    return StateDictLoad(stored, destinations(stored, loading), target, missing=shapes)


def load_of_differences(
    expectation: Expectation, stored: Mapping[str, _Shape], whole: Collection[str]
) -> StateDictLoad:
    """The part of a load that gives the report of the complete load.

    `whole` are the names that are expected and stored in the expected shape.
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
    """The known names at which loading may look."""
    looks = chain(stored, (one.name for one in leads.values())) if known else ()
    forms = chain.from_iterable(forms_with_prefix(looks, prefix).values())
    return {name for name in forms if name in known}


def _made_with(names: Iterable[str], loading: Loading) -> Mapping[str, str]:
    """Map each name that a conversion makes to the first name that it makes.

    A list of modules has a module 0, so not all of its names have to be read.
    """
    rules = loading.converters
    lists = all("*." in source for rule in rules for source in rule.sources)
    some = (name for name in names if not lists or ".0." in name)
    taken = loading.conversions(some).values()
    return {made: one.name for one in taken for made in one.made}


def _members(
    groups: Collection[str], names: Mapping[str, ExpectedTensor], loading: Loading
) -> Mapping[str, ExpectedTensor]:
    """The tensors of these groups, by their names before conversion."""
    begin = tuple({_before(first, loading) for first in groups})
    taken = loading.conversions(name for name in names if name.startswith(begin))
    return {name: names[name] for name, one in taken.items() if one.name in groups}


def _before(first: str, loading: Loading) -> str:
    """Return the start of a group's names that conversion does not change: their layer."""
    places = (first.find(rule.targets[0]) for rule in loading.converters)
    return first[: max(0, min((place for place in places if place >= 0), default=0))]
