"""Cells: the tensors of a model with its layers folded, each with how often it occurs and why.

`encoder.layer.*.attention.self.query.weight` of BERT is one cell of 589,824 parameters, twelve
times. A count that is wrong counts a cell too seldom, too often or not at all: a mask says how.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import ExpectedTensor, Role
from auditor.analytic.blocks import (
    Block,
    Buffer,
    Experts,
    Extra,
    Layer,
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

# The bits of a mask. Below them, bit i reduces the axis i of a cell to one.
LEFT_OUT = 1 << 8
COUNTED = 1 << 9  # though it does not belong to the count
ACTIVE = 1 << 10  # as many experts as one token uses
ONE_HEAD = 1 << 11  # one attention head of all


MOST_NAMES = 4096  # of cells that are kept with what they mean; a mixture of two towers has 300


class CellKind(StrEnum):
    """What a tensor is to whoever counts by hand."""

    WEIGHT = "weight"
    BIAS = "bias"
    NORM = "norm"  # weight and bias of a normalisation


class Axis(NamedTuple):
    """Modules of one kind in a list: layers, experts."""

    module: str  # of one of them: "encoder.layer.*"
    size: int  # how many there are of this kind
    of: int  # how many there are in the list, of all kinds
    kind: int = 0  # which kind, of a list of several
    places: tuple[int, ...] | None = None  # the numbers of this kind; None: all
    active: int | None = None  # of experts: how many one token uses


class FoldedTensor(Struct, frozen=True, kw_only=True, dict=True):
    """Tensors of one shape in layers of one kind."""

    name: str  # "encoder.layer.*.output.dense.weight"
    shape: tuple[int, ...]  # of one
    elements: int  # of one; of one expert, where a tensor holds them all
    axes: tuple[Axis, ...] = ()  # the lists around it, the outermost first
    role: Role = Role.PARAMETER
    kind: CellKind = CellKind.WEIGHT
    embedding: bool = False
    tied_to: str | None = None  # the name of a cell
    heads: int | None = None  # of a projection: how many attention heads it is for

    @cached_property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @cached_property
    def optional(self) -> bool:
        """It counts only where a mask says so."""
        return self.role is not Role.PARAMETER

    @cached_property
    def _counts(self) -> dict[int, int]:
        return {}

    def count(self, mask: int = 0) -> int:
        """The numbers that are counted of the cell under a mask."""
        if mask not in self._counts:
            self._counts[mask] = self._count(mask)
        return self._counts[mask]

    def _count(self, mask: int) -> int:
        if mask & LEFT_OUT or (self.optional and not mask & COUNTED):
            return 0
        total = self.elements
        for place, axis in enumerate(self.axes):
            if mask >> place & 1:
                continue
            total *= axis.active if mask & ACTIVE and axis.active is not None else axis.size
        return total // self.heads if mask & ONE_HEAD and self.heads else total


def total_of(cells: Iterable[FoldedTensor]) -> int:
    """The parameters of the cells: tied ones once, buffers never."""
    return sum(cell.count() for cell in cells)


# --- of a closed form ---------------------------------------------------------------------------


def cells_of_tree(tree: Module, heads: Mapping[str, int] | None = None) -> tuple[FoldedTensor, ...]:
    """The cells of a tree of blocks; `heads`: attention heads by the key that has their number."""
    return _with_ties(_cells(tree, "", (), ""), heads or {})


def _cells(block: Block, name: str, axes: tuple[Axis, ...], within: str) -> list[FoldedTensor]:
    """What is below a block; `within` is the name that its ties are relative to."""
    found: list[FoldedTensor] = []
    _collect(found, block, name, axes, within)
    return found


def _collect(  # noqa: C901, PLR0912 - one for each kind of block
    found: list[FoldedTensor], block: Block, name: str, axes: tuple[Axis, ...], within: str
) -> None:
    """Models of other values are made by the hundred: a list takes half of generators' time."""
    match block:
        case Param(shape, layer=layer):
            embedding = layer is Layer.EMBEDDING
            found.append(_leaf(name, shape, axes, Role.PARAMETER, embedding=embedding))
        case Module(children):
            for key, child in children:
                _collect(found, child, f"{name}.{key}" if name else key, axes, within)
        case Buffer(shape):
            found.append(_leaf(name, shape, axes, Role.BUFFER))
        case Legacy(shape):
            found.append(_leaf(name, shape, axes, Role.LEGACY))
        case Tied(to):
            source = re.sub(r"(?<=\.)\d+(?=\.)", "*", f"{within}{to}")
            found.append(
                FoldedTensor(
                    name=name, shape=(), elements=0, axes=axes, role=Role.TIED, tied_to=source
                )
            )
        case Extra(body):
            for cell in _cells(body, name, axes, within):
                role = Role.EXTRA if cell.role.learned else Role.LEGACY
                found.append(changed(cell, role=role))
        case Submodel(body):
            _collect(found, body, name, axes, f"{name}." if name else "")
        case Experts(body, count, active):
            found += _experts(body, name, axes, within, (count.value, active.value))
        case Repeat(count, body):
            if count.value > 0:
                below = f"{name}.*" if name else "*"
                axis = Axis(below, count.value, count.value)
                _collect(found, body, below, (*axes, axis), within)
        case Stack(_, layers):
            found += _stack(layers, name, axes, within)


def _stack(
    layers: tuple[Module, ...], name: str, axes: tuple[Axis, ...], within: str
) -> Iterator[FoldedTensor]:
    below = f"{name}.*" if name else "*"
    kinds: dict[int, list[int]] = {}
    for place, layer in enumerate(layers):
        kinds.setdefault(id(layer), []).append(place)
    for number, places in enumerate(kinds.values()):
        axis = Axis(below, len(places), len(layers), number, tuple(places))
        yield from _cells(layers[places[0]], below, (*axes, axis), within)


def _experts(
    body: Param | Module | Repeat,
    name: str,
    axes: tuple[Axis, ...],
    within: str,
    numbers: tuple[int, int],
) -> Iterator[FoldedTensor]:
    count, active = numbers
    for cell in _cells(body, name, axes, within):
        if isinstance(body, Repeat):
            axis = cell.axes[len(axes)]._replace(active=min(active, count))
            yield changed(cell, axes=(*axes, axis, *cell.axes[len(axes) + 1 :]))
        elif cell.elements % max(count, 1) == 0 and count > 0:  # all experts in one tensor
            axis = Axis(name, count, count, active=min(active, count))
            inner = cell.axes[len(axes) :]
            yield changed(cell, axes=(*axes, axis, *inner), elements=cell.elements // count)
        else:
            yield cell


def _leaf(
    name: str, shape: Shape, axes: tuple[Axis, ...], role: Role, *, embedding: bool = False
) -> FoldedTensor:
    sizes = tuple(dim(size).value for size in shape)
    return _sized(name, sizes, axes, role, embedding=embedding)


def _sized(
    name: str, sizes: tuple[int, ...], axes: tuple[Axis, ...], role: Role, *, embedding: bool
) -> FoldedTensor:
    return FoldedTensor(
        name=name,
        shape=sizes,
        elements=prod(sizes),
        axes=axes,
        role=role,
        kind=kind_of(name, sizes),
        embedding=embedding,
    )


def changed(cell: FoldedTensor, **fields: Any) -> FoldedTensor:
    """The cell with other values of some fields."""
    return replace(cell, **fields)


_PROJECTION = re.compile(r"(^|_)(q|k|v|query|key|value)(_|$|proj|lin)", re.IGNORECASE)


def _with_ties(cells: list[FoldedTensor], heads: Mapping[str, int]) -> tuple[FoldedTensor, ...]:
    """Give tied cells the size of what they share, and projections their heads."""
    by_name: dict[str, FoldedTensor] = {}
    for cell in cells:
        by_name.setdefault(cell.name, cell)
    made = []
    for cell in cells:
        if cell.tied_to is not None:
            source = by_name.get(cell.tied_to)
            if source is not None:
                sizes = source.shape
                made.append(changed(cell, shape=sizes, elements=prod(sizes), kind=source.kind))
            continue
        number = heads.get(_head_key(cell), 0) if heads else 0
        if number > 1 and cell.elements % number == 0 and cell.kind is not CellKind.NORM:
            made.append(changed(cell, heads=number))
        else:
            made.append(cell)
    return tuple(made)


def _head_key(cell: FoldedTensor) -> str:
    last = cell.module.rpartition(".")[2]
    found = _PROJECTION.search(last)
    if not found or not cell.axes:
        return ""
    return "q" if found[2].lower().startswith("q") else "kv"


_NORM = re.compile(r"(^|[._])(ln|bn|gn)(_|\d|$)|norm|layrnorm", re.IGNORECASE)
_BIAS = re.compile(r"(^|_)bias$|^b$")


def kind_of(name: str, shape: tuple[int, ...]) -> CellKind:
    """What a tensor of that name and shape is: of a norm, a bias, or a weight."""
    return _kind_by_name(name, len(shape))


@lru_cache(maxsize=MOST_NAMES)
def _kind_by_name(name: str, dimensions: int) -> CellKind:
    module, _, leaf = name.rpartition(".")
    last = module.rpartition(".")[2]
    if dimensions <= 1 and (_NORM.search(last) or _NORM.search(leaf)):
        return CellKind.NORM
    return CellKind.BIAS if _BIAS.search(leaf) else CellKind.WEIGHT


# --- of tensors that are listed -----------------------------------------------------------------


def cells_of_tensors(tensors: Iterable[ExpectedTensor]) -> tuple[FoldedTensor, ...]:
    """The same of names and shapes: numbers in a name are lists, and layers of a shape a kind."""
    alike: dict[tuple[str, tuple[int, ...], Role], list[ExpectedTensor]] = {}
    for tensor in tensors:
        pattern = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", tensor.name)
        alike.setdefault((pattern, tensor.shape, tensor.role), []).append(tensor)
    found = []
    for (pattern, shape, role), same in alike.items():
        cell = _sized(pattern, shape, _axes(pattern, same), role, embedding=False)
        tied = next((one.tied_to for one in same if one.tied_to), None)
        to = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", tied) if tied else None
        found.append(changed(cell, tied_to=to))
    return tuple(found)


def _axes(pattern: str, same: list[ExpectedTensor]) -> tuple[Axis, ...]:
    """One list for each number in the names, where they are all there; else one for all."""
    if "*" not in pattern:
        return ()
    places = [place for place, part in enumerate(pattern.split(".")) if part == "*"]
    parts = [tensor.name.split(".") for tensor in same]
    numbers = [len({name[place] for name in parts}) for place in places]
    modules = [".".join(pattern.split(".")[: place + 1]) for place in places]
    if prod(numbers) != len(same):
        return (Axis(modules[0], len(same), len(same)),)
    return tuple(Axis(name, n, n) for name, n in zip(modules, numbers, strict=True))
