"""The tree of blocks: its size formulas (Dims), one tensor of each kind, spellings of names."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from auditor.analytic.blocks import (
    Block,
    Buffer,
    Experts,
    Module,
    Param,
    Repeat,
    Shape,
    Stack,
    Submodel,
)
from auditor.analytic.dims import Dim, dim
from auditor.analytic.lookup import ModuleList, follow


class ClassTree(NamedTuple):
    """The tree of blocks that a config implies for its class; layers are not listed one by one."""

    tree: Module
    prefix: str  # of the base model; "" if the family has none


class Leaf(NamedTuple):
    """A tensor that represents the tensors of its kind in other layers."""

    name: str
    shape: Shape
    lists: tuple[ModuleList, ...]  # outermost first
    number: int  # the number of tensors that it represents


def leaves(tree: Block) -> Iterator[Leaf]:
    """Yield a tree's parameters and buffers; in lists, only of the first and last equal modules."""
    return _leaves(tree, "", (), 1)


def sizes_of(tree: Block) -> Iterator[Dim]:
    """Yield the formula of each axis and of each number of modules."""
    for leaf in leaves(tree):
        yield from map(dim, leaf.shape)
        yield from (place.modules for place in leaf.lists)


def _leaves(  # noqa: C901 - one case for each kind of block
    block: Block, name: str, lists: tuple[ModuleList, ...], number: int
) -> Iterator[Leaf]:
    match block:
        case Module(children):
            for key, child in children:
                yield from _leaves(child, _join(name, key), lists, number)
        case Param(shape) | Buffer(shape):
            yield Leaf(name, shape, lists, number)
        case Repeat(count, body):
            within = (*lists, ModuleList(name, count))
            for index, represented in _ends(range(count.value), count.value):
                yield from _leaves(body, f"{name}.{index}", within, number * represented)
        case Stack(count, layers):
            within, kinds = (*lists, ModuleList(name, count)), dict[int, list[int]]()
            for index, layer in enumerate(layers):
                kinds.setdefault(id(layer), []).append(index)
            for indices in kinds.values():
                for index, represented in _ends(indices, len(indices)):
                    below = f"{name}.{index}"
                    yield from _leaves(layers[index], below, within, number * represented)
        case Experts(body) | Submodel(body):
            yield from _leaves(body, name, lists, number)


def _ends(indices: range | list[int], count: int) -> list[tuple[int, int]]:
    """Return the first and last index, each with the number of modules that it represents.

    The indices are not counted with len(), which fails at 2^63.
    """
    if count <= 1:
        return [(index, 1) for index in indices]
    return [(indices[0], count - count // 2), (indices[-1], count // 2)]


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def shapes_in(tree: Block, prefix: str) -> Callable[[str], tuple[int, ...] | None]:
    """Return a function that returns the expected shape of a name, with or without the prefix."""

    def shape(name: str) -> tuple[int, ...] | None:
        other = name.removeprefix(f"{prefix}.") if prefix else name
        for spelt in (name, other, f"{prefix}.{name}"):
            if (sizes := follow(tree, spelt).shape) is not None:
                return tuple(dim(size).value for size in sizes)
        return None

    return shape


def spellings(name: str, prefix: str) -> Iterator[str]:
    """Yield the name, then the name with the base model's prefix added, or removed if present."""
    yield name
    if prefix:
        yield name[len(prefix) + 1 :] if name.startswith(f"{prefix}.") else f"{prefix}.{name}"
