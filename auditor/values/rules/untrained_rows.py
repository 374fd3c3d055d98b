"""Untrained rows of the token embedding, for tokens that the tokenizer has.

Such a row is zero, or equal to another row, bit for bit. Two rows of D trained bfloat16 numbers are
equal by chance with a probability far below 2**-D. The padding token's row is zero in sound models
(torch gives it no gradient); rows without a token pad the matrix.
"""

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from auditor.findings import MeanRows, UntrainedRows
from auditor.tensors import Span
from auditor.values.evidence import Evidence
from auditor.values.name_patterns import EMBEDDING
from auditor.values.number_formats import FORMATS
from auditor.values.rules import limits
from auditor.values.rules.broken import is_all_zero
from auditor.values.tokens import Tokens

_SHOWN = 8
_SAMPLED = 2048  # rows
_SLICE = 8 * 1024 * 1024  # bytes of rows that are read together


def untrained_rows(evidence: Evidence, tokens: Tokens) -> Iterator[UntrainedRows | MeanRows]:
    """Yield untrained rows, unless another rule reports the matrix.

    Rows that are zero or equal are reported only if a tokenizer has their tokens.
    """
    for name in evidence.values if not evidence.is_adapter else ():
        tensor = evidence.tensor(name)
        if len(tensor.shape or ()) != 2 or not EMBEDDING.search(name):  # noqa: PLR2004
            continue
        if is_all_zero(evidence, name) or evidence.values[name].nan:
            continue
        added = _mean_rows(evidence, name)
        means = sorted(row for row in added if tokens.has(row) or not tokens.row_count)
        if means:
            which = f"{len(means):,} rows ({_shown(means)})" if means[1:] else f"row {means[0]}"
            yield MeanRows(
                tensors=(tensor,),
                rows=tuple(means),
                reason=f"{which} are the mean of the other rows, as "
                "resize_token_embeddings leaves them, expected trained rows",
            )
        if not tokens.row_count:
            continue
        zero, equal = _rows(evidence, name)
        ids = (config.get("pad_token_id") for config in evidence.configs)
        padding = tokens.padding | {token for token in ids if type(token) is int}
        if not padding and len(zero) == 1:
            padding = zero  # no file declares the padding token, and a single row may be padding
        rows = sorted(row for row in (zero | equal) - padding - added if tokens.has(row))
        if rows:
            yield UntrainedRows(
                tensors=(tensor,),
                rows=tuple(rows),
                reason=f"{len(rows):,} tokens of the tokenizer have rows that are zero or equal "
                f"to another row: {_shown(rows)}{_sampled_rows_clause(evidence, name)}",
            )


def _shown(rows: list[int]) -> str:
    return ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")


def _mean_rows(evidence: Evidence, name: str) -> frozenset[int]:
    """Return the last rows of a complete matrix that are the mean of its rows, within rounding.

    The mean of all rows is also that of the rows before them. It is computed only if the last row
    is close to the mean of a sample of 2,048 rows, whose error is 1/45 of a deviation.
    """
    shape = evidence.tensor(name).shape or (0, 0)
    if not evidence.values[name].is_complete or min(shape) < limits.LEAST_OF_EMBEDDING:
        return frozenset()
    count, width = shape
    last = _row(evidence, name, count - 1)
    step = max(1, count // _SAMPLED)
    sample = [_row(evidence, name, row) for row in range(0, count, step)]
    if last is None or any(row is None for row in sample):
        return frozenset()
    rows = np.stack([row for row in sample if row is not None])
    distance = float(np.median(np.linalg.norm(rows - rows.mean(axis=0), axis=1)))
    if not distance or np.linalg.norm(last - rows.mean(axis=0)) > limits.CLOSE_ROW * distance:
        return frozenset()
    total = np.zeros(width)
    for block in evidence.rows(name, width):
        total += block.sum(axis=0, dtype=np.float64)
    means: set[int] = set()
    for row in range(count - 1, count // 2, -1):
        one = _row(evidence, name, row)
        if one is None or np.linalg.norm(one - total / count) > limits.MEAN_ROW * distance:
            break
        means.add(row)
    return frozenset(means)


def _row(evidence: Evidence, name: str, row: int) -> np.ndarray | None:
    """Return the numbers of a row; None if they were not read or are not floats."""
    form = evidence.form(name)
    if form is None or not form.is_float or form.per_unit != 1:
        return None
    size = form.unit * (evidence.tensor(name).shape or (0, 0))[1]
    data = evidence.read(name, Span(row * size, (row + 1) * size))
    return None if data is None else np.asarray(form.decode(data), np.float64)


def _sampled_rows_clause(evidence: Evidence, name: str) -> str:
    """Return a clause with the number of sampled rows; "" if all numbers were read."""
    if not evidence.sampled:
        return ""
    count = (evidence.tensor(name).shape or (0,))[0]
    size = evidence.placed[name].span.length // count
    read = sum(last - first for first, last in _steps(evidence, name, size))
    return f"; {read:,} of {count:,} rows were sampled"


def _rows(evidence: Evidence, name: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return the rows that are zero, and the other rows that are equal to another row."""
    placed = evidence.placed[name]
    form = FORMATS.get(placed.tensor.dtype or "")
    count = (placed.tensor.shape or (0,))[0]
    size = placed.span.length // count if count else 0
    zero: set[int] = set()
    equal: set[int] = set()
    if form is None or not size or size % form.unit:
        return frozenset(), frozenset()
    first_by_digest: dict[bytes, int] = {}
    for first, last in _steps(evidence, name, size):
        data = evidence.read(name, Span(first * size, last * size))
        if data is None:
            continue
        is_zero = np.asarray(~form.decode(data).reshape(last - first, -1).any(axis=1))
        for row, content in enumerate(data.reshape(last - first, size), first):
            digest = blake2b(content.data, digest_size=16).digest()
            if is_zero[row - first]:
                zero.add(row)
            elif (other := first_by_digest.setdefault(digest, row)) != row:
                equal |= {other, row}
    return frozenset(zero), frozenset(equal)


def _steps(evidence: Evidence, name: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield (first row, stop) of each block of rows to read; a row has `size` bytes."""
    step = max(1, _SLICE // size)
    for run in evidence.runs(name, size):
        for first in range(run.start // size, run.stop // size, step):
            yield first, min(run.stop // size, first + step)
