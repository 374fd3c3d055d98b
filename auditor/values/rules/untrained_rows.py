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
_BEGINNING = 8  # bytes of a row
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
            yield MeanRows(
                tensors=(tensor,),
                rows=tuple(means),
                reason=f"{_rows_text(means)} are the mean of the other rows, as "
                "resize_token_embeddings leaves them, expected trained rows",
            )
        if not tokens.row_count:
            continue
        zero, equal = _rows(evidence, name)
        padding = tokens.padding | _padding_of(evidence)
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


def _rows_text(rows: list[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    return f"{len(rows):,} rows ({_shown(rows)})"


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
    placed = evidence.placed[name]
    form = FORMATS.get(placed.dtype or "")
    if form is None or not form.is_float or form.per_unit != 1:
        return None
    size = form.unit * (placed.tensor.shape or (0, 0))[1]
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


def _padding_of(evidence: Evidence) -> frozenset[int]:
    ids = (config.get("pad_token_id") for config in evidence.configs)
    return frozenset(token for token in ids if type(token) is int)


def _rows(evidence: Evidence, name: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return the rows that are zero, and the other rows that are equal to another row.

    Eight bytes of each row stay in memory; rows with equal beginnings are compared completely.
    """
    placed = evidence.placed[name]
    form = FORMATS.get(placed.tensor.dtype or "")
    count = (placed.tensor.shape or (0,))[0]
    size = placed.span.length // count if count else 0
    if form is None or not size or size % form.unit:
        return frozenset(), frozenset()
    beginnings = np.zeros((count, _BEGINNING), np.uint8)
    is_read, is_zero = np.zeros(count, bool), np.zeros(count, bool)
    for first, last in _steps(evidence, name, size):
        data = evidence.read(name, Span(first * size, last * size))
        if data is None:
            continue
        rows = data.reshape(last - first, size)
        beginnings[first:last, : min(size, _BEGINNING)] = rows[:, :_BEGINNING]
        is_read[first:last] = True
        is_zero[first:last] = ~form.decode(data).reshape(last - first, -1).any(axis=1)
    groups: dict[int, list[int]] = {}
    words = beginnings.view(np.uint64)[:, 0]
    _, kinds, counts = np.unique(words, return_inverse=True, return_counts=True)
    for row in np.flatnonzero((counts[kinds] > 1) & is_read & ~is_zero).tolist():
        groups.setdefault(int(kinds[row]), []).append(row)
    equal = (row for rows in groups.values() for row in _equal_rows(evidence, name, size, rows))
    return frozenset(np.flatnonzero(is_zero).tolist()), frozenset(equal)


def _steps(evidence: Evidence, name: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield (first row, stop) of each block of rows to read; a row has `size` bytes."""
    step = max(1, _SLICE // size)
    for run in evidence.runs(name, size):
        for first in range(run.start // size, run.stop // size, step):
            yield first, min(run.stop // size, first + step)


def _equal_rows(evidence: Evidence, name: str, size: int, rows: list[int]) -> Iterator[int]:
    """Yield the row numbers in `rows` whose bytes equal another row's; numbers may repeat."""
    first_by_digest: dict[bytes, int] = {}
    for row in rows:
        data = evidence.read(name, Span(row * size, (row + 1) * size))
        if data is not None:
            other = first_by_digest.setdefault(blake2b(data.data, digest_size=16).digest(), row)
            if other != row:
                yield from (other, row)
