"""What from_pretrained would report: its loader on names and shapes alone.

The steps are those of core_model_loading.py and modeling_utils.py of transformers 5: each stored
name is renamed, converted, and given the base model's prefix or freed of it; what the model does
not have is unexpected, what has another shape is mismatched, and what is left is missing, but for
ties and for the names that a class says nothing about.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from auditor.analytic.conversions import Conversion, ConversionError, converted
from auditor.analytic.loading import Loading, Memory
from auditor.analytic.rules import Rule, rewritten
from auditor.reconciler.load_report import LoadReport, Mismatch

_Shape = tuple[int, ...]


class _Found(NamedTuple):
    """A stored tensor on its way to a parameter."""

    stored: str
    shape: _Shape
    rule: Rule | None  # the conversion that takes it
    source: str  # its source; without a conversion the stored name


def load(
    stored: Iterable[tuple[str, _Shape]], prefix: str, loading: Loading, memory: Memory
) -> LoadReport:
    """The report on these stored tensors, each of a name of its own; `prefix` as the class has it.

    Raises UnknownOperationError where it takes a conversion that nobody here knows.
    """
    shapes = memory.shapes
    missing, unexpected = dict.fromkeys(shapes), set[str]()
    mismatched: set[Mismatch] = set()
    faults: list[str] = []
    for first, found in _sorted_out(stored, _Route(prefix, loading, memory), unexpected).items():
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
            elif name in memory.unset:
                unexpected.add(name)
            else:
                faults.append(f"{name} would be loaded, and the model has no such parameter")
    _settle(missing, memory.ties)
    silent = (*loading.silent, *loading.buffers)
    return LoadReport(
        missing=_told(missing, loading.unmissed),
        unexpected=_told(unexpected, silent),
        mismatched=tuple(sorted(mismatched)),
        raises=min(faults, default=None),
    )


class _Route:
    """Where a stored name leads to."""

    def __init__(self, prefix: str, loading: Loading, memory: Memory) -> None:
        self._prefix = prefix
        self._loading = loading
        self._shapes = memory.shapes
        self._rules = (*loading.renames, *loading.legacy)
        self._of = {source: rule for rule in loading.converters for source in rule.sources}
        self._awake: set[Rule] = set()  # paired rules whose first source was seen
        self.ordered = any(rule.paired for rule in self._rules)  # each name depends on the last

    def __call__(self, stored: str) -> tuple[str, Rule | None, str]:
        """The name in memory, the conversion if there is one, and its source."""
        renamed = self._renamed(stored)
        taken = next(
            filter(None, (_taken(rule, renamed) for rule in self._loading.converters)), None
        )
        name, source = taken or (renamed, None)
        name = self._shifted(name)
        if name not in self._shapes and stored in self._shapes:
            return self._shifted(stored), None, stored
        return name, None if source is None else self._of[source], source or stored

    def has(self, name: str) -> bool:
        return name in self._shapes

    def _renamed(self, name: str) -> str:
        if not self._loading.renames:
            return self._loading.of_old(name)[0]
        for rule in self._rules:
            found = rewritten(rule, name)
            if found is None:
                continue
            if rule.paired and found.source:
                if rule not in self._awake:
                    continue
            elif rule.paired:
                self._awake.add(rule)
            name = found.name
        return name

    def _shifted(self, name: str) -> str:
        """The base model's prefix goes where the rest is a name, and comes where it makes one."""
        if not self._prefix:
            return name
        rest = name[len(self._prefix) + 1 :]  # no dot is asked for
        if name.startswith(self._prefix) and rest in self._shapes:
            return rest
        longer = f"{self._prefix}.{name}"
        return longer if longer in self._shapes else name


def _taken(rule: Rule, name: str) -> tuple[str, str] | None:
    found = rewritten(rule, name)
    return None if found is None else (found.name, rule.sources[found.source])


def _sorted_out(
    stored: Iterable[tuple[str, _Shape]], route: _Route, unexpected: set[str]
) -> Mapping[str, list[_Found]]:
    """The stored tensors of each parameter that the model has; the others' names are unexpected."""
    found: dict[str, list[_Found]] = {}
    for name, shape in sorted(stored, key=_order) if route.ordered else stored:
        first, rule, source = route(name)
        if route.has(first):
            found.setdefault(first, []).append(_Found(name, shape, rule, source))
        elif rule is None:
            unexpected.add(first)
        else:
            unexpected.update(first.replace(rule.targets[0], target) for target in rule.targets)
    return found


def _loaded(
    first: str, found: list[_Found], shapes: Mapping[str, _Shape]
) -> Iterator[tuple[str, _Shape]]:
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
    yield from converted(Conversion(rule, first, shapes), collected)


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
