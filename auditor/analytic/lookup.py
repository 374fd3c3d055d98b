"""One tensor of a tree of blocks, found by its name; the rest of the tree is not written out."""

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
    Unbuildable,
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
        found = _find(self.tree, name, 0, "")
        if found is None:
            return None
        if found.role is Role.TIED and (source := self.get(found.tied_to or "")):
            found = replace(found, shape=source.shape)
        return ExpectedTensor(name, found.shape, prod(found.shape), found.role, found.tied_to)


class _Found(Struct, frozen=True):
    role: Role
    shape: tuple[int, ...] = ()
    tied_to: str | None = None


def _find(  # noqa: C901, PLR0911 - one for each kind of block
    block: Block, name: str, at: int, within: str
) -> _Found | None:
    """What the rest of the name, from `at` on, leads to below the block: behind its end, itself.

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
            return _leaf(Role.PARAMETER, shape)
        case Buffer(shape):
            return _leaf(Role.BUFFER, shape)
        case Legacy(shape):
            return _leaf(Role.LEGACY, shape)
        case Tied(to):
            return _Found(Role.TIED, tied_to=f"{within}{to}")
        case Unbuildable():
            return None


def _leaf(role: Role, shape: Shape) -> _Found:
    return _Found(role, tuple(dim(size).value for size in shape))


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
