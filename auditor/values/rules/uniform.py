"""Matrices that do not vary where trained ones do: constants, equal rows, blocks of zeros.

Zero rows and columns are counted in runs of channels along each axis: a dead channel of a kernel
is a run of several columns. A finding needs long runs: dead channels are scattered.
"""

import math
import re
from collections.abc import Collection, Iterator

import numpy as np

from auditor.findings import ConstantMatrix, PartZero, by_name
from auditor.tensors import StoredTensor
from auditor.values.evidence import Evidence, holds_floats, is_matrix
from auditor.values.name_patterns import EMBEDDING, HEAD, MAY_BE_ZERO, NORM
from auditor.values.number_formats import BLOCKS, FORMATS
from auditor.values.rules import limits
from auditor.values.rules.broken import is_scale
from auditor.values.tokens import Tokens

_STATES = re.compile(r"(?:^|[._])A_logs?$")  # Mamba's rows begin as log(1), log(2), ...


def _candidates(evidence: Evidence) -> Iterator[str]:
    """Yield trained matrices: float, not buffers or scales, and never initialized to zero."""
    if evidence.is_adapter:
        return
    for name in evidence.values:
        tensor = evidence.tensor(name)
        if (
            is_matrix(tensor)
            and holds_floats(tensor)
            and name not in evidence.buffers
            and name not in evidence.quantization_data
            and not (MAY_BE_ZERO.search(name) or NORM.search(name) or _STATES.search(name))
            and not is_scale(evidence, name)
            and evidence.values[name].nonzero
        ):
            yield name


def _is_wide(tensor: StoredTensor) -> bool:
    """Return whether two sides are long, and it is not a stack of kernels of one channel."""
    shape = tensor.shape or ()
    return sum(side >= limits.LEAST_SIDE for side in shape) > 1 and shape[1] > 1


def _width(tensor: StoredTensor) -> int:
    """Return the numbers in a row: a kernel's or a matrix's input side, one expert's columns."""
    shape = tensor.shape or (1,)
    is_stack = len(shape) == 3 and min(shape[1:]) >= limits.LEAST_SIDE  # noqa: PLR2004
    return shape[-1] if is_stack else math.prod(shape[1:])


def constant_matrices(evidence: Evidence) -> Iterator[ConstantMatrix]:
    """Yield a finding of the matrices with one number, and one of those with one row."""
    constant, equal = [], []
    for name in _candidates(evidence):
        tensor = evidence.tensor(name)
        profile = evidence.profile(name)
        if not _is_wide(tensor) or profile is None or profile.numbers < limits.LEAST_UNIFORM:
            continue
        if not profile.varied and _is_repeated(evidence, name, 1):
            constant.append(name)
        elif profile.varied and evidence.values[name].is_complete:
            width = _width(tensor)
            rows = evidence.values[name].numbers // width
            if rows >= limits.LEAST_EQUAL_ROWS and _is_repeated(evidence, name, width):
                equal.append(name)
    for names, what, expected in (
        (constant, "one number, repeated", "numbers that differ"),
        (equal, "one row, repeated", "rows that differ"),
    ):
        if names:
            yield ConstantMatrix(
                tensors=by_name(map(evidence.tensor, names)),
                reason=f"each matrix is {what}, expected {expected}",
            )


def _is_repeated(evidence: Evidence, name: str, width: int) -> bool:
    """Return whether all rows that were read are equal; stop at the first row that differs."""
    start = evidence.sample(name)  # of most matrices, it shows two rows that differ
    if start is not None and (start[width:][:width] != start[:-width][:width]).any():
        return False
    first = None
    for block in evidence.rows(name, width):
        first = block[0].copy() if first is None else first
        if not (block == first).all():
            return False
    return first is not None


def part_zero(evidence: Evidence, tokens: Tokens) -> Iterator[PartZero]:
    """Yield a finding of matrices with a block of zero rows or columns, and one of scales."""
    shares: dict[str, float] = {}
    for name in _candidates(evidence):
        profile = evidence.profile(name)
        if profile is None or not evidence.values[name].is_complete:
            continue
        if profile.nonzero > (1 - limits.SUSPICIOUS_ZEROS) * profile.numbers:
            continue
        has_tokens = bool(EMBEDDING.search(name) and tokens.row_count)
        share = _zero_share(evidence, name, columns_only=has_tokens)  # untrained_rows judges rows
        if limits.ZERO_SHARE <= share < 1:
            shares[name] = share
    if shares:
        yield PartZero(
            tensors=by_name(map(evidence.tensor, shares)),
            reason=f"blocks of rows or columns are zero, {_between(shares.values())} of each "
            "matrix, expected numbers that are not zero",
        )
    scales = {name: share for name in evidence.values if (share := _zero_scales(evidence, name))}
    if scales:
        yield PartZero(
            tensors=by_name(map(evidence.tensor, scales)),
            reason=f"{_between(scales.values())} of the scales are zero, expected scales that are "
            "not zero: the packed numbers below them are lost",
        )


def _between(shares: Collection[float]) -> str:
    low, high = min(shares), max(shares)
    return f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"


def _zero_share(evidence: Evidence, name: str, *, columns_only: bool) -> float:
    """Return the share of rows, or of columns, that are zero and lie in long runs; else 0."""
    width = _width(evidence.tensor(name))
    zero_rows = []
    zero_columns = np.ones(width, bool)
    for block in evidence.rows(name, width):
        zero_rows.append(~block.any(axis=1))
        zero_columns &= ~block.any(axis=0)
    if not zero_rows:
        return 0.0
    rows = np.concatenate(zero_rows)
    if EMBEDDING.search(name) or HEAD.search(name):  # rows without a token pad the end
        rows[np.flatnonzero(~rows)[-1] + 1 :] = False
    of_rows = 0.0 if columns_only else _share_in_runs(rows)
    inner = (evidence.tensor(name).shape or ())[1:]
    by_axis = zero_columns.reshape(inner if math.prod(inner) == width else (width,))
    axes = range(by_axis.ndim)
    others = (tuple(one for one in axes if one != axis) for axis in axes)
    return max(of_rows, *(_share_in_runs(np.asarray(by_axis.all(axis=one))) for one in others))


def _share_in_runs(is_zero: np.ndarray) -> float:
    share = float(is_zero.mean())
    runs = int(np.count_nonzero(np.diff(is_zero.astype(np.int8), prepend=0) > 0))
    if not runs or share == 1 or is_zero.sum() / runs < limits.ZERO_RUN / (1 - share):
        return 0.0
    return share


def _zero_scales(evidence: Evidence, name: str) -> float:
    """Return the share of zeros in the scales of a packed tensor if it is a fault, else 0."""
    read = evidence.values[name]
    if not read.nonzero or not read.is_complete or read.numbers < limits.LEAST_SCALES:
        return 0.0
    tensor = evidence.tensor(name)
    if tensor.dtype in BLOCKS:
        share = _zero_blocks(evidence, name, tensor.dtype or "")
    elif is_scale(evidence, name):
        profile = evidence.profile(name)
        share = 1 - profile.nonzero / profile.numbers if profile and profile.numbers else 0.0
    else:
        return 0.0
    return share if share >= limits.ZERO_SHARE else 0.0


def _zero_blocks(evidence: Evidence, name: str, dtype: str) -> float:
    """Return the share of a GGUF tensor's blocks whose first scale is zero, in a sample."""
    byte, form, size = BLOCKS[dtype].at[0], FORMATS[BLOCKS[dtype].dtype], BLOCKS[dtype].size
    blocks = evidence.spread_bytes(name, size)
    if blocks is None:
        return 0.0
    scales = np.ascontiguousarray(blocks.reshape(-1, size)[:, byte : byte + form.unit])
    return float((form.decode(scales.reshape(-1)) == 0).mean())
