"""The size of the change that an adapter makes to its base, by kind of module.

LoRA adds (alpha / r) B A to a weight, with B (out, r) and A (r, in). Its Frobenius norm needs no
matrix of (out, in): |B A|^2 = trace((B^T B) (A A^T)), two products of (r, r). The neutral
values of peft's other adapters follow its `reset_*_parameters`.
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from auditor.findings import IdleModules, NoOpAdapter, by_name
from auditor.values.evidence import Evidence
from auditor.values.name_patterns import NEUTRAL, NUMBER
from auditor.values.rules import limits

_OTHER_FACTOR = {"lora_A": 0.0, "lora_embedding_B": 0.0, "lokr_w1": 0.0, "lokr_w1_a": 0.0}
_PART = re.compile(rf"(.*?)\.({'|'.join((*NEUTRAL, *_OTHER_FACTOR))})(?:\.[^.]+)*")
_LARGEST = 64 * 1024 * 1024  # bytes of a factor whose norm is computed


def no_op_adapter(evidence: Evidence) -> Iterator[NoOpAdapter | IdleModules]:
    """Yield a finding if every module is neutral, or a third of the modules in one tower.

    In a sample, at least three modules must have been read, and all of them must be neutral.
    """
    modules: dict[str, list[str]] = {}
    for name in evidence.placed if evidence.is_adapter else ():
        match = _PART.fullmatch(name)
        if match is not None and not name.endswith(".bias"):
            modules.setdefault(match[1], []).append(name)
    states = {start: _is_neutral(evidence, names) for start, names in modules.items()}
    read = [start for start, state in states.items() if state is not None]
    if False in states.values():
        yield from _idle_modules(evidence, modules, states)
        return
    if len(read) < min(limits.LEAST_MODULES, len(modules)) or not read:
        return
    names = [name for start in read for name in modules[start]]
    others = len(evidence.placed) - sum(map(len, modules.values()))
    clause = f"; {others:,} other tensors are stored" if others else ""
    of = f" of {len(modules):,} that {evidence.were_read}" if len(read) < len(modules) else ""
    yield NoOpAdapter(
        tensors=by_name(map(evidence.tensor, names)),
        reason=f"all {len(read):,} modules{of} have their values from before training, and change "
        f"the base by zero{clause}",
    )


def _idle_modules(
    evidence: Evidence, modules: dict[str, list[str]], states: dict[str, bool | None]
) -> Iterator[IdleModules]:
    """Yield a finding of the neutral modules in towers of which other modules were trained."""
    towers: dict[str, list[str]] = {}
    for start in modules if not evidence.sampled else ():
        if ".experts." not in start:  # an expert that no token was routed to has no gradient
            towers.setdefault(NUMBER.split(start)[0], []).append(start)
    idle = [
        start
        for starts in towers.values()
        if False in (of_tower := [states[start] for start in starts])
        and of_tower.count(True) >= limits.IDLE * len(starts)
        for start in starts
        if states[start]
    ]
    if idle:
        yield IdleModules(
            tensors=by_name(evidence.tensor(name) for start in idle for name in modules[start]),
            reason=f"{len(idle):,} of {len(modules):,} modules have their values from before "
            "training and add nothing, expected none beside modules that were trained",
        )


def _is_neutral(evidence: Evidence, names: list[str]) -> bool | None:
    """Return whether a factor makes the module's product neutral; None if too little was read."""
    states = []
    for name in names:
        match = _PART.fullmatch(name)
        states.append(_is_all(evidence, name, NEUTRAL.get(match[2], 0.0) if match else 0.0))
    return True if True in states else None if None in states else False


def _is_all(evidence: Evidence, name: str, value: float) -> bool | None:
    """Return whether all numbers of a factor have the value; None if too little of it was read."""
    read = evidence.values.get(name)
    if read is None:
        return None
    if not value:
        is_zero = evidence.seems_zero(name, limits.LEAST_OF_FACTOR)
        return False if read.nonzero else is_zero or None
    numbers = evidence.sample(name, evidence.placed[name].span.length)
    if numbers is None or (len(numbers) < limits.LEAST_OF_FACTOR and not read.is_complete):
        return None
    return bool((numbers == value).all())


def added_norms(evidence: Evidence) -> Iterator[str]:
    """Yield a line for each kind of module with the norm of the matrix that its LoRA adds."""
    if not evidence.is_adapter:
        return
    squares_by_module: dict[str, list[float]] = {}
    for name in evidence.values:
        pair_name = name.replace("lora_A", "lora_B")
        if pair_name == name or pair_name not in evidence.values or not name.endswith("weight"):
            continue
        square = _square(evidence, name, pair_name)
        if square is not None:
            module = name.partition(".lora_A")[0].rpartition(".")[2]
            squares_by_module.setdefault(module, []).append(square)
    for module, squares in sorted(squares_by_module.items()):
        norm = math.sqrt(sum(squares)) * _scale(evidence)
        yield f"the adapter adds {norm:.4g} (Frobenius norm) to {len(squares):,} x {module}"


def _square(evidence: Evidence, down: str, up: str) -> float | None:
    tensors = evidence.tensor(down), evidence.tensor(up)
    shapes = [one.shape or () for one in tensors]
    sizes = [evidence.placed[name].span.length for name in (down, up)]
    if any(len(shape) != 2 for shape in shapes) or max(sizes) > _LARGEST:  # noqa: PLR2004
        return None
    if shapes[0][0] != shapes[1][1]:
        return None
    a, b = (evidence.sample(name, size) for name, size in zip((down, up), sizes, strict=True))
    if a is None or b is None or [a.size, b.size] != [math.prod(shape) for shape in shapes]:
        return None
    a, b = (x.astype(np.float64).reshape(shape) for x, shape in zip((a, b), shapes, strict=True))
    square = float(np.einsum("ij,ji->", b.T @ b, a @ a.T))
    return max(square, 0.0) if math.isfinite(square) else None


def _scale(evidence: Evidence) -> float:
    """Return the factor of the product: alpha / r, or alpha / sqrt(r) with rslora.

    Return 1 if the settings have no alpha or r.
    """
    alpha, rank = (evidence.config.get(key) for key in ("lora_alpha", "r"))
    if not isinstance(alpha, (int, float)) or type(rank) is not int or rank < 1:
        return 1.0
    return alpha / (math.sqrt(rank) if evidence.config.get("use_rslora") else rank)
