"""The two forms of a model's names: as save_pretrained writes them, and as they are in memory.

A state dict saved without save_pretrained has the names in memory, `vit.layers.0.mlp.fc1.weight`,
and loading accepts them too; save_pretrained writes
`vit.encoder.layer.0.intermediate.dense.weight`. It writes each expert as a tensor of its own, while
one tensor in memory stacks all experts of a layer. Names that older versions wrote,
`LayerNorm.gamma`, are read as the names that it writes now.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import product
from typing import NamedTuple

from msgspec.structs import replace

from auditor.analytic import Expectation, Written
from auditor.analytic.blocks import Block
from auditor.analytic.conversions import (
    ConvertedGroup,
    converted_groups,
    tensors_before_conversion,
)
from auditor.analytic.loading import PLAIN, Loading
from auditor.analytic.outline import leaves
from auditor.names.kinds import NameKind, name_pattern, numbers_in

_MOST = 250_000  # the most tensors that stacks are split into; a file may declare 2**40 experts
_MATRIX = 2  # axes


Shape = tuple[int, ...] | None  # None if only an index names the tensor


class StackedParts(NamedTuple):
    """Tensors on disk that one tensor in memory stacks, for all experts of a layer.

    For E experts of n parts, each (out, in), the tensor in memory is (E, n * out, in).
    """

    parts: tuple[str, ...]  # name patterns of the tensors on disk
    at: int  # index, among the numbers of the name, of the expert's number


class NameForms:
    """The mapping between names on disk and names in memory.

    `pairs` contains (disk, memory) names of one tensor of each kind, if it is one tensor in both
    forms: layers differ only in numbers. `stacks` is keyed by the pattern of the name in memory.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        stacks: Mapping[str, StackedParts] | None = None,
        loading: Loading = PLAIN,
    ) -> None:
        self._stacks = stacks or {}
        self._loading = loading
        patterns = {
            name_pattern(disk): name_pattern(memory)
            for disk, memory in pairs
            if numbers_in(disk) == numbers_in(memory)
        }
        both = patterns.keys() & set(patterns.values())
        self._in_memory = {
            disk: memory
            for disk, memory in patterns.items()
            if disk != memory and memory not in both and disk not in both
        }

    @property
    def differ(self) -> bool:
        """Whether any tensor has different names on disk and in memory."""
        return bool(self._in_memory)

    @cached_property
    def _on_disk(self) -> Mapping[str, str]:
        return {memory: disk for disk, memory in self._in_memory.items()}

    @property
    def has_stacks(self) -> bool:
        """Whether a tensor in memory stacks several tensors on disk."""
        return bool(self._stacks)

    def are_in_memory(self, kinds: Iterable[NameKind]) -> bool:
        """Whether more names end like a name in memory than like a name on disk."""
        excess = 0
        for kind in kinds:
            ends = tuple(_ends(kind.pattern))
            excess += any(end in self._on_disk for end in ends) * len(kind.names)
            excess -= any(end in self._in_memory for end in ends) * len(kind.names)
        return excess > 0

    def of_today(self, name: str) -> str:
        """Return the current name for an older version's name; any other name unchanged."""
        renames = self._loading.renamed_by_legacy((name,))
        return renames[name].name if renames else name

    def patterns_on_disk(self, pattern: str) -> tuple[str, ...]:
        """Return the name patterns that save_pretrained writes for a name of this pattern."""
        stack = self._stacks.get(pattern)
        return stack.parts if stack else (pattern,)

    def separated(
        self, shapes: Mapping[str, Shape], kinds: Iterable[NameKind]
    ) -> Mapping[str, Shape]:
        """Return the shapes with each stack of experts split into tensors of single experts.

        `kinds` are the kinds of the names.
        """
        split, room = dict(shapes), _MOST
        for kind in kinds:
            if (stack := self._stacks.get(kind.pattern)) is None:
                continue
            parts = [NameKind(part) for part in stack.parts]
            for name, numbers in zip(kind.names, kind.numbers, strict=True):
                shape = shapes[name]
                if shape is None or len(shape) != _MATRIX + 1 or shape[1] % len(parts):
                    continue
                experts, rows, columns = shape
                room -= experts * len(parts)
                if room < 0:
                    return shapes
                del split[name]
                before, behind = numbers[: stack.at], numbers[stack.at :]
                for part, expert in product(parts, range(experts)):
                    split_name = part.filled((*before, str(expert), *behind))
                    split[split_name] = (rows // len(parts), columns)
        return split

    def in_memory(self, name: str) -> str:
        """Return the name in memory for a name on disk; any other name unchanged."""
        return _renamed(name, self._in_memory)

    def on_disk(self, name: str) -> str:
        """Return the name on disk for a name in memory; any other name unchanged."""
        return _renamed(name, self._on_disk)


def forms_of(expectation: Expectation, tree: Block | None = None) -> NameForms:
    """Return the name forms of a class.

    If its `tree` is known, only one or two tensors of each kind are converted.
    """
    loading = expectation.loading
    if not (loading.renames or loading.converters):
        return NameForms((), loading=loading)
    needed = expectation.needed
    if tree is not None:
        leaf_names = {leaf.name for leaf in leaves(tree)}
        needed = tuple(one for one in needed if one.name in leaf_names)
    optional = (one for one in expectation.tensors if one.role.optional)
    kinds = {name_pattern(one.name): one for one in (*optional, *needed)}
    names = [one.name for one in kinds.values()]
    pairs = (
        (name, memory)
        for name, (memory, *others) in zip(names, loading.reported(names), strict=True)
        if not others
    )
    listed = Written(tensors=tuple(kinds.values()), modules={})
    few = replace(expectation, listed=listed)  # one tensor of each kind
    groups = converted_groups(tensors_before_conversion(few), loading) if loading.converters else {}
    stacks = {
        name_pattern(memory): stack
        for group in groups.values()
        for memory in group.in_memory
        if (stack := _stack(memory, group))
    }
    return NameForms(pairs, stacks, loading)


def _stack(memory: str, group: ConvertedGroup) -> StackedParts | None:
    """Return the tensors on disk that a tensor in memory stacks, from the group of one expert.

    Return None if the group has several experts, or if its parts are not stacked along the rows.
    """
    shapes = {one.shape for one in group.on_disk}
    if len(shapes) > 1 or len(group.in_memory) > 1:
        return None
    ((*rows, columns),) = shapes
    if len(rows) != 1 or group.in_memory[memory] != (1, len(group.on_disk) * rows[0], columns):
        return None
    outer = numbers_in(memory)
    numbers = numbers_in(group.on_disk[0].name)
    places = [at for at in range(len(numbers)) if numbers[:at] + numbers[at + 1 :] == outer]
    if not places:
        return None
    return StackedParts(tuple(name_pattern(one.name) for one in group.on_disk), places[-1])


def _renamed(name: str, patterns: Mapping[str, str]) -> str:
    other = patterns.get(name_pattern(name))
    return name if other is None else NameKind(other).filled(numbers_in(name))


def _ends(pattern: str) -> Iterator[str]:
    """Yield the ends of a pattern: `a.b.c`, `b.c` and `c`."""
    while pattern:
        yield pattern
        pattern = pattern.partition(".")[2]
