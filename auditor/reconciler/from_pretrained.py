"""What from_pretrained would report: its loader on names and shapes alone.

The steps are those of core_model_loading.py and modeling_utils.py of transformers 5: each stored
name is renamed, converted, and given the base model's prefix or freed of it; what the model does
not have is unexpected, what has another shape is mismatched, and what is left is missing, but for
ties and for the names that a class says nothing about.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from auditor.analytic.conversions import Conversion, ConversionError, Shapes, converted_tensors
from auditor.analytic.loading import Loading
from auditor.analytic.renaming_rules import Rule, rewritten_name
from auditor.reconciler.load_report import LoadReport, Mismatch

_Shape = tuple[int, ...]


class Target(NamedTuple):
    """The class that is loaded into, as it is in memory."""

    prefix: str  # of the base model
    loading: Loading
    shapes: Shapes
    ties: tuple[tuple[str, str], ...] = ()
    unset: frozenset[str] = frozenset()


class StateDictLoad(NamedTuple):
    """Stored tensors, each of a name of its own, on their way into a class."""

    stored: Mapping[str, _Shape]
    target: Target
    missing: Iterable[str]  # the names in memory that are there only if one of these fills them


class Destination(NamedTuple):
    """Where a stored name leads to."""

    name: str  # in memory; of a conversion the first that it makes
    rule: Rule | None  # the conversion
    source: str  # its source; without a conversion the stored name


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


def route(stored: str, target: Target, active: set[Rule] | None = None) -> Destination:
    """`active` are the paired rules whose first source was seen, and grows; None: all of them."""
    loading, shapes = target.loading, target.shapes
    name = _renamed(stored, loading, active)
    rule, source = None, stored
    for each in loading.converters:
        found = rewritten_name(each, name)
        if found is not None:
            name, source = found.name, each.sources[found.source]
            rule = _last_of(loading, source)
            break
    name = _shifted(name, target.prefix, shapes)
    if name not in shapes and stored in shapes:
        return Destination(_shifted(stored, target.prefix, shapes), None, stored)
    return Destination(name, rule, source)


def _renamed(name: str, loading: Loading, active: set[Rule] | None) -> str:
    for rule in loading.renames:
        found = rewritten_name(rule, name)
        if found is None:
            continue
        if rule.paired and active is not None:
            if found.source == 0:
                active.add(rule)
            if rule not in active:
                continue
        name = found.name
    return loading.of_old(name)[0]


def _last_of(loading: Loading, source: str) -> Rule:
    """The conversion that counts: of two with one source the last, as in the library."""
    return next(rule for rule in reversed(loading.converters) if source in rule.sources)


def _shifted(name: str, prefix: str, shapes: Shapes) -> str:
    """The base model's prefix goes where the rest is a name, and comes where it makes one."""
    if not prefix:
        return name
    if name.startswith(prefix) and (rest := name[len(prefix) + 1 :]) in shapes:
        return rest  # no dot is asked for
    longer = f"{prefix}.{name}"
    return longer if longer in shapes else name


# --- what is loaded ---------------------------------------------------------------------------


def _sorted_out(load: StateDictLoad, unexpected: set[str]) -> Mapping[str, list[_Found]]:
    """The stored tensors of each parameter that the model has; the others' names are unexpected."""
    found: dict[str, list[_Found]] = {}
    stored: Iterable[tuple[str, _Shape]] = load.stored.items()
    active: set[Rule] = set()
    if any(rule.paired for rule in load.target.loading.renames):
        stored = sorted(stored, key=_order)  # else only those that meet need an order
    for name, shape in stored:
        first, rule, source = route(name, load.target, active)
        if first in load.target.shapes:
            found.setdefault(first, []).append(_Found(name, shape, rule, source))
        elif rule is None:
            unexpected.add(first)
        else:
            unexpected.update(first.replace(rule.targets[0], target) for target in rule.targets)
    return found


def _loaded(first: str, found: list[_Found], shapes: Shapes) -> Iterator[tuple[str, _Shape]]:
    """What is loaded for one parameter, and for those that are made with it."""
    if len(found) > 1 and len({(one.rule, one.source, one.shape) for one in found}) > 1:
        found = sorted(found, key=lambda one: _order((one.stored, one.shape)))
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


def _order(item: tuple[str, _Shape]) -> list[tuple[int | str, ...]]:
    """The order in which transformers loads stored names."""
    return [_part(part) for part in item[0].split(".")]


def _part(part: str) -> tuple[int | str, ...]:
    text = part.rstrip("0123456789")
    digits = part[len(text) :]
    if not digits or len(digits) > _MOST_DIGITS:
        return (1, part)
    return (1, text, int(digits)) if text else (0, int(digits))
