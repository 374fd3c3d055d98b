"""Heads, layers, experts and complete models that have the initializer's values.

transformers starts a linear layer with its bias at 0 and its n weights drawn from a distribution
with mean 0 and deviation r = initializer_range (0.02 by default). Then the mean of the weights is
within z r / sqrt(n) of 0, their deviation within z r / sqrt(2 n) of r, and the kurtosis of normal
numbers within z sqrt(24 / n) of 3. Independent draws also have known variances of the mean squares
and of the means of rows and columns; training correlates rows and columns.

A trained bias is not 0: one step with any gradient moves it. So a bias of zeros and drawn weights
are two signs of an untrained head. A head without a bias has one sign, which a short training may
not remove: then the body's own matrices must be far from r, too, because the same training would
have changed the head. Training also moves every norm and bias: an untrained layer must have the
initial ones. An expert has none: its deviation must be r, and those of the other experts must not.
"""

import math
import re
from collections.abc import Container, Iterable, Iterator
from statistics import median
from typing import NamedTuple

import numpy as np

from auditor.findings import FreshHead, Untrained, by_name
from auditor.messages import listed
from auditor.tensors import naturally_sorted
from auditor.values.evidence import Evidence, holds_floats, is_matrix
from auditor.values.name_patterns import HEAD, NORM
from auditor.values.rules import limits
from auditor.values.rules.broken import norms_may_begin_at_zero

_RANGES = ("initializer_range", "init_std", "initializer_std")
_DEFAULT = 0.02
# The kurtosis of normal, truncated (at 2 deviations) and uniform numbers, and its error times
# sqrt(n).
_KURTOSES = ((3.0, math.sqrt(24)), (2.366, 1.88), (1.8, math.sqrt(0.73)))
_MOST_OF_HEAD = 4 * 1024 * 1024  # bytes of a head that are read
_MOST_OF_MATRIX = 131_072  # numbers of a matrix that are read
_MOST_OF_EXPERT = 64 * 1024  # bytes of each matrix that are read first
_OF_BODY = 64  # tensors of a body that are read
_SHOWN = 8
_LAYER = re.compile(r"(?:^|\.)\d+(?=\.)")
_EXPERT = re.compile(r"(.*\bexperts\.)\d+")
# Not drawn, or drawn in another way: state-space parameters, tables of positions, torch's biases.
_OTHER = re.compile(r"A_logs?$|dt_|conv1d\.|position|relative|rotary|inv_freq")


def _initializer_range(evidence: Evidence) -> float:
    for config in evidence.configs:
        for key in _RANGES:
            value = config.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return float(value)
    return _DEFAULT


# --- heads --------------------------------------------------------------------------------------


class _Draw(NamedTuple):
    numbers: int
    mean: float
    std: float
    kurtosis: float


def fresh_heads(evidence: Evidence) -> Iterator[FreshHead]:
    """Yield a finding of the untrained heads on a trained body."""
    if evidence.is_adapter:
        return
    spread = _initializer_range(evidence)
    heads: dict[str, list[str]] = {}
    body: list[str] = []
    for name in evidence.placed if evidence.sampled else evidence.values:
        match = HEAD.search(name)
        if match and name not in evidence.buffers:
            heads.setdefault(name[: match.end()], []).append(name)
        elif not match and name in evidence.values:
            body.append(name)
    fresh = {
        start: has_bias
        for start, names in heads.items()
        if (has_bias := _is_fresh_head(evidence, names, spread)) is not None
    }
    if not fresh or not _is_trained(evidence, body):
        return
    if not all(fresh.values()) and not _is_far(evidence, body, spread):
        fresh = {start: has_bias for start, has_bias in fresh.items() if has_bias}
    if fresh:
        names = sorted(name for start in fresh for name in heads[start])
        read = sum(evidence.values[name].read for name in names)
        sample = f"; {read:,} numbers of the head were sampled" if evidence.sampled else ""
        yield FreshHead(
            tensors=by_name(map(evidence.tensor, names)),
            reason=f"biases of 0 and weights around 0 with a deviation of {spread:g}, as the "
            f"initializer leaves them, while the rest of the model was trained{sample}",
        )


def _is_fresh_head(evidence: Evidence, names: list[str], spread: float) -> bool | None:
    """Return whether an untrained head has a bias; None if the head looks trained."""
    matrices = [
        name
        for name in names
        if is_matrix(evidence.tensor(name)) and holds_floats(evidence.tensor(name))
    ]
    if not matrices or not all(_fits(_draw(evidence, name), spread) for name in matrices):
        return None
    others = [name for name in names if name not in matrices]
    biases = [name for name in others if name.endswith("bias")]
    if not all(evidence.seems_zero(name, limits.LEAST_OF_HEAD) for name in biases):
        return None
    if any(evidence.constant(name) not in {0.0, 1.0} for name in others if name not in biases):
        return None
    return bool(biases)


def _draw(evidence: Evidence, name: str) -> _Draw | None:
    sample = evidence.sample(name, _MOST_OF_HEAD)
    if sample is None or len(sample) < limits.LEAST_OF_HEAD or not np.isfinite(sample).all():
        return None
    numbers = sample.astype(np.float64)
    mean = float(numbers.mean())
    numbers -= mean
    variance = float((numbers**2).mean())
    if not variance:
        return None
    fourth = float((numbers**4).mean())
    return _Draw(len(numbers), mean, math.sqrt(variance), fourth / variance**2)


def _fits(draw: _Draw | None, spread: float) -> bool:
    """Return whether mean, deviation and kurtosis fit numbers drawn by the initializer."""
    if draw is None:
        return False
    within = limits.HEAD_SIGMAS / math.sqrt(draw.numbers)
    return (
        abs(draw.mean) <= within * spread
        and abs(draw.std / spread - 1) <= within / math.sqrt(2) + limits.ROUNDED
        and abs(draw.kurtosis - 3) <= within * math.sqrt(24) + limits.ROUNDED
    )


def _is_trained(evidence: Evidence, body: Iterable[str]) -> bool:
    """Return whether most norms of the body, else most biases, differ from their initial value."""
    one_dimensional = [
        name
        for name in body
        if len(evidence.tensor(name).shape or ()) == 1 and not evidence.values[name].nan
    ]
    norms = [name for name in one_dimensional if NORM.search(name)]
    biases = [name for name in one_dimensional if name.endswith(".bias")]
    checked = (norms or biases)[:_OF_BODY]
    moved = [name for name in checked if evidence.constant(name) not in {0.0, 1.0}]
    return 2 * len(moved) > len(checked)


def _is_far(evidence: Evidence, body: Iterable[str], spread: float) -> bool:
    """Return whether the deviations of the body's matrices are far from the initializer's."""
    matrices = [name for name in body if is_matrix(evidence.tensor(name))]
    draws = [_draw(evidence, name) for name in matrices[:_OF_BODY]]
    distances = [abs(draw.std / spread - 1) for draw in draws if draw is not None]
    return bool(distances) and median(distances) > limits.FAR


# --- layers and experts -------------------------------------------------------------------------


def untrained(evidence: Evidence) -> Iterator[Untrained]:
    """Yield a finding of the untrained layers and experts, or of the complete model."""
    layers: dict[str, list[str]] = {}  # the float tensors of each layer, and of each within another
    for name in evidence.values if not evidence.is_adapter else ():
        if name not in evidence.buffers and holds_floats(evidence.tensor(name)):
            for match in _LAYER.finditer(name):
                layers.setdefault(name[: match.end()], []).append(name)
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


def _is_within(start: str, others: Container[str]) -> bool:
    """Return whether a layer is within one of the others."""
    return any(start[: match.end()] in others for match in _LAYER.finditer(start))


def _is_fresh_layer(evidence: Evidence, names: list[str]) -> bool:
    """Return whether a layer has initial norms and biases, and matrices of independent draws."""
    of_norms = {0.0, 1.0} if norms_may_begin_at_zero(evidence) else {1.0}
    initial = {
        name: of_norms if NORM.search(name) else {0.0}
        for name in names
        if not is_matrix(evidence.tensor(name))
        and (NORM.search(name) or name.endswith(".bias"))
        and not _OTHER.search(name)
    }
    has_moved = any(evidence.constant(name) not in values for name, values in initial.items())
    return bool(initial) and not has_moved and _are_drawn(evidence, names)


def _fresh_experts(evidence: Evidence, layers: dict[str, list[str]]) -> Iterator[str]:
    """Yield the untrained experts of layers in which the other experts are clearly trained.

    Their deviation is the initializer's within 2.5 standard errors, and the median of the layer's
    experts is more than twice as far from it.
    """
    groups: dict[str, list[str]] = {}
    for start in layers:
        if match := _EXPERT.fullmatch(start):
            groups.setdefault(match[1], []).append(start)
    spread = _initializer_range(evidence)
    for group in groups.values() if not evidence.sampled else ():
        distances = {one: _distance(evidence, layers[one], spread) for one in group}
        middle = median(distance for distance, _ in distances.values())
        for one, (distance, allowed) in distances.items():
            if distance <= allowed < middle / 2 and _are_drawn(evidence, layers[one]):
                yield one


def _distance(evidence: Evidence, names: list[str], spread: float) -> tuple[float, float]:
    """Return how far an expert's deviation is from the initializer's, and how far it may be."""
    samples = [
        sample.astype(np.float64)
        for name in names
        if is_matrix(evidence.tensor(name))
        and (sample := evidence.sample(name, _MOST_OF_EXPERT)) is not None
    ]
    count = sum(map(len, samples))
    if count < limits.LEAST_OF_EXPERT:
        return math.inf, 0.0
    square = sum(float(np.square(sample).sum()) for sample in samples) / count
    return abs(math.sqrt(square) / spread - 1), 2.5 / math.sqrt(2 * count) + limits.ROUNDED


def _are_drawn(evidence: Evidence, names: list[str]) -> bool:
    """Return whether all matrices have independent draws; False for fewer than two matrices."""
    matrices = [
        name
        for name in names
        if is_matrix(evidence.tensor(name))
        and evidence.values[name].numbers >= limits.LEAST_OF_MATRIX
        and not _OTHER.search(name)
    ]
    return len(matrices) >= limits.LEAST_MATRICES and all(
        evidence.values[name].is_complete and _is_independent(evidence, name) for name in matrices
    )


def _is_independent(evidence: Evidence, name: str) -> bool:
    shape = evidence.tensor(name).shape or ()
    width = shape[-1] if len(shape) == 3 else math.prod(shape[1:])  # noqa: PLR2004
    profile, read = evidence.profile(name), evidence.values[name]
    if profile is None or profile.nonzero < limits.LEAST_OF_MATRIX or read.nan or read.inf:
        return False
    rows, count = [], 0
    for block in evidence.rows(name, width):
        rows.append(block[: max(2, (_MOST_OF_MATRIX - count) // width)])
        count += rows[-1].size
        if count >= _MOST_OF_MATRIX:
            break
    numbers = np.concatenate(rows).astype(np.float64)
    std = float(numbers.std())
    if not math.isfinite(std) or not std:
        return False
    return _worst(numbers / std, count) <= limits.MATRIX_SIGMAS


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
