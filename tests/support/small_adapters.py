"""A small GPT-2, a LoRA of it, and what its files hold."""

import json
from pathlib import Path

from support.builders import safetensors_bytes

from auditor import Report, Unaudited
from auditor.findings import FindingKind, kind_of

CONFIG, FILE, WEIGHTS = "config.json", "adapter_config.json", "adapter_model.safetensors"
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "vocab_size": 40,
    "n_positions": 10,
}
BERT = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 40,
    "intermediate_size": 12,
    "max_position_embeddings": 10,
}
LORA = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "org/base",
    "r": 2,
    "lora_alpha": 4,
    "target_modules": ["c_attn"],
    "fan_in_fan_out": True,
}
BELOW = "base_model.model.transformer.h"
# (in, out) is (8, 24) for queries, keys and values in one: A is (2, 8) and B (24, 2).
TENSORS = {
    f"{BELOW}.{layer}.attn.c_attn.lora_{side}.weight": ("F32", shape)
    for layer in (0, 1)
    for side, shape in (("A", (2, 8)), ("B", (24, 2)))
}
OWN = 128  # 2 layers of r * (in + out) = 2 * (8 + 24)
# 12 D^2 + 13 D a layer, a row for each word and place, and a norm, for D = 8.
WHOLE = 2 * (12 * 8 * 8 + 13 * 8) + (40 + 10) * 8 + 2 * 8


def coded(value: object) -> bytes:
    return json.dumps(value).encode()


def files(settings: object = LORA, tensors=TENSORS) -> dict[str, bytes]:
    content = settings if isinstance(settings, bytes) else coded(settings)
    return {FILE: content, WEIGHTS: safetensors_bytes(tensors)}


def folder_of(path: Path, contents: dict[str, bytes]) -> str:
    path.mkdir(exist_ok=True)
    for name, content in contents.items():
        (path / name).write_bytes(content)
    return str(path)


def kinds(report: Report) -> set[FindingKind]:
    return {kind_of(finding) for finding in report.findings}


def clean(outcome: Report | Unaudited) -> Report:
    assert isinstance(outcome, Report), outcome
    assert (outcome.verdict, outcome.residual) == ("clean", 0), outcome.findings
    return outcome
