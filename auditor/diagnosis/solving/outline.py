"""A tree of blocks with its Dims: one or two tensors of each kind, and where a name leads."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from auditor.analytic.blocks import (
    Block,
    Experts,
    Extra,
    Module,
    Param,
    Repeat,
    Shape,
    Stack,
    Submodel,
)
from auditor.analytic.dims import Dim, dim
from auditor.analytic.lookup import index_in_list

_DEEPEST = 64  # parts of a name


class ModuleList(NamedTuple):
    """A list of modules on the way to a tensor."""

    name: str  # "encoder.layer"
    modules: Dim  # how many it has


class Leaf(NamedTuple):
    """A tensor that stands for its like in other layers."""

    name: str
    shape: Shape
    lists: tuple[ModuleList, ...]  # outermost first
    number: int  # how many tensors it stands for


class NamePath(NamedTuple):
    """How far a name leads into a tree."""

    shape: Shape | None  # of a parameter; None: the name leads to none
    lists: tuple[ModuleList, ...]  # on the way, that which it leaves behind included
    other: bool = False  # to what need not be stored: a buffer, another name of a parameter


def leaves(tree: Block) -> Iterator[Leaf]:
    """The parameters of a tree; of a list, those of the first and last module of each kind."""
    return _leaves(tree, "", (), 1)


def _leaves(  # noqa: C901 - one for each kind of block
    block: Block, name: str, lists: tuple[ModuleList, ...], number: int
) -> Iterator[Leaf]:
    match block:
        case Module(children):
            for key, child in children:
                yield from _leaves(child, _join(name, key), lists, number)
        case Param(shape):
            yield Leaf(name, shape, lists, number)
        case Repeat(count, body):
            within = (*lists, ModuleList(name, count))
            for index, alike in _ends(range(count.value), count.value):
                yield from _leaves(body, f"{name}.{index}", within, number * alike)
        case Stack(count, layers):
            within, kinds = (*lists, ModuleList(name, count)), dict[int, list[int]]()
            for index, layer in enumerate(layers):
                kinds.setdefault(id(layer), []).append(index)
            for indices in kinds.values():
                for index, alike in _ends(indices, len(indices)):
                    yield from _leaves(layers[index], f"{name}.{index}", within, number * alike)
        case Experts(body) | Submodel(body):
            yield from _leaves(body, name, lists, number)


def _ends(indices: range | list[int], count: int) -> list[tuple[int, int]]:
    """The first and the last, and how many each stands for; len() knows no count of 2^63."""
    if count <= 1:
        return [(index, 1) for index in indices]
    return [(indices[0], count - count // 2), (indices[-1], count // 2)]


def follow(tree: Block, name: str) -> NamePath:
    """Where a stored name leads."""
    block, lists, at = tree, list[ModuleList](), ""
    parts = name.split(".", _DEEPEST)
    unread = False
    while parts:
        block = _inside(block)
        step, found = 1, None
        match block:
            case Module(children):
                step, found = _child(children, parts)
            case Repeat(count, body):
                lists.append(ModuleList(at, count))
                found = None if index_in_list(parts[0], count.value) is None else body
            case Stack(count, layers):
                lists.append(ModuleList(at, count))
                index = index_in_list(parts[0], count.value)
                found = None if index is None else layers[index]
        if found is None:
            return NamePath(None, tuple(lists))
        if isinstance(found, Extra):
            unread, found = True, found.body
        block, at = found, _join(at, ".".join(parts[:step]))
        parts = parts[step:]
    block = _inside(block)
    if isinstance(block, Param) and not unread:
        return NamePath(block.shape, tuple(lists))
    return NamePath(None, tuple(lists), other=not isinstance(block, Module | Repeat | Stack))


def _child(children: tuple[tuple[str, Block], ...], parts: list[str]) -> tuple[int, Block | None]:
    """How many parts of a name lead to the child of a module, and that child.

    Layers that no class reads have the numbers after those of the list: `layers.61` is a child.
    """
    found = None
    for key, child in children:
        if key == parts[0]:
            found = child
        elif "." in key and key.split(".") == parts[: (step := key.count(".") + 1)]:
            return step, child
    return 1, found


def _inside(block: Block) -> Block:
    while isinstance(block, Experts | Submodel):
        block = block.body
    return block


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def shapes_in(tree: Block, prefix: str) -> Callable[[str], tuple[int, ...] | None]:
    """A function from a stored name, with the base model's prefix or without it, to its shape."""

    def shape(name: str) -> tuple[int, ...] | None:
        other = name.removeprefix(f"{prefix}.") if prefix else name
        for spelt in (name, other, f"{prefix}.{name}"):
            if (found := follow(tree, spelt).shape) is not None:
                return tuple(dim(size).value for size in found)
        return None

    return shape
