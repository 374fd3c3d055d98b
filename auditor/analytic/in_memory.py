"""What a class of a closed form has in memory: what loading makes of the tensors on disk."""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.analytic.conversions import Conversion, ConversionError, converted_tensors
from auditor.analytic.expectation import Expectation, ExpectedTensor, Role
from auditor.analytic.loading import Loading, Memory
from auditor.analytic.renaming_rules import Rule

_Shape = tuple[int, ...]


class ConvertedGroup(NamedTuple):
    """Tensors on disk that one conversion takes together, and what it makes of them."""

    on_disk: tuple[ExpectedTensor, ...]
    in_memory: Mapping[str, _Shape]

    @property
    def tensors(self) -> tuple[ExpectedTensor, ...]:
        """Those in memory, as expected ones."""
        role = self.on_disk[0].role
        return tuple(
            ExpectedTensor(name, shape, prod(shape), role) for name, shape in self.in_memory.items()
        )


def class_memory(expectation: Expectation) -> Memory:
    """As the oracle has it from the library itself; else as the rules imply it."""
    loading = expectation.loading
    if loading.memory is not None:
        return loading.memory
    names = tensors_before_conversion(expectation)
    taken = loading.conversions(names)
    shapes = {name: one.shape for name, one in names.items() if name not in taken}
    for group in converted_groups(names, loading).values():
        shapes.update(group.in_memory)
    return Memory(shapes=shapes, ties=tied_pairs(expectation))


def tied_pairs(expectation: Expectation) -> tuple[tuple[str, str], ...]:
    """Each tied name in memory, and the one whose values it shares."""
    loading = expectation.loading
    if loading.memory is not None:
        return loading.memory.ties
    tied = [tensor for tensor in expectation.tensors if tensor.role is Role.TIED]
    names = loading.looked_for([tensor.name for tensor in tied])
    sources = loading.looked_for([tensor.tied_to or "" for tensor in tied])
    return tuple(zip(names, sources, strict=True))


def tensors_before_conversion(expectation: Expectation) -> dict[str, ExpectedTensor]:
    """What the model has, by the names that they have before they are converted."""
    tensors = expectation.loaded_of(expectation.tensors)
    names = expectation.loading.looked_for([tensor.name for tensor in tensors])
    return dict(zip(names, tensors, strict=True))


def converted_groups(
    names: Mapping[str, ExpectedTensor], loading: Loading
) -> dict[str, ConvertedGroup]:
    """The groups of these tensors, by the first name that is made of them.

    Names have to be whole groups', for the shapes in memory follow from all of a group.
    """
    taken: dict[str, tuple[Rule, list[tuple[ExpectedTensor, str]]]] = {}
    for name, found in loading.conversions(names).items():
        _, tensors = taken.setdefault(found.name, (found.rule, []))
        tensors.append((names[name], found.pattern))
    return {
        first: ConvertedGroup(
            tuple(tensor for tensor, _ in tensors), dict(_made(first, rule, tensors, loading))
        )
        for first, (rule, tensors) in taken.items()
    }


def _made(
    first: str, rule: Rule, tensors: Iterable[tuple[ExpectedTensor, str]], loading: Loading
) -> Iterator[tuple[str, _Shape]]:
    """What a group is made into; nothing where no checkpoint of this config can be loaded."""
    model = loading.memory.shapes if loading.memory else {}
    collected: dict[str, list[_Shape]] = {}
    for tensor, source in tensors:
        collected.setdefault(source, []).append(tensor.shape)
    try:
        made = tuple(converted_tensors(Conversion(rule, first, model), collected))
    except ConversionError:
        return
    yield from (one for one in made if not model or one[0] in model)
