"""The tree of blocks: its size formulas (Dims), one tensor of each kind, spellings of names."""

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import NamedTuple

from auditor.analytic.blocks import (
    Block,
    Buffer,
    ListAxis,
    Module,
    Param,
    Shape,
    sizes_of_shape,
    walk,
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
    for tensor in walk(tree):
        if tensor.is_extra or not isinstance(tensor.block, Param | Buffer):
            continue
        for ends in product(*map(_ends, tensor.lists)):
            name = tensor.filled(place for place, _ in ends)
            lists = tuple(
                ModuleList(".".join(name.split(".")[: axis.at]), axis.modules)
                for axis in tensor.lists
            )
            number = prod(represented for _, represented in ends)
            yield Leaf(name, tensor.block.shape, lists, number)


def sizes_of(tree: Block) -> Iterator[Dim]:
    """Yield the formula of each axis and of each number of modules."""
    for leaf in leaves(tree):
        yield from map(dim, leaf.shape)
        yield from (place.modules for place in leaf.lists)


def _ends(axis: ListAxis) -> list[tuple[int, int]]:
    """Return the first and last module, each with the number of modules that it represents.

    The modules of a range are not counted with len(), which fails at 2^63.
    """
    places = axis.places or ()
    count = axis.modules.value if isinstance(places, range) else len(places)
    if count <= 1:
        return [(place, 1) for place in places]
    return [(places[0], count - count // 2), (places[-1], count // 2)]


def shapes_in(tree: Block, prefix: str) -> Callable[[str], tuple[int, ...] | None]:
    """Return a function that returns the expected shape of a name, with or without the prefix."""

    def shape(name: str) -> tuple[int, ...] | None:
        shapes = (follow(tree, spelt).shape for spelt in spellings(name, prefix))
        return next((sizes_of_shape(one) for one in shapes if one is not None), None)

    return shape


def spellings(name: str, prefix: str) -> Iterator[str]:
    """Yield the name, then the name with the base model's prefix added, or removed if present."""
    yield name
    if prefix:
        yield name[len(prefix) + 1 :] if name.startswith(f"{prefix}.") else f"{prefix}.{name}"
