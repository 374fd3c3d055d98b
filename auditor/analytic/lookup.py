"""Tensors of a tree of blocks, found by their names; the rest of the tree is not written out.

Of one class, or of all classes of a family in one look; most looks are short.
"""

from collections.abc import Iterable, Mapping
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic.blocks import (
    MAX_TENSORS,
    Block,
    Buffer,
    Experts,
    Extra,
    Legacy,
    Module,
    Param,
    Repeat,
    Shape,
    Stack,
    Submodel,
    Tied,
)
from auditor.analytic.dims import dim
from auditor.analytic.expectation import ExpectedTensor, Role


class NameLookup(Struct, frozen=True):
    """The names of a tree: what `inventory` lists, one look at a time."""

    tree: Module

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str) -> ExpectedTensor | None:
        """The tensor of that name; None: the tree has none."""
        return self.tensors((name,)).get(name)

    def tensors(self, names: Iterable[str]) -> dict[str, ExpectedTensor]:
        """Return the tensors of the names that the tree has."""
        found = {name: one for name in names if (one := self._found(name))}
        shapes = [tuple(dim(size).value for size in one.shape) for one in found.values()]
        return {
            name: ExpectedTensor(name, shape, prod(shape), one.role, one.tied_to)
            for (name, one), shape in zip(found.items(), shapes, strict=True)
        }

    def _found(self, name: str) -> "_Found | None":
        """Return the tensor of that name; a tied tensor has the shape of its source."""
        found = _find(self.tree, name, 0, "")
        if found and found.role is Role.TIED and (source := self._found(found.tied_to or "")):
            return replace(found, shape=source.shape)
        return found


class _Found(Struct, frozen=True):
    role: Role
    shape: Shape = ()
    tied_to: str | None = None


def _find(  # noqa: PLR0911 - one for each kind of block
    block: Block, name: str, at: int, within: str
) -> _Found | None:
    """Return the tensor that the rest of the name, from `at` on, leads to below the block.

    The block's ties are relative to `within`, the name's beginning with its dot: "bert.encoder.".
    """
    match block:
        case Module() | Repeat() | Stack():
            return _child(block, name, at, within)
        case Experts(body):
            return _find(body, name, at, within)
        case Extra(body):
            return _optional(_find(body, name, at, within))
        case Submodel(body):
            return _find(body, name, at, name[:at])
    if at <= len(name):  # a dot, and what comes after it
        return None
    match block:
        case Param(shape):
            return _Found(Role.PARAMETER, shape)
        case Buffer(shape):
            return _Found(Role.BUFFER, shape)
        case Legacy(shape):
            return _Found(Role.LEGACY, shape)
        case Tied(to):
            return _Found(Role.TIED, tied_to=f"{within}{to}")


def _optional(found: _Found | None) -> _Found | None:
    if found is None:
        return None
    return replace(found, role=Role.EXTRA if found.role.learned else Role.LEGACY)


def _child(block: Module | Repeat | Stack, name: str, at: int, within: str) -> _Found | None:
    key = name[at:].partition(".")[0]
    below = at + len(key) + 1
    match block:
        case Module(children):
            for each, child in children:
                if each == key:
                    return _find(child, name, below, within)
            return None
        case Repeat(count, body):
            return (
                None
                if index_in_list(key, count.value) is None
                else _find(body, name, below, within)
            )
        case Stack(count, layers):
            place = index_in_list(key, count.value)
            return None if place is None else _find(layers[place], name, below, within)


_DIGITS = len(str(MAX_TENSORS))


def index_in_list(key: str, count: int) -> int | None:
    """The number that a key is, as nn.ModuleList writes it: not `01`, and below the count."""
    if not (key.isascii() and key.isdecimal()) or len(key) > _DIGITS or str(int(key)) != key:
        return None
    return int(key) if int(key) < count else None


_DEEPEST = 128  # parts of a name; those of a tree have ten


class Union:
    """The names of several classes; `in` says of a name whether any of them has it.

    A step from one part of a name to the next is taken once for all classes and then kept. Nothing
    is kept of parts that lead nowhere, so that unknown names, however many, take no room.
    """

    def __init__(self, classes: Iterable[NameLookup | Mapping[str, object]]) -> None:
        every = {id(names): names for names in classes}.values()
        self._listed = tuple(names for names in every if not isinstance(names, NameLookup))
        self._start = _State(names.tree for names in every if isinstance(names, NameLookup))

    def __contains__(self, name: str) -> bool:
        if any(name in listed for listed in self._listed):
            return True
        state = self._start
        for part in name.split(".", _DEEPEST):
            below = state.step(part)
            if below is None:
                return False
            state = below
        return state.leaf


class _State:
    """The blocks in which a name may go on, one or none of each class."""

    __slots__ = ("_blocks", "_children", "_counts", "_steps", "leaf")

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = tuple({id(block): block for block in map(_body, blocks)}.values())
        self._children = frozenset(
            name
            for block in self._blocks
            if isinstance(block, Module)
            for name, _ in block.children
        )
        counts = [block.count.value for block in self._blocks if isinstance(block, Repeat | Stack)]
        self._counts = max(counts, default=0)
        self._steps: dict[str, _State] = {}
        self.leaf = any(not isinstance(one, Module | Repeat | Stack) for one in self._blocks)

    def step(self, part: str) -> "_State | None":
        """Return the state after that part of a name, None if no class has such a name."""
        if part in self._steps:
            return self._steps[part]
        if part not in self._children and index_in_list(part, self._counts) is None:
            return None
        self._steps[part] = state = _State(_below(self._blocks, part))
        return state


def _body(block: Block) -> Block:
    while isinstance(block, Experts | Extra | Submodel):
        block = block.body
    return block


def _below(blocks: Iterable[Block], part: str) -> Iterable[Block]:
    for block in blocks:
        match block:
            case Module(children):
                yield from (child for name, child in children if name == part)
            case Repeat(count, body) if index_in_list(part, count.value) is not None:
                yield body
            case Stack(count, layers) if (place := index_in_list(part, count.value)) is not None:
                yield layers[place]
