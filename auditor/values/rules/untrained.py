"""Layers, experts and complete models that have the initializer's values.

A matrix of independent draws has six statistics that are known with their errors: its mean, its
kurtosis (3 if normal, 1.8 if uniform), and the variances of the mean squares and of the means of
its rows and columns. Training correlates rows and columns. Measured in standard errors, the worst
of the six was at most 3.6 for each of 474 fresh matrices of 20 architectures, and 28 or more for
each of 63 matrices of trained checkpoints that were published (F32, the first 131,072 numbers). 300
steps of training leave some matrices below 3.6, but they move every norm and bias. So a layer must
also have the initial norms and biases. An expert has none: its deviation must be the initializer's,
and those of the other experts must not.
"""

import math
import re
from collections.abc import Container, Iterator
from statistics import median

import numpy as np

from auditor.findings import OfValues, Untrained, by_name
from auditor.messages import listed
from auditor.tensors import naturally_sorted
from auditor.values.evidence import Evidence, holds_floats, is_matrix
from auditor.values.name_patterns import NORM
from auditor.values.rules.broken import norms_may_begin_at_zero
from auditor.values.rules.fresh_head import initializer_range

_SIGMAS = 5.0
# The kurtosis of normal, truncated (at 2 deviations) and uniform numbers, and its error times
# sqrt(n).
_KURTOSES = ((3.0, math.sqrt(24)), (2.366, 1.88), (1.8, math.sqrt(0.73)))
_LEAST = 256  # numbers of a matrix; fewer show nothing
_ROUNDED = 0.002  # relative change of the deviation by 16-bit rounding
_MOST = 131_072  # numbers of a matrix that are read
_LEAST_MATRICES = 2
_OF_EXPERT = 64 * 1024  # bytes of each matrix that are read first
# Numbers of an expert. One of 12,288 numbers, trained for 140 steps, was still like a fresh one.
_LEAST_OF_EXPERT = 24_000
_SHOWN = 8
_LAYER = re.compile(r"(?:^|\.)\d+(?=\.)")
_EXPERT = re.compile(r"(.*\bexperts\.)\d+")
# Not drawn, or drawn in another way: state-space parameters, tables of positions, torch's biases.
_OTHER = re.compile(r"A_logs?$|dt_|conv1d\.|position|relative|rotary|inv_freq")


def untrained(evidence: Evidence) -> Iterator[OfValues]:
    """Yield a finding of the untrained layers and experts, or of the complete model."""
    layers = _layers(evidence)
    fresh: list[str] = []
    for start in naturally_sorted(layers, str):  # a layer comes before those within it
        if not _is_within(start, fresh) and _is_fresh_layer(evidence, layers[start]):
            fresh.append(start)
    outer = [start for start in layers if not _is_within(start, layers)]
    if fresh and {*outer} <= {*fresh}:
        what = f"all {len(fresh):,} layers of the model have"
    else:
        fresh += [one for one in _fresh_experts(evidence, layers) if not _is_within(one, fresh)]
        what = f"{listed(fresh[:_SHOWN])}{' and others' if len(fresh) > _SHOWN else ''} have"
    names = [name for start in fresh for name in layers[start]]
    if names:
        yield Untrained(
            tensors=by_name(map(evidence.tensor, names)),
            reason=f"{what} the values that the initializer leaves, expected trained ones",
        )


def _layers(evidence: Evidence) -> dict[str, list[str]]:
    """Return the float tensors of each layer, and of each layer within another one."""
    layers: dict[str, list[str]] = {}
    for name in evidence.values if not evidence.is_adapter else ():
        if name not in evidence.buffers and holds_floats(evidence.tensor(name)):
            for match in _LAYER.finditer(name):
                layers.setdefault(name[: match.end()], []).append(name)
    return layers


def _fresh_experts(evidence: Evidence, layers: dict[str, list[str]]) -> Iterator[str]:
    """Yield the untrained experts of layers in which the other experts are clearly trained.

    Their deviation is the initializer's within 2.5 standard errors, and the median of the layer's
    experts is more than twice as far from it.
    """
    groups: dict[str, list[str]] = {}
    for start in layers:
        if match := _EXPERT.fullmatch(start):
            groups.setdefault(match[1], []).append(start)
    spread = initializer_range(evidence)
    for group in groups.values() if not evidence.sampled else ():
        offs = {one: _off(evidence, layers[one], spread) for one in group}
        middle = median(off for off, _ in offs.values())
        for one, (off, allowed) in offs.items():
            if off <= allowed < middle / 2 and _is_drawn(evidence, layers[one]):
                yield one


def _off(evidence: Evidence, names: list[str], spread: float) -> tuple[float, float]:
    """Return how far an expert's deviation is from the initializer's, and how far it may be."""
    samples = [
        sample.astype(np.float64)
        for name in names
        if is_matrix(evidence.tensor(name))
        and (sample := evidence.sample(name, _OF_EXPERT)) is not None
    ]
    count = sum(map(len, samples))
    if count < _LEAST_OF_EXPERT:
        return math.inf, 0.0
    square = sum(float(np.square(sample).sum()) for sample in samples) / count
    return abs(math.sqrt(square) / spread - 1), 2.5 / math.sqrt(2 * count) + _ROUNDED


def _is_within(start: str, others: Container[str]) -> bool:
    """Return whether a layer is within one of the others."""
    return any(start[: match.end()] in others for match in _LAYER.finditer(start))


def _is_fresh_layer(evidence: Evidence, names: list[str]) -> bool:
    """Return whether a layer has initial norms and biases, and matrices of independent draws."""
    marks = [
        name
        for name in names
        if not is_matrix(evidence.tensor(name)) and (NORM.search(name) or name.endswith(".bias"))
    ]
    of_norms = {0.0, 1.0} if norms_may_begin_at_zero(evidence) else {1.0}
    initial = {name: of_norms if NORM.search(name) else {0.0} for name in marks}
    marks = [name for name in marks if not _OTHER.search(name)]
    if not marks or any(evidence.constant(name) not in initial[name] for name in marks):
        return False
    return _is_drawn(evidence, names)


def _is_drawn(evidence: Evidence, names: list[str]) -> bool:
    """Return whether all matrices have independent draws; False for fewer than two matrices."""
    matrices = [
        name
        for name in names
        if is_matrix(evidence.tensor(name))
        and evidence.values[name].numbers >= _LEAST
        and not _OTHER.search(name)
    ]
    return len(matrices) >= _LEAST_MATRICES and all(
        evidence.values[name].is_complete and _is_independent(evidence, name) for name in matrices
    )


def _is_independent(evidence: Evidence, name: str) -> bool:
    shape = evidence.tensor(name).shape or ()
    width = shape[-1] if len(shape) == 3 else math.prod(shape[1:])  # noqa: PLR2004
    profile = evidence.profile(name)
    read = evidence.values[name]
    if profile is None or profile.nonzero < _LEAST or not width or read.nan or read.inf:
        return False
    rows, count = [], 0
    for block in evidence.rows(name, width):
        rows.append(block[: max(2, (_MOST - count) // width)])
        count += rows[-1].size
        if count >= _MOST:
            break
    numbers = np.concatenate(rows).astype(np.float64)
    std = float(numbers.std())
    if not math.isfinite(std) or not std:
        return False
    return _worst(numbers / std, count) <= _SIGMAS


def _worst(numbers: np.ndarray, count: int) -> float:
    """Return the worst of the six statistics, in standard errors; numbers have the deviation 1."""
    mean = float(numbers.mean())
    numbers = numbers - mean
    squares = numbers**2
    kurtosis = float((squares**2).mean())
    of_kurtosis = min(abs(kurtosis - value) / error for value, error in _KURTOSES)
    worst = math.sqrt(count) * max(abs(mean), of_kurtosis)
    for axis in (0, 1):
        others = numbers.shape[1 - axis]
        length = numbers.shape[axis]
        for means, variance in (
            (squares.mean(axis=axis), kurtosis - 1),
            (numbers.mean(axis=axis), 1.0),
        ):
            ratio = float(means.var()) * length / variance if variance > 0 else math.inf
            worst = max(worst, abs(ratio - 1) * math.sqrt(others / 2))
    return worst
