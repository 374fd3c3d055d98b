"""Sample the numbers of two checkpoints, unpacked, and measure how far they are apart.

Of each tensor up to 256 rows, spread evenly, and their first 256 columns are read. A matrix of rank
r has no block of a larger rank, so that the rank of the differences shows a merged adapter.
"""

from math import isfinite, sqrt

import numpy as np
from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot
from auditor.comparing import BytesCompared, NumbersCompared, Side, renaming
from auditor.messages import listed
from auditor.values.tensor_bytes import first_by_name, opened, place_tensors
from auditor.values.unpacked import (
    Block,
    Numbers,
    UnpackedNumbers,
    llama_cpp_rows,
    matrix_sides,
)

_MOST = 256  # rows and columns of a sample
_UNIT = 32  # packed layouts cut columns at multiples of a word or a block
# The differences beyond a rank may have at most this many times the energy of B's rounding errors:
# a sum of uniform errors varies little, and A is rounded too.
_ROUNDING = 3.0
_DENSE = 0.9  # least share of changed rows, below which few rows explain a low rank
_MANTISSAS = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7}


def sample_distances(
    before: Snapshot, after: Snapshot, first: Side, second: Side, stored: BytesCompared
) -> tuple[tuple[NumbersCompared, ...], tuple[str, ...]]:
    """Return the distance of each tensor that was sampled, and sentences about the others.

    Tensors with equal bytes are not read again. Raise SourceError if a file cannot be read.
    """
    equal = frozenset(stored.equal)
    if equal.issuperset(first.stored):
        return (), ()
    if before.folder is None or after.folder is None:
        return (), ("the numbers of models that are not both on this machine",)
    placed, other_placed = place_tensors(before)[0], place_tensors(after)[0]
    renamed = renaming(first, second)
    numbers: list[NumbersCompared] = []
    unread: list[str] = []
    with opened(placed) as data, opened(other_placed) as other_data:
        one = UnpackedNumbers(side=first, placed=first_by_name(placed), data=data)
        other = UnpackedNumbers(side=second, placed=first_by_name(other_placed), data=other_data)
        for name in first.tensors:
            other_tensor = second.tensors.get(renamed(name))
            if name in equal or other_tensor is None:
                continue
            if other_tensor.shape != first.tensors[name].shape:
                continue
            with np.errstate(all="ignore"):  # numbers that are too large are not finite
                distance = _distance(name, renamed(name), one, other)
            if distance is None:
                unread.append(name)
            else:
                numbers.append(distance)
    which = f"{len(unread):,} tensors: {listed(unread)}"
    reason = f"the numbers of {which}; their packing or shapes allow no comparison"
    return tuple(numbers), (reason,) if unread else ()


def _distance(
    name: str, other_name: str, first: UnpackedNumbers, second: UnpackedNumbers
) -> NumbersCompared | None:
    """Return the distance of samples of one tensor in two models; None if it cannot be measured.

    If a side may have llama.cpp's order of rows, the smallest distance over the orders is returned.
    """
    tensor, other_tensor = first.side.tensors[name], second.side.tensors[other_name]
    shape = tensor.shape
    if shape is None or shape != other_tensor.shape or not all(shape):
        return None
    rows, columns = matrix_sides(shape)
    picked = tuple(dict.fromkeys(int(row) for row in np.linspace(0, rows - 1, min(rows, _MOST))))
    most = min(columns, _MOST)
    block = Block(rows=picked, columns=most // _UNIT * _UNIT or most)
    one, other_one = _numbers(first, name, shape, block)
    two, other_two = _numbers(second, other_name, shape, block)
    pairs = [(one, two), (other_one, two), (one, other_two)]
    distances = [_measured(name, *pair, other_tensor.dtype) for pair in pairs]
    known = [distance for distance in distances if distance is not None]
    return min(known, key=lambda distance: distance.relative, default=None)


def _numbers(
    side: UnpackedNumbers, name: str, shape: tuple[int, ...], block: Block
) -> tuple[Numbers | None, Numbers | None]:
    """Return the block, and the block in the order of llama.cpp if that is another one."""
    numbers = side.block(name, shape, block)
    rows = llama_cpp_rows(side.side, name, shape, block.rows)
    if numbers is None or rows == list(block.rows):
        return numbers, None
    return numbers, side.block(name, shape, replace(block, rows=tuple(rows)))


def _measured(
    name: str, first: Numbers | None, second: Numbers | None, dtype: str | None
) -> NumbersCompared | None:
    """Return the distance of two blocks; None if one is unknown or not finite."""
    if first is None or second is None or first.shape != second.shape:
        return None
    one, two = first.astype(np.float64), second.astype(np.float64)
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        return None
    differences = two - one
    energy, own = float((differences**2).sum()), float((one**2).sum())
    if not (isfinite(energy) and isfinite(own)):
        return None
    relative = sqrt(energy / own) if own else float(energy > 0)
    rank, full_rank = None, min(one.shape)
    changed_rows = int(differences.any(axis=1).sum())  # an adapter changes nearly all
    if full_rank > 1 and changed_rows >= _DENSE * len(one) and dtype in _MANTISSAS:
        largest = np.maximum(np.maximum(np.abs(one), np.abs(two)), np.abs(differences))
        rank = _rank(differences, largest, _MANTISSAS[dtype])
    return NumbersCompared(
        name=name,
        numbers=one.size,
        relative=relative,
        largest=float(np.abs(differences).max()),
        rank=rank,
        full_rank=None if rank is None else full_rank,
    )


def _rank(differences: Numbers, largest: Numbers, mantissa: int) -> int:
    """Return the least rank whose remainder is not larger than the rounding of these numbers."""
    exponents = np.floor(np.log2(np.maximum(largest, 2.0**-126)))
    rounding = float(((2.0 ** (exponents - mantissa)) ** 2 / 12).sum()) * _ROUNDING
    energies = np.linalg.svd(differences, compute_uv=False) ** 2
    beyond = np.append(np.cumsum(energies[::-1])[::-1], 0.0)
    return int(np.argmax(beyond <= rounding))
