"""An untrained head on a trained body.

transformers starts a linear layer with its bias at 0 and its n weights drawn from a normal
distribution with mean 0 and deviation r = initializer_range (0.02 by default). Then the mean of
the weights is within z r / sqrt(n) of 0, their deviation within z r / sqrt(2 n) of r, and their
kurtosis within z sqrt(24 / n) of 3, for z = 4 in all but one of 10,000 draws each.

A trained bias is not 0: one step with any gradient moves it. So a bias of zeros and such weights
are two signs of an untrained head. A head without a bias has one sign, which a short training may
not remove: then the body's own matrices must be far from r, too, because the same training would
have changed the head.
"""

import math
from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

import numpy as np

from auditor.findings import FreshHead, OfValues, by_name
from auditor.values.evidence import Evidence, holds_floats, is_matrix
from auditor.values.name_patterns import HEAD, NORM

_RANGES = ("initializer_range", "init_std", "initializer_std")
_DEFAULT = 0.02
_SIGMAS = 4.0
_ROUNDED = 0.002  # relative change of the deviation by 16-bit rounding
_LEAST = 32  # numbers of a head; fewer show nothing
_MOST = 4 * 1024 * 1024  # bytes of a head that are read
_FAR = 0.1  # the median distance of a body's matrices from r, as a share of r
_SOME = 64  # tensors of a body that are read


class _Draw(NamedTuple):
    numbers: int
    mean: float
    std: float
    kurtosis: float


def fresh_heads(evidence: Evidence) -> Iterator[OfValues]:
    if evidence.is_adapter:
        return
    spread = initializer_range(evidence)
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
        if (has_bias := _is_fresh(evidence, names, spread)) is not None
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


def initializer_range(evidence: Evidence) -> float:
    for config in evidence.configs:
        for key in _RANGES:
            value = config.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return float(value)
    return _DEFAULT


def _is_fresh(evidence: Evidence, names: list[str], spread: float) -> bool | None:
    """Return whether an untrained head has a bias; None if the head looks trained."""
    matrices = [
        name
        for name in names
        if is_matrix(evidence.tensor(name)) and holds_floats(evidence.tensor(name))
    ]
    if not matrices or not all(_is_drawn(_draw(evidence, name), spread) for name in matrices):
        return None
    others = [name for name in names if name not in matrices]
    biases = [name for name in others if name.endswith("bias")]
    if not all(evidence.seems_zero(name, _LEAST) for name in biases):
        return None
    if any(evidence.constant(name) not in {0.0, 1.0} for name in others if name not in biases):
        return None
    return bool(biases)


def _draw(evidence: Evidence, name: str) -> _Draw | None:
    sample = evidence.sample(name, _MOST)
    if sample is None or len(sample) < _LEAST or not np.isfinite(sample).all():
        return None
    numbers = sample.astype(np.float64)
    mean = float(numbers.mean())
    numbers -= mean
    variance = float((numbers**2).mean())
    if not variance:
        return None
    fourth = float((numbers**4).mean())
    return _Draw(len(numbers), mean, math.sqrt(variance), fourth / variance**2)


def _is_drawn(draw: _Draw | None, spread: float) -> bool:
    """Return whether mean, deviation and kurtosis fit numbers drawn by the initializer."""
    if draw is None:
        return False
    within = _SIGMAS / math.sqrt(draw.numbers)
    return (
        abs(draw.mean) <= within * spread
        and abs(draw.std / spread - 1) <= within / math.sqrt(2) + _ROUNDED
        and abs(draw.kurtosis - 3) <= within * math.sqrt(24) + _ROUNDED
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
    checked = (norms or biases)[:_SOME]
    moved = [name for name in checked if evidence.constant(name) not in {0.0, 1.0}]
    return 2 * len(moved) > len(checked)


def _is_far(evidence: Evidence, body: Iterable[str], spread: float) -> bool:
    """Return whether the deviations of the body's matrices are far from the initializer's."""
    matrices = [name for name in body if is_matrix(evidence.tensor(name))]
    draws = [_draw(evidence, name) for name in matrices[:_SOME]]
    distances = [abs(draw.std / spread - 1) for draw in draws if draw is not None]
    return bool(distances) and median(distances) > _FAR
