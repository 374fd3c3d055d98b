"""Checkpoints of some megabytes, sound and with faults in their numbers, for a Hub on loopback.

Names and shapes are those that the configs imply; numbers are drawn here, as transformers begins
them (a normal distribution, ones and zeros) or moved from there, as training does. No torch.
"""

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from support.value_files import bf16

from auditor.analytic import Role, catalogue, read_config
from auditor.companions.companion_files import PROCESSORS, TOKENIZER

BERT = {
    "vocab_size": 4000,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "pad_token_id": 0,
}
LLAMA = {**BERT, "num_key_value_heads": 2, "tie_word_embeddings": False}
VIT = {**BERT, "id2label": {str(n): f"L{n}" for n in range(10)}}
T5 = {"vocab_size": 4000, "d_model": 256, "d_ff": 1024, "num_layers": 3, "num_heads": 4, "d_kv": 64}
T5 |= {"pad_token_id": 0}
GPT2 = {
    "vocab_size": 4000,
    "n_embd": 256,
    "n_layer": 4,
    "n_head": 4,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
# Class -> model type, what its config says, and the dtype of the file.
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "BertForSequenceClassification": ("bert", BERT, "F32"),
    "BertForMaskedLM": ("bert", BERT, "F32"),
    "RobertaForMaskedLM": ("roberta", {**BERT, "pad_token_id": 1}, "F32"),
    "LlamaForCausalLM": ("llama", LLAMA, "BF16"),
    "MistralForCausalLM": ("mistral", LLAMA, "F32"),
    "Qwen2ForCausalLM": ("qwen2", {**LLAMA, "tie_word_embeddings": True}, "BF16"),
    "GPT2LMHeadModel": ("gpt2", GPT2, "F32"),
    "T5ForConditionalGeneration": ("t5", T5, "F32"),
    "ViTForImageClassification": ("vit", VIT, "F32"),
}
TIED = {
    "BertForMaskedLM": "cls.predictions.decoder.weight",
    "RobertaForMaskedLM": "lm_head.decoder.weight",
    "Qwen2ForCausalLM": "lm_head.weight",
    "GPT2LMHeadModel": "lm_head.weight",
}
EMBEDDINGS = ("word_embeddings.weight", "embed_tokens.weight", "wte.weight", "shared.weight")
HEADS = ("lm_head.weight", "classifier.weight")
TOKENS, ROWS = 3990, 4000
State = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class SampledCase:
    """The files of a repository, and the cause that its numbers show; None: it is sound.

    `changed` are the tensors that show it, in each of their numbers; () where some numbers do that
    a sample has to choose.
    """

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]
    cause: str | None = None
    severity: str = "error"
    changed: tuple[str, ...] = ()
    adapter: bool = False
    others: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """A state of the tensors, and what is wrong with it."""

    label: str
    state: State
    cause: str | None = None
    severity: str = "error"
    changed: tuple[str, ...] = ()
    dtype: str | None = None  # None: the model's own


def sampled_cases(
    name: str, seed: int = 0, only: Container[str] | None = None
) -> Iterator[SampledCase]:
    """All of one class: as it begins, trained, and every fault that it can have; or some."""
    model_type, settings, dtype = MODELS[name]
    config = {"model_type": model_type, "architectures": [name], **settings}
    shapes = shapes_of(config, name)
    rng = np.random.default_rng(seed)
    rows = next((key for end in EMBEDDINGS for key in shapes if key.endswith(end)), None)
    fresh = {key: begun(key, shape, rng) for key, shape in shapes.items()}
    trained = {key: moved(one, rng) for key, one in fresh.items()}
    if rows is not None:
        trained[rows] = with_rows(trained[rows], [settings.get("pad_token_id", 0)])
    for one in _states(name, fresh, trained, rows, rng):
        if only is not None and one.label not in only:
            continue
        stored = one.dtype or dtype
        spelt = {"F32": "float32", "BF16": "bfloat16"}[stored]
        yield SampledCase(
            name=f"{name}, {one.label}",
            config={**config, "dtype": spelt},
            tensors={key: raw(tensor, stored) for key, tensor in sorted(one.state.items())},
            cause=one.cause,
            severity=one.severity,
            changed=one.changed,
            others={TOKENIZER: tokenizer()} if rows is not None else {PROCESSORS[0]: b"{}"},
        )


def _states(
    name: str, fresh: State, trained: State, rows: str | None, rng: np.random.Generator
) -> Iterator[_Fault]:
    yield _Fault(label="as it begins", state=fresh)
    yield _Fault(label="trained", state=trained)
    for dtype in ("F32", "BF16"):
        yield _Fault(label=f"trained in {dtype}", state=trained, dtype=dtype)
    halves = {key: rounded(one) for key, one in trained.items()}
    warning = "warning"
    yield _Fault(label="padded", state=halves, cause="padded-dtype", severity=warning, dtype="F32")
    if rows is not None:
        yield from _of_rows(trained, rows)
    for state, label in ((fresh, "as it begins"), (trained, "trained")):
        for each in _broken(state, rng):
            yield replace(each, label=f"{label}, {each.label}")
    for head in HEADS:
        if head in fresh:
            bias = head.replace("weight", "bias")
            state = trained | {key: fresh[key] for key in (head, bias) if key in fresh}
            yield _Fault(label="fresh head", state=state, cause="fresh-head", severity=warning)
    if name in TIED and rows is not None:
        other = trained | {TIED[name]: moved(trained[rows], rng)}
        yield _Fault(label="tied copy", state=other, cause="tied-copy-differs")
    weight = next((key for key in fresh if key.endswith("0.self_attn.o_proj.weight")), None)
    if weight is not None:
        bias, width, cause = weight.replace("weight", "bias"), len(fresh[weight]), "added-bias-zero"
        zero, other = ({bias: one} for one in (np.zeros(width), rng.standard_normal(width)))
        yield _Fault(label="zero bias", state=trained | zero, cause=cause, severity="info")
        yield _Fault(label="added bias", state=trained | other, cause=cause)


def _of_rows(state: State, rows: str) -> Iterator[_Fault]:
    """Rows that no token has, and those of the tokens that were added last."""
    padded = with_rows(state[rows], range(TOKENS, ROWS))
    yield _Fault(label="padding rows", state=state | {rows: padded})
    for label, value in (("zero", 0.0), ("alike", state[rows].mean(0))):
        changed = with_rows(state[rows], range(TOKENS - 10, TOKENS), value)
        yield _Fault(
            label=f"rows {label}",
            state=state | {rows: changed},
            cause="untrained-rows",
            severity="warning",
        )


def _broken(state: State, rng: np.random.Generator) -> Iterator[_Fault]:
    """Whole tensors of NaN, of Inf and of zeros."""
    norms = tuple(key for key in state if re.search(r"(?i)norm|ln_", key))
    matrices = tuple(key for key in state if state[key].ndim > 1 and re.search(r"\.\d+\..*w", key))
    matrices = tuple(key for key in matrices if "relative" not in key)
    last = max(int(found[1]) for key in matrices if (found := re.search(r"\.(\d+)\.", key)))
    of_last = tuple(key for key in matrices if f".{last}." in key)
    for label, names in (("all", tuple(state)), ("norms", norms), ("last layer", of_last)):
        yield _filled(f"NaN in {label}", state, names, np.nan)
    yield _filled("zeros in the last layer", state, of_last, 0)
    for name in rng.choice(matrices, 6, replace=False):
        yield _filled(f"Inf in {name}", state, (str(name),), np.inf)
        yield _filled(f"zeros in {name}", state, (str(name),), 0)


def _filled(label: str, state: State, names: tuple[str, ...], value: float) -> _Fault:
    zero = not value
    return _Fault(
        label=label,
        state=state | {name: np.full(state[name].shape, float(value)) for name in names},
        cause="all-zero" if zero else "not-finite",
        severity="warning" if zero else "error",
        changed=names,
    )


def adapter_cases_to_sample(seed: int = 0) -> Iterator[SampledCase]:
    """LoRA of rank 16 on four projections of a Llama whose config is org/base."""
    rng = np.random.default_rng(seed)
    rank, width, layers = 16, 1024, 8
    names = {
        f"base_model.model.model.layers.{layer}.self_attn.{module}_proj.lora_{side}.weight": side
        for layer in range(layers)
        for module in "qo"
        for side in "AB"
    }
    shapes = {"A": (rank, width), "B": (width, rank)}
    fresh = {
        key: rng.uniform(-0.03, 0.03, shapes[side]) if side == "A" else np.zeros(shapes[side])
        for key, side in names.items()
    }
    trained = {key: one + 0.01 * rng.standard_normal(one.shape) for key, one in fresh.items()}
    half = {key: (trained if ".3." in key or ".7." in key else fresh)[key] for key in fresh}
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "o_proj"],
        "base_model_name_or_path": "org/base",
        "task_type": "CAUSAL_LM",
    }
    made = SampledCase(name="", config=config, tensors={}, adapter=True)
    for label, state, cause in (
        ("as it begins", fresh, "no-op-adapter"),
        ("trained", trained, None),
        ("half trained", half, None),
    ):
        tensors = {key: raw(one, "F32") for key, one in sorted(state.items())}
        yield replace(made, name=f"LoRA {label}", tensors=tensors, cause=cause)


BASE_OF_ADAPTERS = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    **LLAMA,
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_key_value_heads": 4,
}


def shapes_of(config: Mapping[str, Any], name: str) -> dict[str, tuple[int, ...]]:
    """What the class stores."""
    expected = catalogue.expect(read_config("config.json", json.dumps(config).encode()), name)
    return {one.name: one.shape for one in expected.tensors if one.role is Role.PARAMETER}


def begun(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """As transformers starts a tensor of that name."""
    if len(shape) > 1:
        return 0.02 * rng.standard_normal(shape)
    is_norm = re.search(r"(?i)norm|ln_", name) and not name.endswith("bias")
    return np.ones(shape) if is_norm else np.zeros(shape)


def moved(one: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return one + 0.05 * rng.standard_normal(one.shape)


def with_rows(one: np.ndarray, rows: Any, value: Any = 0.0) -> np.ndarray:
    changed = one.copy()
    changed[list(rows)] = value
    return changed


def rounded(one: np.ndarray) -> np.ndarray:
    """To bfloat16."""
    return (bf16(one).astype(np.uint32) << 16).view(np.float32)


def raw(one: np.ndarray, dtype: str) -> tuple[str, tuple[int, ...], bytes]:
    numbers = bf16(one) if dtype == "BF16" else np.asarray(one, np.float32)
    return dtype, one.shape, numbers.tobytes()


def tokenizer() -> bytes:
    """So many tokens, of which the last ones were added."""
    vocabulary = {f"t{at}": at for at in range(TOKENS)}
    added = [{"id": at, "content": f"t{at}", "special": False} for at in range(TOKENS - 10, TOKENS)]
    content = {"model": {"type": "WordLevel", "vocab": vocabulary}, "added_tokens": added}
    return json.dumps(content).encode()
