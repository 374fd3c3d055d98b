"""Tally: how much lies below a module prefix, in a dtype or in a file."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from auditor.layouts import is_float
from auditor.tensors import DTYPE_BITS, StoredTensor

MAX_DEPTH = 64  # a hostile name of 50,000 dots would ask for 50,000 prefixes; real ones have ten


class Counted(NamedTuple):
    """A stored tensor and how many parameters it counts for: 0 for a buffer or a second copy."""

    tensor: StoredTensor
    parameters: int
    fate: int = 0  # bits that the walker only gathers; the reconciler gives them their meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Sums over a set of stored tensors."""

    tensors: int = 0
    elements: int = 0
    parameters: int = 0
    trainable: int = 0  # parameters of a dtype that a gradient can flow into
    bytes: int = 0  # of tensor data
    fates: int = 0  # the or-ed bits of all tensors


class _Cell(NamedTuple):
    """What is the same for all tensors that are summed up in one place."""

    prefix: str
    dtype: str | None  # None: only an index names them
    file: str


_Sums = list[int]  # tensors, elements, parameters, fates, bytes of odd dtypes; of one cell
_Totals = list[int]  # tensors, elements, parameters, trainable, bits, fates; of many cells


@dataclass(frozen=True, kw_only=True)
class Walk:
    """One pass over all stored tensors, from which every tally is added up."""

    cells: Mapping[_Cell, _Sums]

    @property
    def total(self) -> Tally:
        return self._grouped(lambda _: "").get("", Tally())

    def by_dtype(self) -> Mapping[str, Tally]:
        """Sorted by dtype of the safetensors format; tensors without a header are left out."""
        tallies = self._grouped(lambda cell: cell.dtype or "")
        return {dtype: tally for dtype, tally in tallies.items() if dtype}

    def by_file(self) -> Mapping[str, Tally]:
        """Sorted by name of the weight file."""
        return self._grouped(lambda cell: cell.file)

    def by_prefix(self) -> Mapping[str, Tally]:
        """Every module prefix down to the depth of the walk, the root "" among them.

        `bert.pooler.dense.weight` counts for "", `bert`, `bert.pooler` and `bert.pooler.dense`.
        """
        sums: dict[str, _Totals] = {"": [0] * 6}
        self._add_up(sums, lambda cell: cell.prefix)
        return {prefix: _tally(found) for prefix, found in _rolled_up(sums).items()}

    def _grouped(self, key: Callable[[_Cell], str]) -> Mapping[str, Tally]:
        sums: dict[str, _Totals] = {}
        self._add_up(sums, key)
        return {name: _tally(sums[name]) for name in sorted(sums)}

    def _add_up(self, sums: dict[str, _Totals], key: Callable[[_Cell], str]) -> None:
        for cell, (tensors, elements, parameters, fates, odd) in self.cells.items():
            dtype = cell.dtype or ""
            trainable = parameters if is_float(dtype) else 0
            bits = elements * DTYPE_BITS.get(dtype, 0) + 8 * odd
            more = [tensors, elements, parameters, trainable, bits, fates]
            name = key(cell)
            if name in sums:
                _merge(sums[name], more)
            else:
                sums[name] = more


def walk(items: Iterable[tuple[StoredTensor, int, int]], *, depth: int | None = None) -> Walk:
    """Sum up the tensors, by prefixes no deeper than `depth` (None: as deep as they go).

    The items are those of `Counted`. Neighbours mostly share their cell: ninety thousand tensors
    take 50 ms.
    """
    limit = MAX_DEPTH if depth is None else min(depth, MAX_DEPTH)
    cells: dict[_Cell, _Sums] = {}
    below, last_dtype, last_file = "\0", None, None  # what the last tensor's cell begins with
    sums: _Sums = []
    odd = False
    for tensor, parameters, fate in items:
        name, dtype, _, elements, file, span = tensor
        if not name.startswith(below) or dtype != last_dtype or file != last_file:
            prefix = cut(parent(name), limit)
            sums = cells.setdefault(_Cell(prefix, dtype, file), [0, 0, 0, 0, 0])
            # All that is below a prefix as deep as the walk goes is cut off there.
            deep = prefix and prefix.count(".") + 1 == limit
            below, last_dtype, last_file = f"{prefix}." if deep else "\0", dtype, file
            odd = dtype is not None and dtype not in DTYPE_BITS
        sums[0] += 1
        sums[1] += elements or 0
        sums[2] += parameters
        sums[3] |= fate
        if odd and span is not None:  # 32 numbers of Q4_0 take 18 bytes
            sums[4] += span.length
    return Walk(cells=cells)


def parent(prefix: str) -> str:
    """The prefix one level up: `bert.encoder` -> `bert` -> "", the root."""
    return prefix.rpartition(".")[0]


def cut(prefix: str, depth: int) -> str:
    """The first `depth` parts of a prefix."""
    return ".".join(prefix.split(".", depth)[:depth]) if prefix.count(".") >= depth else prefix


def _rolled_up(sums: dict[str, _Totals]) -> dict[str, _Totals]:
    """Each prefix with all that lies below it: deepest first, each is added to its parent once."""
    levels: dict[int, list[str]] = {}
    for prefix in sums:
        if prefix:
            levels.setdefault(prefix.count(".") + 1, []).append(prefix)
    for level in range(max(levels, default=0), 0, -1):
        for prefix in levels.get(level, ()):
            above = parent(prefix)
            if above not in sums:
                sums[above] = [0] * 6
                levels.setdefault(level - 1, []).append(above)
            _merge(sums[above], sums[prefix])
    return sums


def _merge(into: _Totals, more: _Totals) -> None:
    for at in range(5):
        into[at] += more[at]
    into[5] |= more[5]


def _tally(sums: _Totals) -> Tally:
    tensors, elements, parameters, trainable, bits, fates = sums
    return Tally(
        tensors=tensors,
        elements=elements,
        parameters=parameters,
        trainable=trainable,
        bytes=bits // 8,
        fates=fates,
    )
