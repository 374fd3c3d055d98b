"""Cells: the tensors of a model with equal layers folded into one.

`encoder.layer.*.attention.self.query.weight` of BERT is one cell: 589,824 parameters, twelve times.
A count by hand is wrong if it counts a cell too few times, too many times or not at all. A mask (a
set of bits) says how often each cell was counted.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import ExpectedTensor, Role
from auditor.analytic.blocks import Layer, Module, Param, Tied, TreeTensor, sizes_of_shape, walk

# The bits of a mask. Each lower bit i means: count only one module of the list `axes[i]`.
LEFT_OUT = 1 << 8
COUNTED = 1 << 9  # count a cell that the true count leaves out
ACTIVE = 1 << 10  # count only the experts that one token uses
ONE_HEAD = 1 << 11  # count one attention head instead of all


MOST_NAMES = 4096  # names of cells in a cache; a mixture of two towers has 300
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_PROJECTION = re.compile(r"(^|_)(q|k|v|query|key|value)(_|$|proj|lin)", re.IGNORECASE)
_NORM = re.compile(r"(^|[._])(ln|bn|gn)(_|\d|$)|norm|layrnorm", re.IGNORECASE)
_BIAS = re.compile(r"(^|_)bias$|^b$")


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
    embedding: bool = False
    is_frozen: bool = False  # not trained, such as sinusoids
    tied_to: str | None = None  # the name of a cell
    heads: int | None = None  # the number of attention heads of a projection

    @cached_property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @cached_property
    def kind(self) -> CellKind:
        return _kind_of(self.name, len(self.shape))

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
    """Return the cells of a tree; `heads` maps "q" and "kv" to their numbers of attention heads.

    A tied cell gets the shape of its original; without an original it is left out.
    """
    tensors = (one for one in walk(tree) if all(axis.modules.value > 0 for axis in one.axes))
    cells = [_cell_of(tensor) for tensor in tensors]
    by_name = {cell.name: cell for cell in reversed(cells)}
    completed = []
    for cell in cells:
        if cell.tied_to is not None:
            source = by_name.get(cell.tied_to)
            if source is not None:
                sizes = source.shape
                completed.append(replace(cell, shape=sizes, elements=prod(sizes)))
            continue
        number = _head_count(cell, heads) if heads else 0
        completed.append(replace(cell, heads=number) if number > 1 else cell)
    return tuple(completed)


def _head_count(cell: FoldedTensor, heads: Mapping[str, int]) -> int:
    """Return the number of attention heads of a projection; 0 for other cells."""
    match = _PROJECTION.search(cell.module.rpartition(".")[2])
    if not match or not cell.axes or cell.kind is CellKind.NORM:
        return 0
    number = heads.get("q" if match[2].lower().startswith("q") else "kv", 0)
    return 0 if not number or cell.elements % number else number


def _cell_of(tensor: TreeTensor) -> FoldedTensor:
    block = tensor.block
    sizes = (0,) if isinstance(block, Tied) else sizes_of_shape(block.shape)
    elements, axes = prod(sizes), list[Axis]()
    for name, dims, places, kind, uses in tensor.axes:
        count = dims.value
        active = None if uses is None else min(uses.value, count)
        if places is not None:
            modules, is_whole = f"{name}.*" if name else "*", isinstance(places, range)
            size, here = (count, None) if is_whole else (len(places), tuple(places))
            axes.append(Axis(modules, size, count, kind, here, active))
        elif elements % count == 0:  # all experts in one tensor
            axes.append(Axis(name, count, count, active=active))
            elements //= count
    tied_to = f"{tensor.submodel}{block.to}" if isinstance(block, Tied) else None
    return FoldedTensor(
        name=tensor.name,
        shape=sizes,
        elements=elements,
        axes=tuple(axes),
        role=tensor.role,
        embedding=isinstance(block, Param) and block.layer is Layer.EMBEDDING,
        is_frozen=isinstance(block, Param) and block.is_frozen,
        tied_to=tied_to and _NUMBER.sub("*", tied_to),
    )


def _cell(name: str, sizes: tuple[int, ...], axes: tuple[Axis, ...], role: Role) -> FoldedTensor:
    return FoldedTensor(name=name, shape=sizes, elements=prod(sizes), axes=axes, role=role)


@lru_cache(maxsize=MOST_NAMES)
def _kind_of(name: str, dimensions: int) -> CellKind:
    """Return the kind of a tensor (norm, bias or weight), judged by its name and shape."""
    module, _, leaf = name.rpartition(".")
    last = module.rpartition(".")[2]
    if dimensions <= 1 and (_NORM.search(last) or _NORM.search(leaf)):
        return CellKind.NORM
    return CellKind.BIAS if _BIAS.search(leaf) else CellKind.WEIGHT


# --- cells of listed tensors --------------------------------------------------------------------


def cells_of_tensors(tensors: Iterable[ExpectedTensor]) -> tuple[FoldedTensor, ...]:
    """Return the cells of tensors; tensors whose names differ only in numbers are one cell."""
    groups: dict[tuple[str, tuple[int, ...], Role], list[ExpectedTensor]] = {}
    for tensor in tensors:
        key = (_NUMBER.sub("*", tensor.name), tensor.shape, tensor.role)
        groups.setdefault(key, []).append(tensor)
    cells = []
    for (pattern, shape, role), equal in groups.items():
        tied_to = next((one.tied_to for one in equal if one.tied_to), None)
        cell = _cell(pattern, shape, _axes(pattern, equal), role)
        cells.append(replace(cell, tied_to=_NUMBER.sub("*", tied_to)) if tied_to else cell)
    return tuple(cells)


def _axes(pattern: str, equal: list[ExpectedTensor]) -> tuple[Axis, ...]:
    """Return an axis for each number in the names; one axis if some combinations are missing."""
    parts = pattern.split(".")
    places = [place for place, part in enumerate(parts) if part == "*"]
    names = [tensor.name.split(".") for tensor in equal]
    numbers = [len({name[place] for name in names}) for place in places]
    modules = [".".join(parts[: place + 1]) for place in places]
    if places and prod(numbers) != len(equal):
        return (Axis(modules[0], len(equal), len(equal)),)
    return tuple(Axis(name, n, n) for name, n in zip(modules, numbers, strict=True))
