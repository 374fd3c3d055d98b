"""Checkpoints that transformers and peft write: sound ones, and faults in their numbers."""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from support.fault_bench import FAMILIES, written

from auditor.findings import Finding

LAYER = re.compile(r"(.*?\b(?:layers?|h|block)\.)(\d+)\.(.+)")
WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"
State = dict[str, torch.Tensor]
HEADS = ("lm_head.weight", "classifier.weight", "embed_out.weight")
OUTPUTS = {  # what is tied to the embedding
    "BertForMaskedLM": "cls.predictions.decoder.weight",
    "RobertaForMaskedLM": "lm_head.decoder.weight",
    "DistilBertForMaskedLM": "vocab_projector.weight",
    "WhisperForConditionalGeneration": "proj_out.weight",
} | dict.fromkeys(
    [
        "GemmaForCausalLM",
        "GPT2LMHeadModel",
        "OPTForCausalLM",
        "BloomForCausalLM",
        "T5ForConditionalGeneration",
        "BartForConditionalGeneration",
    ],
    "lm_head.weight",
)
ROWS, TOKENS = 96, 90  # of the embedding, and of the tokenizer


@dataclass(frozen=True, kw_only=True)
class ValueCase:
    """A folder, and the cause that its numbers show; None: it is sound.

    A fault that is planted in a fresh model is found beside `untrained`.
    """

    name: str
    folder: Path
    cause: str | None
    severity: str = "error"

    def is_named(self, findings: Iterable[Finding]) -> bool:
        return any((one.kind, one.severity) == (self.cause, self.severity) for one in findings)


def value_cases(name: str, place: Path) -> Iterator[ValueCase]:
    """All of one family, whose numbers are moved as training moves them."""
    written(name, place / "written")
    source = place / "written" / name
    fresh = load_file(source / WEIGHTS)
    yield from cases_of(source, fresh, _trained(fresh), place)


def cases_of(source: Path, fresh: State, trained: State, place: Path) -> Iterator[ValueCase]:
    """A fresh model, a trained one, and every fault in both where it can be."""
    name = source.name

    def made(label: str, state: State, cause: str | None = None, severity: str = "error"):
        folder = place / name / label.replace(" ", "-")
        shutil.copytree(source, folder)
        save_file({key: one.contiguous().clone() for key, one in state.items()}, folder / WEIGHTS)
        config = json.loads((folder / "config.json").read_text())
        if next(iter(state.values())).dtype is torch.bfloat16:
            config["dtype"] = "bfloat16"
        (folder / "config.json").write_text(json.dumps(config))
        if config.get("vocab_size") == ROWS:
            _tokenizer(folder)
        return ValueCase(name=f"{name}, {label}", folder=folder, cause=cause, severity=severity)

    yield made("fresh", fresh, "untrained", "warning")
    yield made("trained", trained)
    yield made("fresh in bf16", _as(fresh, torch.bfloat16), "untrained", "warning")
    yield made("trained in bf16", _as(trained, torch.bfloat16))
    rows = _embedding(trained)
    if len(trained[rows]) == ROWS:
        padded = _with_rows(trained[rows], range(TOKENS, ROWS), 0.0)
        yield made("padding rows", trained | {rows: padded})
    for label, state in (("fresh", fresh), ("trained", trained)):
        yield from _broken(label, state, made)
        yield from _rows(label, state, rows, made)
        yield from _copied(label, state, made)
    yield from _heads(fresh, trained, made)
    yield from _tied(source, trained, rows, made)
    yield from _biases(trained, made)
    yield made(
        "padded", _as(_as(trained, torch.bfloat16), torch.float32), "padded-dtype", "warning"
    )
    yield made(
        "padded fresh", _as(_as(fresh, torch.bfloat16), torch.float32), "padded-dtype", "warning"
    )


Made = Callable[..., ValueCase]


def _as(state: State, dtype: torch.dtype) -> State:
    return {key: one.to(dtype) if one.is_floating_point() else one for key, one in state.items()}


def _trained(state: State) -> State:
    """Every number moved, but for the padding token's row."""
    torch.manual_seed(1)
    moved = {}
    for key, one in state.items():
        if one.is_floating_point() and one.numel() > 1:
            step = 0.05 * torch.randn_like(one)
            moved[key] = torch.where((one == 0) & (one.ndim > 1), one, one + step)
        else:
            moved[key] = one
    return moved


def _matrices(state: State) -> list[str]:
    return [
        key for key, one in state.items() if one.ndim == 2 and ".1." in key and "bias" not in key
    ]


def _embedding(state: State) -> str:
    ends = ("word_embeddings.weight", "embed_tokens.weight", "wte.weight", "embed_in.weight")
    ends = (*ends, "shared.weight", "patch_embeddings.projection.weight")
    return next(key for end in ends for key in state if key.endswith(end))


def _with(one: torch.Tensor, value: float) -> torch.Tensor:
    changed = one.clone()
    changed.view(-1)[changed.numel() // 2] = value
    return changed


def _with_rows(one: torch.Tensor, rows: range, value: float | torch.Tensor) -> torch.Tensor:
    changed = one.clone()
    changed[list(rows)] = value
    return changed


def _broken(label: str, state: State, made: Made) -> Iterator[ValueCase]:
    matrices = _matrices(state)
    for value in (float("nan"), float("inf")):
        for at in (0, -1):
            key = matrices[at]
            changed = state | {key: _with(state[key], value)}
            yield made(f"{label} {value} {at}", changed, "not-finite")
    halves = _as(state, torch.bfloat16)
    key = matrices[0]
    yield made(f"{label} bf16 nan", halves | {key: _with(halves[key], float("nan"))}, "not-finite")
    for at in (0, len(matrices) // 2, -1):
        key = matrices[at]
        changed = state | {key: torch.zeros_like(state[key])}
        yield made(f"{label} zero {at}", changed, "all-zero", "warning")


def _rows(label: str, state: State, rows: str, made: Made) -> Iterator[ValueCase]:
    if len(state[rows]) != ROWS:
        return
    for what, value in (("zero", 0.0), ("alike", state[rows].mean(0))):
        changed = state | {rows: _with_rows(state[rows], range(80, TOKENS), value)}
        yield made(f"{label} rows {what}", changed, "untrained-rows", "warning")


def _copied(label: str, state: State, made: Made) -> Iterator[ValueCase]:
    """The last layer is the one before it; of T5 the first has a table that no other has."""
    layers = {key: found for key in state if (found := LAYER.match(key))}
    last = max(int(found[2]) for found in layers.values())
    changed = state | {
        key: state[f"{found[1]}{last - 1}.{found[3]}"]
        for key, found in layers.items()
        if int(found[2]) == last
    }
    yield made(f"{label} layers", changed, "repeated-layers", "info")


def _heads(fresh: State, trained: State, made: Made) -> Iterator[ValueCase]:
    for key in HEADS:
        if key in fresh:
            bias = key.replace("weight", "bias")
            changed = trained | {one: fresh[one] for one in (key, bias) if one in fresh}
            yield made("fresh head", changed, "fresh-head", "warning")


def _tied(source: Path, state: State, rows: str, made: Made) -> Iterator[ValueCase]:
    config = json.loads((source / "config.json").read_text())
    name = OUTPUTS.get(config["architectures"][0])
    if config.get("tie_word_embeddings", True) and name and name not in state:
        yield made("tied twice", state | {name: state[rows]})
        other = state | {name: _with(state[rows], 0.25)}
        yield made("tied differs", other, "tied-copy-differs")


def _biases(state: State, made: Made) -> Iterator[ValueCase]:
    for end in ("q_proj", "o_proj", "down_proj", "SelfAttention.q", "gate_up_proj"):
        weights = [key for key in state if key.endswith(f"{end}.weight")]
        if weights and weights[0].replace("weight", "bias") not in state:
            for what, severity in (("zero", "info"), ("not zero", "error")):
                added = {
                    key.replace(".weight", ".bias"): torch.full((len(state[key]),), 0.0)
                    + (0.1 if severity == "error" else 0.0) * torch.randn(len(state[key]))
                    for key in weights
                }
                yield made(f"bias {what} {end}", state | added, "added-bias-zero", severity)
            return


def _tokenizer(folder: Path) -> None:
    content = {
        "model": {"type": "WordLevel", "vocab": {f"t{at}": at for at in range(TOKENS)}},
        "added_tokens": [{"id": TOKENS - 1, "content": f"t{TOKENS - 1}"}],
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))


# --- adapters ---------------------------------------------------------------------------------


def adapter_cases(place: Path) -> Iterator[ValueCase]:
    """LoRA, DoRA, IA3, LoHa and LoKr of a small Llama: as they begin, half trained, trained."""
    import peft  # noqa: PLC0415 - takes seconds
    import transformers  # noqa: PLC0415 - the same

    name, targets = "LlamaForCausalLM", ["q_proj", "v_proj"]
    written(name, place / "base")
    kinds = {
        "lora": peft.LoraConfig(r=4, target_modules=targets),
        "dora": peft.LoraConfig(r=4, target_modules=targets, use_dora=True),
        "ia3": peft.IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]
        ),
        "loha": peft.LoHaConfig(r=4, target_modules=targets),
        "lokr": peft.LoKrConfig(r=4, target_modules=targets),
    }
    for kind, config in kinds.items():
        model = transformers.LlamaForCausalLM.from_pretrained(place / "base" / name)
        torch.manual_seed(2)
        made = peft.get_peft_model(model, config)
        folder = place / f"adapter-{kind}"
        made.save_pretrained(folder)
        settings = json.loads((folder / "adapter_config.json").read_text())
        settings["base_model_name_or_path"] = str(place / "base" / name)
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        yield ValueCase(name=f"{kind} as it begins", folder=folder, cause="no-op-adapter")
        fresh, trained = load_file(folder / ADAPTER), {}
        for key, one in fresh.items():
            trained[key] = one + 0.05 * torch.randn_like(one)
        half = {key: trained[key] if ".layers.0." in key else fresh[key] for key in fresh}
        for label, state in (("trained", trained), ("half trained", half)):
            other = place / f"adapter-{kind}-{label.replace(' ', '-')}"
            shutil.copytree(folder, other)
            save_file(state, other / ADAPTER)
            cause = "idle-modules" if label == "half trained" else None
            yield ValueCase(name=f"{kind}, {label}", folder=other, cause=cause, severity="warning")


def all_cases(place: Path) -> Iterator[ValueCase]:
    for name in FAMILIES:
        yield from value_cases(name, place)
    yield from adapter_cases(place)
