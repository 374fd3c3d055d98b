"""A mixture of experts with more tensors than any: built and reconciled, beside json.loads.

In this process, one thread, with the garbage collector off as `audit` has it, and for both sides.
DeepSeek-V3 has 61 layers and 256 experts; with the scales of its FP8 weights it stores 92,000
tensors. A closed form has no scales, so that here twice the experts come to as many names.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, TypeVar

from support.builders import Described, safetensors_bytes

from auditor.analytic import Config, Role, catalogue, read_config
from auditor.audit.expected import Implied, expectation_of
from auditor.containers.safetensors import parse_header
from auditor.reconciler.findings import Severity
from auditor.reconciler.reconcile import Reconciled, reconcile
from auditor.tensors import StoredTensor
from benching.figures import Figure, milliseconds, ratio

LAYERS, EXPERTS, SHARDS = 61, 512, 163  # DeepSeek-V3 comes in 163 files
_DEPTH = 2  # of the rows, as in a terminal

_T = TypeVar("_T")


class Once(NamedTuple):
    """One run: CPU seconds of each step."""

    expected: float
    reconciled: float
    loaded: float  # json.loads of every header


_STEPS = (
    Figure("the expectation", lambda once: once.expected, milliseconds),
    Figure("matched and reconciled", lambda once: once.reconciled, milliseconds),
    Figure("both", lambda once: once.expected + once.reconciled, milliseconds),
)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The runs of both sides."""

    headings = ("", "audit", "json.loads", "ratio, median (min to max)")

    title: str
    runs: tuple[Once, ...]

    def rows(self) -> list[tuple[str, str, str, str]]:
        loads = milliseconds(median(once.loaded for once in self.runs))
        return [
            (step.name, milliseconds(median(map(step.of, self.runs))), loads, ratio(self._by(step)))
            for step in _STEPS
        ]

    def _by(self, step: Figure[Once]) -> list[float]:
        return sorted(step.of(once) / once.loaded for once in self.runs)

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "runs": [once._asdict() for once in self.runs],
            "ratios": {step.name: self._by(step) for step in _STEPS},
        }


def measured(layers: int, experts: int, runs: int) -> Mixture:
    """Both sides in turn, after one warm-up each; raises where the checkpoint is not clean."""
    config = _config(layers, experts)
    heads = _heads(config)
    tensors = tuple(
        tensor
        for number, head in enumerate(heads)
        for tensor in parse_header(f"model-{number}.safetensors", head).tensors
    )
    bodies = [head[8:] for head in heads]
    size = sum(map(len, bodies))
    with _no_collector():
        every = [_once(config, tensors, bodies) for _ in range(runs + 1)][1:]
    return Mixture(
        title=f"DeepSeek-V3 of {layers} layers and {experts} experts: "
        f"{len(tensors):,} tensors, {size:,} bytes of headers",
        runs=tuple(every),
    )


def _once(config: Config, tensors: Sequence[StoredTensor], bodies: Sequence[bytes]) -> Once:
    loaded, _ = _timed(lambda: [json.loads(body) for body in bodies])
    expected, found = _timed(
        lambda: expectation_of(config, None, lambda _choice: None, depth=_DEPTH)
    )
    if not isinstance(found, Implied):
        raise TypeError(found.detail)
    reconciled, result = _timed(lambda: _reconciled(tensors, found))
    alarms = [one for one in result.findings if one.severity is not Severity.INFO]
    if alarms or result.absent:
        raise ValueError(f"the checkpoint should be clean: {alarms}")
    return Once(expected, reconciled, loaded)


def _reconciled(tensors: Sequence[StoredTensor], found: Implied) -> Reconciled:
    return reconcile(tensors, found.expectation, found.family, indexed={})


def _timed(work: Callable[[], _T]) -> tuple[float, _T]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _config(layers: int, experts: int) -> Config:
    values = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_hidden_layers": layers,
        "n_routed_experts": experts,
        "num_experts_per_tok": 8,
        "num_nextn_predict_layers": 1,
    }
    return read_config("config.json", json.dumps(values).encode())


def _heads(config: Config) -> list[bytes]:
    """The headers of its shards, each of consecutive tensors, the layer for drafting included."""
    listed = catalogue.expect(config, "DeepseekV3ForCausalLM", depth=0).tensors
    stored = [tensor for tensor in listed if tensor.role is not Role.TIED]
    size = -(-len(stored) // SHARDS)
    heads = []
    for start in range(0, len(stored), size):
        part: Described = {t.name: ("BF16", t.shape) for t in stored[start : start + size]}
        heads.append(safetensors_bytes(part, metadata={"format": "pt"}, data=False))
    return heads
