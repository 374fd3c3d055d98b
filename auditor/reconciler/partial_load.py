"""What loading could report: what is not plainly as expected, and what is converted with it.

Of ninety thousand tensors hardly any differs, and all others are known to load. With a tensor go
those that are converted together with it: one expert of a layer with all the others.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from auditor.analytic import Expectation, ExpectedTensor
from auditor.analytic.in_memory import (
    class_memory,
    converted_groups,
    taken_by,
    tensors_before_conversion,
    tied_pairs,
)
from auditor.analytic.loading import Loading
from auditor.reconciler.from_pretrained import StateDictLoad, Target, route

_Shape = tuple[int, ...]


def whole_load(expectation: Expectation, stored: Mapping[str, _Shape]) -> StateDictLoad:
    """All of it."""
    loading = expectation.loading
    shapes, tied, unset = class_memory(expectation)
    target = Target(expectation.prefix, loading, shapes, tied, unset)
    return StateDictLoad(stored, target, missing=shapes)


def load_of_differences(
    expectation: Expectation, stored: Mapping[str, _Shape], whole: Collection[str]
) -> StateDictLoad:
    """The part of a load that has the report of all of it.

    `whole` are the names that are expected, and stored in that shape.
    """
    loading = expectation.loading
    model = _Model(tensors_before_conversion(expectation), loading)
    unset = loading.memory.unset if loading.memory else frozenset[str]()
    target = Target(expectation.prefix, loading, model, tied_pairs(expectation), unset)
    loose = {name: shape for name, shape in stored.items() if name not in whole}
    lone, groups = _lacking(model, whole)
    if loading.converters:
        found = (model.made_with.get(route(name, target).name) for name in loose)
        groups.update(filter(None, found))
    for group in converted_groups(dict(model.members(groups)), loading).values():
        model.made.update(group.in_memory)
        loose.update((one.name, stored[one.name]) for one in group.on_disk if one.name in whole)
    return StateDictLoad(loose, target, missing=(*lone, *model.made, *model.unreached))


def _lacking(model: "_Model", whole: Collection[str]) -> tuple[list[str], set[str]]:
    """The names in memory that are not filled as expected; of a group the first name."""
    lone: list[str] = []
    groups: set[str] = set()
    for name, tensor in model.names.items():
        if tensor.name not in whole:
            taken = taken_by(name, model.loading)
            if taken is None:
                lone.append(name)
            else:
                groups.add(taken.first)
    return lone, groups


class _Model:
    """A class's memory, of which only what is asked for is worked out."""

    def __init__(self, names: Mapping[str, ExpectedTensor], loading: Loading) -> None:
        self.names = names  # of what it has, before they are converted
        self.loading = loading
        self.made: dict[str, _Shape] = {}  # by the conversions that matter
        self._known = loading.memory.shapes if loading.memory else None

    def __contains__(self, name: str) -> bool:
        if self._known is not None:
            return name in self._known
        if name in self.names and taken_by(name, self.loading) is None:
            return True
        return name in self.made_with

    def __getitem__(self, name: str) -> _Shape:
        if self._known is not None:
            return self._known[name]
        return self.made[name] if name in self.made else self.names[name].shape

    @cached_property
    def made_with(self) -> Mapping[str, str]:
        """Each name that a conversion makes -> the first one that is made with it.

        A list of modules has one of the number 0, so that not all of its names have to be read.
        """
        rules = self.loading.converters
        lists = all("*." in source for rule in rules for source in rule.sources)
        found: dict[str, str] = {}
        for name in self.names if rules else ():
            if not lists or ".0." in name:
                taken = taken_by(name, self.loading)
                found.update(dict.fromkeys(taken.made, taken.first) if taken else ())
        return found

    @property
    def unreached(self) -> tuple[str, ...]:
        """What the class has in memory, and never stores."""
        if self._known is None:
            return ()
        return tuple(
            name for name in self._known if name not in self.names and name not in self.made_with
        )

    def members(self, groups: set[str]) -> Iterator[tuple[str, ExpectedTensor]]:
        """The tensors of these groups, by their names before they are converted."""
        before = {self._before(first) for first in groups}
        begin = tuple(before)
        for name, tensor in self.names.items() if groups else ():
            if name.startswith(begin):
                taken = taken_by(name, self.loading)
                if taken is not None and taken.first in groups:
                    yield name, tensor

    def _before(self, first: str) -> str:
        """How the names of a group begin, as far as conversion leaves them: with their layer."""
        places = (first.find(rule.targets[0]) for rule in self.loading.converters)
        return first[: max(0, min((place for place in places if place >= 0), default=0))]
