"""Statistics of a small sample that is spread over a tensor; most rules decide from them.

Eight pieces of 1 KiB cost 8 KiB a tensor and show which tensors are suspicious. A rule reads a
tensor again only if its profile is suspicious.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from auditor.tensors import Span
from auditor.values.number_formats import Bytes, NumberFormat

_PIECES = 8
_PIECE = 1024  # bytes
_LOW_HALF = 0xFFFF


class Profile(Struct, frozen=True, kw_only=True):
    """Statistics of the finite numbers in a sample of one tensor."""

    numbers: int
    nonzero: int
    subnormal: int  # nonzero numbers below the smallest normal number of the dtype
    padded: int  # nonzero F32 numbers whose lower 16 bits are zero
    spread: float  # the standard deviation of log2 |x| over the nonzero numbers, in binades
    normal_spread: float  # likewise, without subnormal numbers
    large: float  # the magnitude that 90 % of the nonzero numbers do not exceed
    varied: bool  # whether two numbers differ


def spread_pieces(runs: Sequence[Span], unit: int) -> tuple[Span, ...]:
    """Return eight spans of 1 KiB, spread evenly over the runs; all runs if they are that small."""
    total = sum(run.length for run in runs)
    if total <= _PIECES * _PIECE:
        return tuple(runs)
    size = _PIECE // unit * unit
    spans: list[Span] = []
    for at in range(_PIECES):
        offset = at * (total - size) // (_PIECES - 1) // unit * unit
        for run in runs:
            if offset < run.length:
                start = run.start + offset
                spans.append(Span(start, min(start + size, run.stop)))
                break
            offset -= run.length
    return tuple(spans)


def profile_of(form: NumberFormat, data: Bytes) -> Profile:
    """Return the profile of a float format's numbers."""
    numbers = form.decode(data)
    magnitudes = np.abs(numbers)
    is_nonzero = (magnitudes > 0) & (magnitudes < np.inf)
    nonzero = magnitudes[is_nonzero]
    least = least_normal(form)
    is_normal = nonzero >= least
    subnormal = len(nonzero) - int(np.count_nonzero(is_normal))
    logs = np.log2(nonzero, dtype=np.float64 if nonzero.dtype == np.float64 else np.float32)
    spread = float(logs.std()) if len(logs) else 0.0
    padded = 0
    if form.number == np.float32:
        padded = int(np.count_nonzero((data.view(form.word) & _LOW_HALF == 0) & is_nonzero))
    at = len(nonzero) * 9 // 10
    return Profile(
        numbers=int(np.count_nonzero(magnitudes < np.inf)),
        nonzero=len(nonzero),
        subnormal=subnormal,
        padded=padded,
        spread=spread,
        normal_spread=log_spread(nonzero[is_normal]) if subnormal else spread,
        large=float(np.partition(nonzero, at)[at]) if len(nonzero) else 0.0,
        varied=bool(len(numbers) and (numbers != numbers[0]).any()),
    )


def peak(numbers: np.ndarray) -> float:
    """Return the largest magnitude of the finite numbers as a multiple of their root mean square.

    Return 0 if all are zero.
    """
    squares = np.square(numbers[np.isfinite(numbers)].astype(np.float64))
    mean = float(squares.mean()) if len(squares) else 0.0
    return float(np.sqrt(squares.max() / mean)) if mean else 0.0


def log_spread(numbers: np.ndarray) -> float:
    """Return the standard deviation of log2 |x| over the nonzero finite numbers; 0 without any."""
    magnitudes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)].astype(np.float64))
    return float(np.log2(magnitudes).std()) if len(magnitudes) else 0.0


def least_normal(form: NumberFormat) -> float:
    """Return the smallest normal number of an IEEE format; 0 for the formats of 8 bits or less."""
    if form.table is not None or form.number is None:
        return 0.0 if form.table is not None else 2.0**-126  # BF16
    return float(np.finfo(form.number).smallest_normal)
