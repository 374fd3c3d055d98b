"""Faults planted in the numbers of trained checkpoints; places, sizes and dtypes are drawn by seed.

Each fault names the tensors that it changed. A finding is right if it has the cause, names no other
tensor, and names half of the changed matrices or more.
"""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from support.value_faults import ValueCase

from auditor.findings import Finding

State = dict[str, torch.Tensor]
WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"
NORM = re.compile(r"(?i)(?:norm\w*|ln_\w*)\.weight$")
ATTENTION = re.compile(
    r"(.*?\.(?:layers?|h|block)\.)(\d+)\.(.*?(?:attn|attention|SelfAttention))\."
)
LAYER = re.compile(r"(.*?\.(?:layers?|h|block)\.)(\d+)\.")
EXPERT = re.compile(r"(.*experts\.\d+)\.")
ROWS = re.compile(r"(?:embed_tokens|word_embeddings|wte|embed_in|shared|tok_embeddings)\.weight$")
LINEAR = re.compile(r"\.\d+\..*(?:weight|_proj|kernel)$")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
OTHER_16 = {torch.bfloat16: torch.float16, torch.float16: torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class TrainedCase(ValueCase):
    severity: str = "warning"
    changed: frozenset[str] = frozenset()  # the tensors with the fault

    def is_named(self, found: Iterable[Finding]) -> bool:
        """Whether a finding has the cause, names only changed tensors, and half of the matrices.

        Two modules that are copies are both named. Vectors, and the packed tensors of scales, need
        no name.
        """
        findings = [one for one in found if (one.kind, one.severity) == (self.cause, self.severity)]
        tensors = {one.name: one for finding in findings for one in finding.tensors}
        with safe_open(next(self.folder.glob("*.safetensors")), "pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in self.changed}
        matrices = {name for name, shape in shapes.items() if len(shape) > 1}
        if self.cause in {"mean-rows", "part-zero"} and tensors:
            return tensors.keys() <= self.changed
        is_right = self.cause == "copied-modules" or tensors.keys() <= self.changed
        return bool(tensors) and is_right and 2 * len(matrices & tensors.keys()) >= len(matrices)


@dataclass(frozen=True, kw_only=True)
class Planted:
    label: str
    cause: str
    state: State
    severity: str = "warning"


def trained_cases(source: Path, fresh: Path, place: Path, seed: int) -> Iterator[TrainedCase]:
    """The checkpoint in each dtype, as it was trained, and with each fault in a drawn dtype.

    `fresh` has the same model before its training.
    """
    rng = random.Random(f"{seed} {source.name}")  # noqa: S311 - the same faults in every run
    state, begun = load_file(source / WEIGHTS), load_file(fresh / WEIGHTS)
    torch.manual_seed(seed)
    for dtype in DTYPES:
        yield _written(f"trained {dtype}", as_dtype(state, dtype), source, place, dtype)
    for plant in PLANTS:
        dtype = rng.choice(list(DTYPES))
        found = plant(as_dtype(state, dtype), as_dtype(begun, dtype), rng)
        if found is not None:
            yield _case(found, as_dtype(state, dtype), source, place, dtype)
    padded = thirds(state, rng)
    yield _case(padded, state, source, place, "float32")
    for share in (0.0, rng.uniform(0.4, 0.7)):
        yield from lora_case(state, begun, source, place, rng, share)


def _case(found: Planted, sound: State, source: Path, place: Path, dtype: str) -> TrainedCase:
    changed = {
        key
        for key, one in found.state.items()
        if key not in sound
        or one.dtype != sound[key].dtype
        or one.shape != sound[key].shape
        or not torch.equal(one, sound[key])
    }
    case = _written(f"{found.label} {dtype}", found.state, source, place, dtype)
    return TrainedCase(
        name=case.name,
        folder=case.folder,
        cause=found.cause,
        severity=found.severity,
        changed=frozenset(changed),
    )


def _written(label: str, state: State, source: Path, place: Path, dtype: str) -> TrainedCase:
    folder = place / source.name / label.replace(" ", "-")
    folder.mkdir(parents=True)
    shutil.copy(source / "config.json", folder)
    config = json.loads((folder / "config.json").read_text()) | {"dtype": dtype}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({key: one.contiguous().clone() for key, one in state.items()}, folder / WEIGHTS)
    return TrainedCase(name=f"{source.name}, {label}", folder=folder, cause=None)


def as_dtype(state: State, dtype: str) -> State:
    kind = DTYPES[dtype]
    return {key: one.to(kind) if one.is_floating_point() else one for key, one in state.items()}


def linear(state: State) -> list[str]:
    """Matrices and kernels inside layers."""
    return [
        key
        for key, one in state.items()
        if one.ndim > 1 and min(one.shape[:2]) >= 16 and LINEAR.search(key)
    ]


def zero_norms(state: State, _: State, rng: random.Random) -> Planted | None:
    """One norm, or that norm of every layer."""
    norms = [key for key in state if NORM.search(key)]
    if not norms:
        return None
    chosen = rng.choice(norms)
    kind = re.sub(r"\d+", "#", chosen)
    same = [key for key in norms if re.sub(r"\d+", "#", key) == kind]
    names = same if rng.random() < 0.5 else [chosen]
    return Planted(
        label="zero norms",
        cause="all-zero",
        state=state | {key: torch.zeros_like(state[key]) for key in names},
    )


def constant(state: State, _: State, rng: random.Random) -> Planted | None:
    names = rng.sample(linear(state), min(2, len(linear(state))))
    value = rng.choice([0.02, -1.0, 1.0])
    changed = {key: torch.full_like(state[key], value) for key in names}
    return Planted(label="constant", cause="constant-matrix", state=state | changed)


def equal_rows(state: State, _: State, rng: random.Random) -> Planted | None:
    key = rng.choice(linear(state))
    row = state[key][rng.randrange(len(state[key]))]
    changed = {key: row.expand_as(state[key])}
    return Planted(label="equal rows", cause="constant-matrix", state=state | changed)


def half_zero(state: State, _: State, rng: random.Random) -> Planted | None:
    """The upper or the lower half, the left or the right one."""
    key = rng.choice(linear(state))
    one = state[key].clone()
    rows, columns = one.shape[:2]
    part = rng.choice(["upper", "lower", "left", "right"])
    match part:
        case "upper":
            one[: rows // 2] = 0
        case "lower":
            one[rows // 2 :] = 0
        case "left":
            one[:, : columns // 2] = 0
        case _:
            one[:, columns // 2 :] = 0
    return Planted(label=f"{part} half zero", cause="part-zero", state=state | {key: one})


def thirds_zero(state: State, _: State, rng: random.Random) -> Planted | None:
    """Half of each of the projections in a fused matrix, or of each matrix of one kind."""
    chosen = rng.choice(linear(state))
    kind = re.sub(r"\d+", "#", chosen)
    changed = {}
    for key in linear(state):
        if re.sub(r"\d+", "#", key) == kind:
            one = state[key].clone()
            parts = 3 if len(one) % 3 == 0 and len(one) >= 96 else 1
            height = len(one) // parts
            for part in range(parts):
                one[part * height : part * height + height // 2] = 0
            changed[key] = one
    return Planted(label="half of each projection", cause="part-zero", state=state | changed)


def half_of_scales(state: State, _: State, rng: random.Random) -> Planted | None:
    """FP8 with a scale for each row; half of them zero."""
    changed: State = {}
    for key in linear(state):
        one = state[key].float()
        if one.ndim > 2:
            continue
        scale = one.abs().amax(1, keepdim=True).clamp_min(1e-12) / 448
        changed[key] = (one / scale).to(torch.float8_e4m3fn)
        changed[key.replace("weight", "weight_scale")] = scale
    scales = [key for key in changed if key.endswith("weight_scale")]
    if not scales:
        return None
    key = rng.choice(scales)
    zero = changed[key].clone()
    if rng.random() < 0.5:
        zero[: len(zero) // 2] = 0
    else:
        zero[torch.randperm(len(zero))[: len(zero) // 2]] = 0
    # the packed weights are sound; only the scales that are zero are the fault
    return Planted(
        label="half of the scales", cause="part-zero", state=state | changed | {key: zero}
    )


def flood(state: State, _: State, rng: random.Random) -> Planted | None:
    key = rng.choice(linear(state))
    one = state[key].clone()
    if one.dtype == torch.float16:
        return None
    chosen = torch.rand(one.shape) < rng.uniform(0.5, 0.95)
    one[chosen] = (torch.rand(int(chosen.sum())) * 1e-39 + 1e-40).to(one.dtype)
    return Planted(label="subnormal numbers", cause="subnormal", state=state | {key: one})


def outlier(state: State, _: State, rng: random.Random) -> Planted | None:
    key = rng.choice([key for key in state if LINEAR.search(key) and state[key].numel() >= 32])
    one = state[key].clone()
    largest = 6.5e4 if one.dtype == torch.float16 else rng.choice([1e30, -1e30, 3e12])
    one.view(-1)[rng.randrange(one.numel())] = largest
    return Planted(label="outlier", cause="outlier", severity="error", state=state | {key: one})


def mislabeled(state: State, _: State, rng: random.Random) -> Planted | None:
    """Every tensor, or one matrix, has the bytes of the other 16-bit dtype."""
    dtype = next(iter(state.values())).dtype
    if dtype not in OTHER_16:
        return None
    names = [key for key, one in state.items() if one.dtype == dtype]
    if rng.random() < 0.5:
        names = [rng.choice(linear(state))]
    changed = {key: state[key].to(OTHER_16[dtype]).view(dtype) for key in names}
    cause = "mislabeled-dtype"
    return Planted(label="mislabeled", cause=cause, severity="error", state=state | changed)


def fresh_model(_: State, fresh: State, __: random.Random) -> Planted | None:
    return Planted(label="fresh model", cause="untrained", state=fresh)


def fresh_layer(state: State, fresh: State, rng: random.Random) -> Planted | None:
    layers = sorted({found[0] for key in state if (found := LAYER.match(key))})
    if not layers:
        return None
    start = rng.choice(layers)
    changed = {key: fresh[key] for key in state if key.startswith(start)}
    return Planted(label="fresh layer", cause="untrained", state=state | changed)


def fresh_expert(state: State, fresh: State, rng: random.Random) -> Planted | None:
    experts = sorted({found[0] for key in state if (found := EXPERT.match(key))})
    if not experts:
        return None
    start = rng.choice(experts)
    changed = {key: fresh[key] for key in state if key.startswith(start)}
    return Planted(label="fresh expert", cause="untrained", state=state | changed)


def copied_attention(state: State, _: State, rng: random.Random) -> Planted | None:
    modules = sorted({found[0] for key in state if (found := ATTENTION.match(key))})
    if not modules:
        return None
    first = rng.choice(modules)
    found = ATTENTION.match(first)
    other = rng.choice(
        [
            one
            for one in modules
            if one != first
            and (match := ATTENTION.match(one))
            and match[1] == found[1]
            and match[3] == found[3]
        ]
    )
    changed = {
        key: state[other + key.removeprefix(first)]
        for key in state
        if key.startswith(first) and other + key.removeprefix(first) in state
    }
    return Planted(label="copied attention", cause="copied-modules", state=state | changed)


def mean_rows(state: State, _: State, rng: random.Random) -> Planted | None:
    """The last rows as `resize_token_embeddings` leaves them, with its noise or without."""
    key = next((key for key in state if ROWS.search(key)), None)
    if key is None:
        return None
    one = state[key].clone()
    added = rng.choice([1, 4, 12])
    old = one[:-added].float()
    noise = rng.choice([0.0, 3e-5]) * torch.randn(added, one.shape[1]) * old.std(0)
    one[-added:] = (old.mean(0) + noise).to(one.dtype)
    copies = {name: one for name in state if state[name].shape == one.shape and name != key}
    tied = {name: one for name in copies if torch.equal(state[name], state[key])}
    return Planted(
        label="mean rows", cause="mean-rows", severity="info", state=state | {key: one} | tied
    )


def thirds(state: State, rng: random.Random) -> Planted:
    """BF16 widened to F32: a third of the tensors, or a third of each matrix's numbers."""

    def widened(one: torch.Tensor) -> torch.Tensor:
        return one.bfloat16().float()

    names = [key for key, one in state.items() if one.is_floating_point() and one.ndim > 1]
    if rng.random() < 0.5:
        names = sorted(names, key=lambda key: -state[key].numel())[: max(2, len(names) // 3)]
        changed = {key: widened(state[key]) for key in names}
    else:
        changed = {}
        for key in names:
            chosen = torch.rand(state[key].shape) < 1 / 3
            changed[key] = torch.where(chosen, widened(state[key]), state[key])
    return Planted(label="a third padded", cause="padded-dtype", state=state | changed)


PLANTS: tuple[Callable[[State, State, random.Random], Planted | None], ...] = (
    zero_norms,
    constant,
    equal_rows,
    half_zero,
    thirds_zero,
    half_of_scales,
    flood,
    outlier,
    mislabeled,
    fresh_model,
    fresh_layer,
    fresh_expert,
    copied_attention,
    mean_rows,
)


def lora_case(  # noqa: PLR0913, PLR0917 - the two models, and what is drawn
    state: State, fresh: State, source: Path, place: Path, rng: random.Random, share: float
) -> Iterator[TrainedCase]:
    """What training changed, as a LoRA of rank 4; in a share of its modules B is zero."""
    modules = [key.removesuffix(".weight") for key in linear(state) if key.endswith(".weight")]
    modules = [key for key in modules if "experts" not in key and state[f"{key}.weight"].ndim == 2]
    modules = modules[:24]
    if len(modules) < 6:
        return
    idle = set(rng.sample(modules, round(share * len(modules))))
    tensors: State = {}
    changed = set()
    for module in modules:
        name = f"base_model.model.{module}.lora"
        change = state[f"{module}.weight"].float() - fresh[f"{module}.weight"].float()
        left, sizes, right = torch.linalg.svd(change, full_matrices=False)
        tensors[f"{name}_A.weight"] = right[:4]
        tensors[f"{name}_B.weight"] = left[:, :4] * sizes[:4]
        if module in idle:
            tensors[f"{name}_B.weight"] = torch.zeros_like(tensors[f"{name}_B.weight"])
            changed |= {f"{name}_A.weight", f"{name}_B.weight"}
    folder = place / source.name / f"lora-{share:.2f}"
    folder.mkdir(parents=True)
    save_file({key: one.contiguous() for key, one in tensors.items()}, folder / ADAPTER)
    settings = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 4,
        "target_modules": modules,
        "base_model_name_or_path": str(source),
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    yield TrainedCase(
        name=f"{source.name}, LoRA with {len(idle)} of {len(modules)} idle",
        folder=folder,
        cause="idle-modules" if idle else None,
        changed=frozenset(changed),
    )
