"""Magnitudes that training does not leave: outliers, subnormal numbers, a mislabeled 16-bit dtype.

BF16 has three more bits of exponent than F16. F16 bytes that are read as BF16 lend it their three
upper bits of mantissa, so one binade becomes eight. BF16 bytes that are read as F16 lose their
three lower bits of exponent, so eight binades become one. A finding also needs that the bytes, read
as the other dtype, have an ordinary spread and an ordinary largest number, that in BF16 nine tenths
of the numbers do not exceed an extraordinary magnitude, and that numbers have both signs.

Weight decay leaves subnormal numbers in whole rows or columns, those of dead channels. In a flood
they are scattered.
"""

import re
from collections.abc import Iterator

import numpy as np

from auditor.findings import MislabeledDtype, Outlier, Subnormal, by_name
from auditor.values.evidence import (
    Evidence,
    Profile,
    holds_floats,
    is_matrix,
    least_normal,
    log_spread,
    peak,
)
from auditor.values.name_patterns import MASK
from auditor.values.number_formats import FORMATS
from auditor.values.rules import limits

_CONSTANTS = re.compile(r"mask|running_(?:mean|var)|scale|inv_freq|anchor")
_OTHERS = {"F16": "BF16", "BF16": "F16"}


def outliers(evidence: Evidence) -> Iterator[Outlier]:
    """Yield a finding of tensors with a number far beyond nine tenths of the others."""
    largest: dict[str, float] = {}
    for name, read in evidence.values.items():
        if read.absmax is None or read.absmax < limits.LEAST_OUTLIER or _is_buffer(evidence, name):
            continue
        profile = evidence.profile(name)
        if profile and profile.nonzero > 1 and read.absmax > limits.OUTLIER * profile.large:
            largest[name] = read.absmax
    if largest:
        yield Outlier(
            tensors=by_name(map(evidence.tensor, largest)),
            reason=f"the largest number is {max(largest.values()):.3g}, expected less than "
            f"{limits.OUTLIER:,.0f} times the magnitude that nine tenths of a tensor do not exceed",
        )


def _is_buffer(evidence: Evidence, name: str) -> bool:
    """Return whether a tensor may have any magnitude: integers, masks, statistics and scales."""
    return (
        not holds_floats(evidence.tensor(name))
        or name in evidence.buffers
        or name in evidence.quantization_data
        or bool(MASK.search(name) or _CONSTANTS.search(name))
    )


def subnormals(evidence: Evidence) -> Iterator[Subnormal]:
    """Yield one finding for all matrices in which too many numbers are subnormal.

    F16 is not judged: its numbers below 6e-5 are subnormal, and small trained numbers lie there. In
    a vocoder's trained convolution, 12 % of the numbers are subnormal in F16.
    """
    shares: dict[str, float] = {}
    for name in evidence.values:
        tensor = evidence.tensor(name)
        if tensor.dtype == "F16" or not is_matrix(tensor) or _is_buffer(evidence, name):
            continue
        profile = evidence.profile(name)
        if profile and profile.numbers >= limits.LEAST_PROFILED and _is_flooded(profile):
            share = _scattered_share(evidence, name)
            if share >= limits.FLOOD:
                shares[name] = share
    if shares:
        yield Subnormal(
            tensors=by_name(map(evidence.tensor, shares)),
            reason=f"at least {min(shares.values()):.0%} of the numbers are subnormal, expected "
            "none beside numbers of ordinary magnitude",
        )


def _is_flooded(profile: Profile) -> bool:
    """Return whether many numbers are subnormal, and the others do not have all magnitudes."""
    is_flood = profile.subnormal >= limits.FLOOD * profile.numbers
    return is_flood and profile.normal_spread <= limits.ORDINARY_SPREAD[1]


def _scattered_share(evidence: Evidence, name: str) -> float:
    """Return the share of subnormal numbers outside rows and columns without a normal number.

    A row has at least eight numbers: of a convolution, it is a kernel of two channels.
    """
    placed = evidence.placed[name]
    least, width = least_normal(FORMATS[placed.dtype or ""]), 1
    for side in reversed(placed.tensor.shape or ()):
        width *= side
        if width >= limits.LEAST_ROW:
            break
    is_dead = np.ones(width, bool)  # by column
    for block in evidence.rows(name, width):
        is_dead &= (np.abs(block) < least).all(axis=0)
    scattered = count = 0
    for block in evidence.rows(name, width):
        is_small = np.abs(block) < least
        is_alone = is_small & ~is_small.all(axis=1, keepdims=True) & ~is_dead
        scattered += int(np.count_nonzero(is_alone & (block != 0)))
        count += block.size
    return scattered / count if count else 0.0


def mislabeled_dtypes(evidence: Evidence) -> Iterator[MislabeledDtype]:
    """Yield a finding for each 16-bit dtype whose matrices have the bits of the other one."""
    for dtype, other in _OTHERS.items():
        names = [
            name
            for name in evidence.values
            if evidence.tensor(name).dtype == dtype and _is_other(evidence, name, other)
        ]
        if names:
            yield MislabeledDtype(
                tensors=by_name(map(evidence.tensor, names)),
                reason=f"the header says {dtype}, and the bytes are {other}: read as {dtype}, the "
                f"magnitudes of a matrix spread over {_spreads(evidence, names)} binades, expected "
                "1 to 4",
            )


def _spreads(evidence: Evidence, names: list[str]) -> str:
    spreads = [profile.spread for name in names if (profile := evidence.profile(name))]
    low, high = f"{min(spreads):.1f}", f"{max(spreads):.1f}"
    return low if low == high else f"{low} to {high}"


def _is_other(evidence: Evidence, name: str, other: str) -> bool:
    profile = evidence.profile(name)
    if profile is None or profile.nonzero < limits.LEAST_MISLABELED:
        return False
    if not is_matrix(evidence.tensor(name)) or name in evidence.buffers:
        return False
    low, high = limits.MISLABELED_SPREAD
    if low <= profile.spread <= high:
        return False
    least, most = limits.ORDINARY_LARGE
    if other == "F16" and least <= profile.large <= most:
        return False
    data = evidence.spread_bytes(name, 2)
    if data is None:
        return False
    numbers = FORMATS[other].decode(data)
    low, high = limits.ORDINARY_SPREAD
    is_ordinary = low <= log_spread(numbers) <= high and peak(numbers) >= limits.LEAST_PEAK
    return is_ordinary and min((numbers > 0).mean(), (numbers < 0).mean()) >= limits.LEAST_SIGN
