"""The load report of from_pretrained, computed like its loader from names and shapes alone.

The steps are those of core_model_loading.py and modeling_utils.py of transformers 5. Each stored
name is renamed and converted, and the base model's prefix is added or removed. Names that the model
lacks are unexpected, and tensors of other shapes are mismatched. All other names of the model are
missing, except tied ones and those that the class ignores.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from auditor.analytic import Expectation
from auditor.analytic.conversions import (
    Conversion,
    ConversionError,
    Shapes,
    UnknownOperationError,
    class_memory,
    converted_tensors,
)
from auditor.analytic.loading import Loading, Rule, forms_with_prefix, renamed_by
from auditor.messages import quoted
from auditor.reconciler.loading.report import LoadReport, Mismatch

_Shape = tuple[int, ...]


class Target(NamedTuple):
    """The class into which weights are loaded, in its in-memory form."""

    prefix: str  # prefix of the base model
    loading: Loading
    shapes: Mapping[str, _Shape]
    ties: tuple[tuple[str, str], ...] = ()
    unset: frozenset[str] | None = frozenset()  # None if they are not known


class Destination(NamedTuple):
    """The name in the model under which a stored tensor is loaded."""

    name: str  # name in memory; the first one if a conversion makes several
    rule: Rule | None  # the conversion of the tensor; None if it is unchanged
    source: str  # name before conversion; the stored name if unchanged


class _Tensor(NamedTuple):
    """A stored tensor that is loaded into a tensor of the model."""

    stored: str
    shape: _Shape
    rule: Rule | None
    source: str


def load_report(expectation: Expectation, stored: Mapping[str, _Shape]) -> LoadReport:
    """Return the report of loading tensors into a class; see `simulate_load`."""
    shapes, ties, unset = class_memory(expectation)
    return simulate_load(
        stored, Target(expectation.prefix, expectation.loading, shapes, ties, unset)
    )


def simulate_load(stored: Mapping[str, _Shape], target: Target) -> LoadReport:
    """Return the load report; raise UnknownOperationError for a conversion not known here."""
    shapes = target.shapes
    missing, unexpected = dict.fromkeys(shapes), set[str]()
    mismatched: set[Mismatch] = set()
    faults: list[str] = []
    for first, tensors in _by_parameter(stored, target, unexpected).items():
        try:
            loaded = tuple(_loaded(first, tensors, shapes))
        except ConversionError as error:
            faults.append(f"{first} cannot be made of what is stored: {error}")
            continue
        for name, shape in loaded:
            if name in shapes:
                missing.pop(name, None)
                if shape != shapes[name]:
                    mismatched.add(Mismatch(name, shape, shapes[name]))
            elif target.unset is None:
                raise UnknownOperationError(f"of {quoted(first)} into {quoted(name)}")
            elif name in target.unset:
                unexpected.add(name)
            else:
                faults.append(f"{name} would be loaded, and the model has no such parameter")
    _remove_tied(missing, target.ties)
    silent = (*target.loading.silent, *target.loading.buffers)
    return LoadReport(
        missing=_without_silent(missing, target.loading.unmissed),
        unexpected=_without_silent(unexpected, silent),
        mismatched=tuple(sorted(mismatched)),
        raises=min(faults, default=None),
    )


# --- the names under which stored tensors are loaded -------------------------------------------


def destinations(stored: Collection[str], loading: Loading) -> dict[str, Destination]:
    """Map the names that rules change to their destinations, before the prefix is added or removed.

    A paired rule (each source has its own target) applies only once a name has matched its first
    source: to that name and to those after it.
    """
    if any(rule.paired for rule in loading.renames):
        stored = sorted(stored, key=_order)  # else the order matters only for names that collide
    own = renamed_by(loading.renames, stored, in_turn=True)
    renamed = [own[name].name if name in own else name for name in stored]
    older = loading.renamed_by_legacy(renamed)
    names = [older[name].name if name in older else name for name in renamed]
    converted = loading.conversions(names)
    leads: dict[str, Destination] = {}
    for original, name in zip(stored, names, strict=True):
        if name in converted:
            source = converted[name].pattern
            leads[original] = Destination(converted[name].name, _last_of(loading, source), source)
        elif name != original:
            leads[original] = Destination(name, None, original)
    return leads


def _last_of(loading: Loading, source: str) -> Rule:
    """Return the last conversion with this source, which is the one that transformers uses."""
    return next(rule for rule in reversed(loading.converters) if source in rule.sources)


def _in_model(names: Iterable[str], target: Target) -> dict[str, str]:
    """Map each name to the model's name, with the prefix removed or added, else to itself."""
    forms = forms_with_prefix(names, target.prefix).items()
    return {name: next((one for one in some if one in target.shapes), name) for name, some in forms}


# --- the loaded tensors -----------------------------------------------------------------------


def _by_parameter(
    stored: Mapping[str, _Shape], target: Target, unexpected: set[str]
) -> Mapping[str, list[_Tensor]]:
    """Group the stored tensors by the parameter that they fill; add all others to `unexpected`."""
    tensors_by_name: dict[str, list[_Tensor]] = {}
    shapes, changed = target.shapes, destinations(stored, target.loading)
    in_model = _in_model(chain(stored, (one.name for one in changed.values())), target)
    for name, shape in stored.items():
        first, rule, source = changed.get(name) or (name, None, name)
        first = in_model[first]
        if first not in shapes and name in shapes:
            first, rule, source = in_model[name], None, name
        if first in shapes:
            tensors_by_name.setdefault(first, []).append(_Tensor(name, shape, rule, source))
        elif rule is None:
            unexpected.add(first)
        else:
            unexpected.update(first.replace(rule.targets[0], target) for target in rule.targets)
    return tensors_by_name


def _loaded(first: str, tensors: list[_Tensor], shapes: Shapes) -> Iterator[tuple[str, _Shape]]:
    """Yield (name, shape) of a loaded parameter, and of others that the same conversion makes."""
    if len(tensors) > 1 and len({(one.rule, one.source, one.shape) for one in tensors}) > 1:
        tensors = sorted(tensors, key=lambda one: _order(one.stored))
    rule = tensors[0].rule
    if rule is None:
        yield first, tensors[0].shape  # if several tensors fill one parameter, the first is loaded
        return
    collected: dict[str, list[_Shape]] = {}
    for tensor in tensors:
        collected.setdefault(tensor.source, []).append(tensor.shape)
    yield from converted_tensors(Conversion(rule, first, shapes), collected)


def _remove_tied(missing: dict[str, None], ties: tuple[tuple[str, str], ...]) -> None:
    """Remove a name from `missing` if a tensor that is tied to it is stored."""
    for place, (name, source) in enumerate(ties):
        if source not in missing:
            missing.pop(name, None)
        elif name not in missing:
            missing.pop(source, None)
        elif any(of == source and other not in missing for other, of in ties[place + 1 :]):
            missing.pop(name, None)


def _without_silent(names: Iterable[str], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sorted names that no pattern matches."""
    if patterns:
        silent = re.compile("|".join(f"({pattern})" for pattern in patterns))
        names = (name for name in names if not silent.search(name))
    return tuple(sorted(names))


_MOST_DIGITS = 20  # of a number in a name; longer digit strings are treated as text


def _order(name: str) -> list[tuple[int | str, ...]]:
    """Return the sort key by which transformers orders stored names."""
    return [_part(part) for part in name.split(".")]


def _part(part: str) -> tuple[int | str, ...]:
    text = part.rstrip("0123456789")
    digits = part[len(text) :]
    if not digits or len(digits) > _MOST_DIGITS:
        return (1, part)
    return (1, text, int(digits)) if text else (0, int(digits))
