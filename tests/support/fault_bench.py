"""Checkpoints of many families that transformers writes, and single faults planted in them."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from support.builders import safetensors_bytes
from support.changes import with_names, with_values
from support.faults.families import MORE
from support.faults.fault import Fault

from auditor.analytic.config_keys import value_at
from auditor.checkpoint.snapshot import Snapshot, WeightHeader
from auditor.downloader import local_folder

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = {**SMALL, "num_hidden_layers": 12, "num_key_value_heads": 2, "tie_word_embeddings": False}

# Class -> what its config says beside the defaults of its type.
FAMILIES: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": SMALL,
    "BertForSequenceClassification": SMALL,
    "RobertaForMaskedLM": SMALL,
    "DistilBertForMaskedLM": {
        "vocab_size": 96,
        "dim": 32,
        "hidden_dim": 48,
        "n_layers": 3,
        "n_heads": 4,
        "max_position_embeddings": 64,
    },
    "ElectraForPreTraining": {**SMALL, "embedding_size": 16},
    "LlamaForCausalLM": GROUPED,
    "MistralForCausalLM": GROUPED,
    "Qwen2ForCausalLM": GROUPED,
    "Qwen3ForCausalLM": {**GROUPED, "head_dim": 8},
    "GemmaForCausalLM": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "Phi3ForCausalLM": {**GROUPED, "pad_token_id": 0},
    "GPT2LMHeadModel": {
        "vocab_size": 96,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 64,
    },
    "OPTForCausalLM": {
        "vocab_size": 96,
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "word_embed_proj_dim": 32,
    },
    "GPTNeoXForCausalLM": SMALL,
    "BloomForCausalLM": {"vocab_size": 96, "hidden_size": 32, "n_layer": 3, "n_head": 4},
    "MixtralForCausalLM": {**GROUPED, "num_local_experts": 4},
    "T5ForConditionalGeneration": {
        "vocab_size": 96,
        "d_model": 32,
        "d_ff": 48,
        "num_layers": 3,
        "num_heads": 4,
        "d_kv": 8,
    },
    "BartForConditionalGeneration": {
        "vocab_size": 96,
        "d_model": 32,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 40,
        "max_position_embeddings": 64,
    },
    "ViTForImageClassification": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": 16,
        "patch_size": 4,
        "num_labels": 5,
    },
    "WhisperForConditionalGeneration": {
        "vocab_size": 96,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 40,
        "max_source_positions": 30,
        "max_target_positions": 20,
        "num_mel_bins": 8,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
}

# Keys of which a fault is planted, wherever a family's config has them, and by how much.
COUNTS = (
    "num_hidden_layers",
    "n_layers",
    "n_layer",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
)
SIZES = {
    "vocab_size": (8, -16),
    "intermediate_size": (16,),
    "hidden_dim": (16,),
    "ffn_dim": (16,),
    "d_ff": (16,),
    "encoder_ffn_dim": (8,),
    "decoder_ffn_dim": (8,),
    "num_local_experts": (4, -2),
    "max_position_embeddings": (64, -32),
    "n_positions": (64,),
    "num_key_value_heads": (2, -1),
    "type_vocab_size": (1,),
    "max_source_positions": (10,),
    "num_mel_bins": (8,),
}
_LAYER = re.compile(r"(\b(?:layers?|h|block)\.)(\d+)\.")
WRAPPERS = ("_orig_mod.", "module.", "student.", "ema_model.model.")


@cache
def written(name: str, place: Path) -> Snapshot:
    """What transformers writes of a small model of the class."""
    import torch  # noqa: PLC0415 - takes seconds
    import transformers  # noqa: PLC0415 - the same

    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**FAMILIES, **MORE}[name]))
    model.save_pretrained(place / name)
    return local_folder.read(place / name, name)


def faults(name: str, snapshot: Snapshot) -> Iterator[Fault]:
    """Every single fault that can be planted in that checkpoint."""
    config = json.loads(snapshot.config.content)
    names = [tensor.name for head in snapshot.headers for tensor in head.parsed.tensors]
    for prefix in WRAPPERS:
        renamed = with_names(snapshot, {one: f"{prefix}{one}" for one in names})
        yield Fault(name=f"{name} behind {prefix}", snapshot=renamed, cause="wrapper-prefix")
    if any(".1." in one for one in names):
        inner = {one: one.replace(".1.", ".1._checkpoint_wrapped_module.") for one in names}
        whole = {one: one.replace(".mlp.", ".mlp._orig_mod.") for one in names if ".mlp." in one}
        for label, renames in (("a layer", inner), ("each mlp", whole)):
            if any(one != other for one, other in renames.items()):
                made = with_names(snapshot, renames)
                yield Fault(name=f"{name}, {label} wrapped", snapshot=made, cause="wrapper-prefix")
    for key in (key for key in COUNTS if key in config):
        for change in (1, -1):
            yield _field(name, snapshot, config, key, change)
    for key, changes in SIZES.items():
        for change in changes if value_at(config, key) else ():
            yield _field(name, snapshot, config, key, change)

    yield from _others(name, snapshot, config, names)


def stored(planted: Iterable[Fault]) -> Iterator[Fault]:
    """The faults with headers as a writer stores them: those of `faults` are known, not written."""
    for fault in planted:
        headers = tuple(map(_stored_header, fault.snapshot.headers))
        yield dataclasses.replace(fault, snapshot=replace(fault.snapshot, headers=headers))


def _stored_header(head: WeightHeader) -> WeightHeader:
    tensors = sorted(head.parsed.tensors, key=lambda tensor: tensor.span)
    table = {tensor.name: (tensor.dtype, tensor.shape) for tensor in tensors}
    content = safetensors_bytes(table, metadata=dict(head.parsed.metadata))
    return WeightHeader(name=head.name, size=len(content), prefix=content)


def _others(name: str, snapshot: Snapshot, config: dict, names: list[str]) -> Iterator[Fault]:
    heads = [one for one in names if one in {"lm_head.weight", "embed_out.weight"}]
    if heads and "lm_head.bias" not in names and not config.get("tie_word_embeddings"):
        without = without_tensors(snapshot, set(heads))
        fields = {"tie_word_embeddings": (config.get("tie_word_embeddings"), True)}
        yield Fault(
            name=f"{name} without head", snapshot=without, cause="head-not-saved", fields=fields
        )
    halves = with_values(snapshot, {"dtype": "bfloat16"})
    yield Fault(
        name=f"{name} said to be bfloat16",
        snapshot=halves,
        cause="dtype-doubled",
        fields={"dtype": ("bfloat16", "float32")},
    )
    packed = with_values(
        snapshot, {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}
    )
    yield Fault(
        name=f"{name} said to be GPTQ",
        snapshot=packed,
        cause="quantization-not-applied",
        fields={"quantization_config": ("gptq", None)},
    )
    shifted = {one: _shifted(one, 5) for one in names}
    if any(one != other for one, other in shifted.items()):
        yield Fault(
            name=f"{name}, layers from 5",
            snapshot=with_names(snapshot, shifted),
            cause="layers-renumbered",
        )
    keys = [key for key in (*COUNTS, *SIZES) if key in config and key != "max_position_embeddings"]
    if len(keys) > 2:
        one, other = keys[0], keys[2]
        changed = {one: config[one] + 1, other: config[other] * 2}
        yield Fault(
            name=f"{name}, {one} and {other}",
            snapshot=with_values(snapshot, changed),
            cause="config-field",
            fields={key: (value, config[key]) for key, value in changed.items()},
        )


def _shifted(name: str, by: int) -> str:
    return _LAYER.sub(lambda at: f"{at[1]}{int(at[2]) + by}.", name, count=1)


def without_tensors(snapshot: Snapshot, names: set[str]) -> Snapshot:
    heads = []
    for head in snapshot.headers:
        kept = tuple(one for one in head.parsed.tensors if one.name not in names)
        heads.append(replace(head, known=replace(head.parsed, tensors=kept)))
    return replace(snapshot, headers=tuple(heads))


def _field(name: str, snapshot: Snapshot, config: dict, key: str, change: int) -> Fault:
    held = value_at(config, key)
    return Fault(
        name=f"{name}, {key} {held} said to be {held + change}",
        snapshot=with_values(snapshot, {key: held + change}),
        cause="config-field",
        fields={key: (held + change, held)},
    )
