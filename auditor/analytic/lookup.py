"""A lookup of tensors by name in a tree of blocks, without listing the complete tree."""

from collections.abc import Iterable
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
    """A lookup of single names among the tensors that `inventory` would list."""

    tree: Module

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str) -> ExpectedTensor | None:
        """Return the tensor with the name; None if the tree does not have it."""
        return self.tensors((name,)).get(name)

    def tensors(self, names: Iterable[str]) -> dict[str, ExpectedTensor]:
        """Return the tensors with these names; names that the tree lacks are left out."""
        entries = {name: entry for name in names if (entry := self._entry(name))}
        shapes = [tuple(dim(size).value for size in entry.shape) for entry in entries.values()]
        return {
            name: ExpectedTensor(name, shape, prod(shape), entry.role, entry.tied_to)
            for (name, entry), shape in zip(entries.items(), shapes, strict=True)
        }

    def _entry(self, name: str) -> "_Entry | None":
        """Return the entry with the name; a tied entry has the shape of its source."""
        entry = _find(self.tree, name, 0, "")
        if entry and entry.role is Role.TIED and (source := self._entry(entry.tied_to or "")):
            return replace(entry, shape=source.shape)
        return entry


class _Entry(Struct, frozen=True):
    role: Role
    shape: Shape = ()
    tied_to: str | None = None


def _find(  # noqa: PLR0911 - one for each kind of block
    block: Block, name: str, at: int, within: str
) -> _Entry | None:
    """Return the block's tensor whose name is the rest of `name`, from index `at` on.

    The block's ties are relative to `within`, a prefix of the name with its dot: "bert.encoder.".
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
    if at <= len(name):  # the name continues after a dot
        return None
    match block:
        case Param(shape):
            return _Entry(Role.PARAMETER, shape)
        case Buffer(shape):
            return _Entry(Role.BUFFER, shape)
        case Legacy(shape):
            return _Entry(Role.LEGACY, shape)
        case Tied(to):
            return _Entry(Role.TIED, tied_to=f"{within}{to}")


def _optional(entry: _Entry | None) -> _Entry | None:
    if entry is None:
        return None
    return replace(entry, role=Role.EXTRA if entry.role.learned else Role.LEGACY)


def _child(block: Module | Repeat | Stack, name: str, at: int, within: str) -> _Entry | None:
    key = name[at:].partition(".")[0]
    below = at + len(key) + 1
    match block:
        case Module(children):
            for child_name, child in children:
                if child_name == key:
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
    """Return the key of an nn.ModuleList as an index below `count`; None for other keys."""
    if not (key.isascii() and key.isdecimal()) or len(key) > _DIGITS or str(int(key)) != key:
        return None
    return int(key) if int(key) < count else None


_DEEPEST = 128  # segments of a name; names in trees have at most ten
