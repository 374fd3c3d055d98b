"""Cells: the tensors of a model with equal layers folded into one.

`encoder.layer.*.attention.self.query.weight` of BERT is one cell: 589,824 parameters, twelve times.
A count by hand is wrong if it counts a cell too few times, too many times or not at all. A mask (a
set of bits) says how often each cell was counted.
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

# The bits of a mask. Each lower bit i means: count only one module of the list `axes[i]`.
LEFT_OUT = 1 << 8
COUNTED = 1 << 9  # count a cell that the true count leaves out
ACTIVE = 1 << 10  # count only the experts that one token uses
ONE_HEAD = 1 << 11  # count one attention head instead of all


MOST_NAMES = 4096  # names of cells in a cache; a mixture of two towers has 300


class CellKind(StrEnum):
    """The kinds of tensors that a count by hand distinguishes."""

    WEIGHT = "weight"
    BIAS = "bias"
    NORM = "norm"  # weight and bias of a normalisation


class Axis(NamedTuple):
    """The modules of one kind (with equal shapes) in a list of modules: layers or experts."""

    module: str  # the pattern of their names: "encoder.layer.*"
    size: int  # the number of modules of this kind
    of: int  # the number of modules in the list, of all kinds
    kind: int = 0  # the index of the kind in a list of several kinds
    places: tuple[int, ...] | None = None  # the indices of this kind in the list; None means all
    active: int | None = None  # the number of experts that one token uses


class FoldedTensor(Struct, frozen=True, kw_only=True, dict=True):
    """A cell: tensors of one shape and one name, except for the numbers of layers or experts."""

    name: str  # "encoder.layer.*.output.dense.weight"
    shape: tuple[int, ...]  # of one tensor
    elements: int  # of one tensor; of one expert if a tensor contains all experts
    axes: tuple[Axis, ...] = ()  # the lists around it, the outermost first
    role: Role = Role.PARAMETER
    kind: CellKind = CellKind.WEIGHT
    embedding: bool = False
    is_frozen: bool = False  # not trained, such as sinusoids
    tied_to: str | None = None  # the name of a cell
    heads: int | None = None  # the number of attention heads of a projection

    @cached_property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @cached_property
    def optional(self) -> bool:
        """Whether the cell is counted only with a mask: a buffer, a tied copy, an unused module."""
        return self.role is not Role.PARAMETER

    @cached_property
    def _counts(self) -> dict[int, int]:
        return {}

    def count(self, mask: int = 0) -> int:
        """Return the number of parameters that a count with this mask includes for the cell."""
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
    """Return the number of parameters in the cells: tied tensors once, buffers never."""
    return sum(cell.count() for cell in cells)


# --- cells of a closed form ---------------------------------------------------------------------


def cells_of_tree(tree: Module, heads: Mapping[str, int] | None = None) -> tuple[FoldedTensor, ...]:
    """Return the cells of a tree; `heads` maps "q" and "kv" to their numbers of attention heads."""
    return _with_ties(_cells(tree, "", (), ""), heads or {})


def _cells(block: Block, name: str, axes: tuple[Axis, ...], within: str) -> list[FoldedTensor]:
    """Return the cells below a block; its ties are relative to the name `within`."""
    cells: list[FoldedTensor] = []
    _collect(cells, block, name, axes, within)
    return cells


def _collect(  # noqa: C901, PLR0912 - one for each kind of block
    cells: list[FoldedTensor], block: Block, name: str, axes: tuple[Axis, ...], within: str
) -> None:
    """Append the cells below a block to a list; generators would take twice the time."""
    match block:
        case Param(shape, layer=layer, is_frozen=is_frozen):
            embedding = layer is Layer.EMBEDDING
            cell = _leaf(name, shape, axes, Role.PARAMETER, embedding=embedding)
            cells.append(changed(cell, is_frozen=True) if is_frozen else cell)
        case Module(children):
            for key, child in children:
                _collect(cells, child, f"{name}.{key}" if name else key, axes, within)
        case Buffer(shape):
            cells.append(_leaf(name, shape, axes, Role.BUFFER))
        case Legacy(shape):
            cells.append(_leaf(name, shape, axes, Role.LEGACY))
        case Tied(to):
            source = re.sub(r"(?<=\.)\d+(?=\.)", "*", f"{within}{to}")
            cells.append(
                FoldedTensor(
                    name=name, shape=(), elements=0, axes=axes, role=Role.TIED, tied_to=source
                )
            )
        case Extra(body):
            for cell in _cells(body, name, axes, within):
                role = Role.EXTRA if cell.role.learned else Role.LEGACY
                cells.append(changed(cell, role=role))
        case Submodel(body):
            _collect(cells, body, name, axes, f"{name}." if name else "")
        case Experts(body, count, active):
            cells += _experts(body, name, axes, within, (count.value, active.value))
        case Repeat(count, body):
            if count.value > 0:
                below = f"{name}.*" if name else "*"
                axis = Axis(below, count.value, count.value)
                _collect(cells, body, below, (*axes, axis), within)
        case Stack(_, layers):
            cells += _stack(layers, name, axes, within)


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
    """Return a copy of the cell with other values of some fields."""
    return replace(cell, **fields)


_PROJECTION = re.compile(r"(^|_)(q|k|v|query|key|value)(_|$|proj|lin)", re.IGNORECASE)


def _with_ties(cells: list[FoldedTensor], heads: Mapping[str, int]) -> tuple[FoldedTensor, ...]:
    """Give each tied cell the shape of its original, and each projection its number of heads.

    A tied cell without an original is left out.
    """
    by_name: dict[str, FoldedTensor] = {}
    for cell in cells:
        by_name.setdefault(cell.name, cell)
    completed = []
    for cell in cells:
        if cell.tied_to is not None:
            source = by_name.get(cell.tied_to)
            if source is not None:
                sizes = source.shape
                completed.append(changed(cell, shape=sizes, elements=prod(sizes), kind=source.kind))
            continue
        number = heads.get(_head_key(cell), 0) if heads else 0
        if number > 1 and cell.elements % number == 0 and cell.kind is not CellKind.NORM:
            completed.append(changed(cell, heads=number))
        else:
            completed.append(cell)
    return tuple(completed)


def _head_key(cell: FoldedTensor) -> str:
    last = cell.module.rpartition(".")[2]
    match = _PROJECTION.search(last)
    if not match or not cell.axes:
        return ""
    return "q" if match[2].lower().startswith("q") else "kv"


_NORM = re.compile(r"(^|[._])(ln|bn|gn)(_|\d|$)|norm|layrnorm", re.IGNORECASE)
_BIAS = re.compile(r"(^|_)bias$|^b$")


def kind_of(name: str, shape: tuple[int, ...]) -> CellKind:
    """Return the kind of a tensor (norm, bias or weight), judged by its name and shape."""
    return _kind_by_name(name, len(shape))


@lru_cache(maxsize=MOST_NAMES)
def _kind_by_name(name: str, dimensions: int) -> CellKind:
    module, _, leaf = name.rpartition(".")
    last = module.rpartition(".")[2]
    if dimensions <= 1 and (_NORM.search(last) or _NORM.search(leaf)):
        return CellKind.NORM
    return CellKind.BIAS if _BIAS.search(leaf) else CellKind.WEIGHT


# --- cells of listed tensors --------------------------------------------------------------------


def cells_of_tensors(tensors: Iterable[ExpectedTensor]) -> tuple[FoldedTensor, ...]:
    """Return the cells of tensors; tensors whose names differ only in numbers are one cell."""
    alike: dict[tuple[str, tuple[int, ...], Role], list[ExpectedTensor]] = {}
    for tensor in tensors:
        pattern = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", tensor.name)
        alike.setdefault((pattern, tensor.shape, tensor.role), []).append(tensor)
    cells = []
    for (pattern, shape, role), equal in alike.items():
        cell = _sized(pattern, shape, _axes(pattern, equal), role, embedding=False)
        tied = next((one.tied_to for one in equal if one.tied_to), None)
        to = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", tied) if tied else None
        cells.append(changed(cell, tied_to=to))
    return tuple(cells)


def _axes(pattern: str, alike: list[ExpectedTensor]) -> tuple[Axis, ...]:
    """Return an axis for each number in the names; one axis if some combinations are missing."""
    if "*" not in pattern:
        return ()
    places = [place for place, part in enumerate(pattern.split(".")) if part == "*"]
    parts = [tensor.name.split(".") for tensor in alike]
    numbers = [len({name[place] for name in parts}) for place in places]
    modules = [".".join(pattern.split(".")[: place + 1]) for place in places]
    if prod(numbers) != len(alike):
        return (Axis(modules[0], len(alike), len(alike)),)
    return tuple(Axis(name, n, n) for name, n in zip(modules, numbers, strict=True))
