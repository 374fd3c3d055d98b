"""What from_pretrained would report: its loader on names and shapes alone.

The steps are those of core_model_loading.py and modeling_utils.py of transformers 5: each stored
name is renamed, converted, and given the base model's prefix or freed of it; what the model does
not have is unexpected, what has another shape is mismatched, and what is left is missing, but for
ties and for the names that a class says nothing about.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from auditor.analytic.conversions import Conversion, ConversionError, Shapes, converted_tensors
from auditor.analytic.loading import Loading, Rule, renamed_by
from auditor.reconciler.load_report import LoadReport, Mismatch

_Shape = tuple[int, ...]


class Target(NamedTuple):
    """The class that is loaded into, as it is in memory."""

    prefix: str  # of the base model
    loading: Loading
    shapes: Shapes
    ties: tuple[tuple[str, str], ...] = ()
    unset: frozenset[str] = frozenset()


class Destination(NamedTuple):
    """Where a stored name leads to."""

    name: str  # in memory; of a conversion the first that it makes
    rule: Rule | None  # the conversion
    source: str  # its source; without a conversion the stored name


class StateDictLoad(NamedTuple):
    """Stored tensors, each of a name of its own, on their way into a class."""

    stored: Mapping[str, _Shape]
    leads: Mapping[str, Destination]  # as `destinations` has them
    target: Target
    missing: Iterable[str]  # the names in memory that are there only if one of these fills them


class _Found(NamedTuple):
    """A stored tensor that the model has a place for."""

    stored: str
    shape: _Shape
    rule: Rule | None
    source: str


def simulate_load(load: StateDictLoad) -> LoadReport:
    """Raises UnknownOperationError if loading takes a conversion that is not known here."""
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
        missing=_told(missing, target.loading.unmissed),
        unexpected=_told(unexpected, silent),
        mismatched=tuple(sorted(mismatched)),
        raises=min(faults, default=None),
    )


# --- where a name leads to --------------------------------------------------------------------


def destinations(stored: Collection[str], loading: Loading) -> dict[str, Destination]:
    """Where those names lead that rules change; the base model's prefix comes later.

    A paired rule counts from the name on that has its first source.
    """
    if any(rule.paired for rule in loading.renames):
        stored = sorted(stored, key=_order)  # else only those that meet need an order
    own = renamed_by(loading.renames, stored, in_turn=True)
    renamed = [own[name].name if name in own else name for name in stored]
    older = loading.of_old(renamed)
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


def forms_with_prefix(name: str, prefix: str) -> tuple[str, ...]:
    """The names under which the model may have it: without the prefix, with it, as it is."""
    if not prefix:
        return (name,)
    longer = f"{prefix}.{name}"
    # no dot is asked for
    return (name[len(prefix) + 1 :], longer, name) if name.startswith(prefix) else (longer, name)


def _last_of(loading: Loading, source: str) -> Rule:
    """The conversion that counts: of two with one source the last, as in the library."""
    return next(rule for rule in reversed(loading.converters) if source in rule.sources)


def _in_model(name: str, target: Target) -> str:
    """The base model's prefix goes where the rest is a name, and comes where it makes one."""
    for form in forms_with_prefix(name, target.prefix):
        if form in target.shapes:
            return form
    return name


# --- what is loaded ---------------------------------------------------------------------------


def _sorted_out(load: StateDictLoad, unexpected: set[str]) -> Mapping[str, list[_Found]]:
    """The stored tensors of each parameter that the model has; the others' names are unexpected."""
    found: dict[str, list[_Found]] = {}
    shapes = load.target.shapes
    for name, shape in load.stored.items():
        first, rule, source = load.leads.get(name) or (name, None, name)
        first = _in_model(first, load.target)
        if first not in shapes and name in shapes:
            first, rule, source = _in_model(name, load.target), None, name
        if first in shapes:
            found.setdefault(first, []).append(_Found(name, shape, rule, source))
        elif rule is None:
            unexpected.add(first)
        else:
            unexpected.update(first.replace(rule.targets[0], target) for target in rule.targets)
    return found


def _loaded(first: str, found: list[_Found], shapes: Shapes) -> Iterator[tuple[str, _Shape]]:
    """What is loaded for one parameter, and for those that are made with it."""
    if len(found) > 1 and len({(one.rule, one.source, one.shape) for one in found}) > 1:
        found = sorted(found, key=lambda one: _order(one.stored))
    rule = found[0].rule
    if rule is None:
        yield first, found[0].shape  # of several names for one parameter the first counts
        return
    collected: dict[str, list[_Shape]] = {}
    for one in found:
        collected.setdefault(one.source, []).append(one.shape)
    yield from converted_tensors(Conversion(rule, first, shapes), collected)


def _settle(missing: dict[str, None], ties: tuple[tuple[str, str], ...]) -> None:
    """A tied name is not missing where one of those that share its values is there."""
    for place, (name, source) in enumerate(ties):
        if source not in missing:
            missing.pop(name, None)
        elif name not in missing:
            missing.pop(source, None)
        elif any(of == source and other not in missing for other, of in ties[place + 1 :]):
            missing.pop(name, None)


def _told(names: Iterable[str], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Those that no pattern is about, sorted."""
    if patterns:
        silent = re.compile("|".join(f"({pattern})" for pattern in patterns))
        names = (name for name in names if not silent.search(name))
    return tuple(sorted(names))


_MOST_DIGITS = 20  # of a number that people count with


def _order(name: str) -> list[tuple[int | str, ...]]:
    """The order in which transformers loads stored names."""
    return [_part(part) for part in name.split(".")]


def _part(part: str) -> tuple[int | str, ...]:
    text = part.rstrip("0123456789")
    digits = part[len(text) :]
    if not digits or len(digits) > _MOST_DIGITS:
        return (1, part)
    return (1, text, int(digits)) if text else (0, int(digits))
