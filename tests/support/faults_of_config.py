"""Faults of a config, of its class and of what it says of packed weights, planted one at a time."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from support.changes import with_values
from support.fault_bench import GROUPED, SMALL, Fault, without_tensors
from support.packed_models import METHODS, packed

from auditor.analytic import Role, catalogue, read_config
from auditor.analytic.config_keys import Key, every_key, value_at
from auditor.checkpoint.snapshot import Snapshot
from auditor.errors import CheckpointError, SourceError

_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}

# Class -> what its config says beside the defaults of its type: families whose keys are nested, are
# lists, or decide on whole layers.
FAMILIES: dict[str, dict[str, Any]] = {
    "LlavaForConditionalGeneration": {
        "text_config": {**GROUPED, "model_type": "llama"},
        "vision_config": {**_VISION, "model_type": "clip_vision_model", "projection_dim": 24},
        "image_token_id": 95,
    },
    "CLIPModel": {
        "text_config": {**SMALL, "eos_token_id": 2},
        "vision_config": _VISION,
        "projection_dim": 24,
    },
    "DebertaV2ForMaskedLM": {
        **SMALL,
        "relative_attention": True,
        "position_buckets": 8,
        "pos_att_type": ["p2c", "c2p"],
    },
    "SwinForImageClassification": {
        "embed_dim": 16,
        "depths": [2, 3, 2],
        "num_heads": [2, 4, 8],
        "window_size": 4,
        "image_size": 64,
        "num_labels": 5,
    },
    "ResNetForImageClassification": {
        "embedding_size": 16,
        "hidden_sizes": [32, 48, 64],
        "depths": [2, 3, 2],
        "num_labels": 5,
    },
    "MambaForCausalLM": {
        "vocab_size": 96,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "state_size": 8,
        "tie_word_embeddings": False,
    },
    "DeepseekV3ForCausalLM": {
        **{key: value for key, value in GROUPED.items() if key != "num_key_value_heads"},
        "num_hidden_layers": 4,
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "q_lora_rank": 20,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 10,
        "first_k_dense_replace": 2,
        "num_key_value_heads": 4,
    },
    "Qwen3MoeForCausalLM": {
        **GROUPED,
        "head_dim": 12,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 20,
    },
    "Gemma3ForCausalLM": {**SMALL, "num_key_value_heads": 2, "head_dim": 12},
    "Wav2Vec2ForCTC": {
        **SMALL,
        "conv_dim": [16, 24, 32],
        "conv_kernel": [5, 3, 3],
        "conv_stride": [2, 2, 2],
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "num_feat_extract_layers": 3,
    },
}

# Packed on their own: shapes of a size that groups of 32 to 128 go into.
PACKED = "LlamaForCausalLM"
_LARGER = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 512}
_CHANGED = {  # settings that are planted instead of bits 4 and groups of 64
    "gptq": ({"bits": 8}, {"group_size": 128}, {"bits": 8, "group_size": 32}),
    "awq": ({"bits": 8}, {"group_size": 32}, {"group_size": -1}),
    "fp8": ({"weight_block_size": [32, 32]}, {"weight_block_size": [128, 128]}),
    "bitsandbytes": ({"load_in_4bit": False, "load_in_8bit": True},),
    "compressed-tensors": (
        {"config_groups.group_0.weights.group_size": 128},
        {"config_groups.group_0.weights.num_bits": 8},
    ),
    "mlx": ({"bits": 8}, {"group_size": 32}),
}
_LISTS = {
    "awq": "modules_to_not_convert",
    "fp8": "modules_to_not_convert",
    "compressed-tensors": "ignore",
}

# Keys of which several values would explain as much, by what an engineer knows of shapes alone.
_AMBIGUOUS = frozenset({"num_attention_heads", "num_heads", "n_head", "tie_word_embeddings"})


def of_config(name: str, snapshot: Snapshot) -> Iterator[Fault]:
    """Every fault of this module that can be planted in the checkpoint."""
    yield from faults(name, snapshot)
    yield from faults_of_class(name, snapshot)


def faults(name: str, snapshot: Snapshot) -> Iterator[Fault]:
    """Every shaping key with several values; another class; a half resize; a lost part."""
    draw = Random(name)  # noqa: S311 - the same faults each time
    config = json.loads(snapshot.config.content)
    shapes = expected_shapes(snapshot)
    for key in every_key(config):
        if key.path.rpartition(".")[2] in _AMBIGUOUS:
            continue
        for value in _others(draw, key):
            changed = with_values(snapshot, {key.path: value})
            if expected_shapes(changed) not in (shapes, None):
                yield Fault(
                    name=f"{name}, {key.path} {key.value} said to be {value}",
                    snapshot=changed,
                    cause="config-field",
                    fields={key.path: (value, key.value)},
                )
    yield from _half_resized(name, snapshot, config)


def expected_shapes(snapshot: Snapshot) -> dict[str, tuple[int, ...]] | None:
    """What the config implies, by name; None: nothing follows."""
    config = read_config("config.json", snapshot.config.content)
    try:
        found = catalogue.expect(config, config.architectures[0])
    except (CheckpointError, SourceError):
        return None
    return {one.name: one.shape for one in found.tensors if one.role is Role.PARAMETER}


def _others(draw: Random, key: Key) -> list[Any]:
    value = key.value
    if isinstance(value, bool):
        return [not value]
    if type(value) is int:
        several = [value + 1, value - 1, value * 2, value + draw.randint(2, 40), value // 2]
        return [one for one in draw.sample(several, 3) if one > 0 and one != value]
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        at = draw.randrange(len(value))
        return [[*value[:at], value[at] + step, *value[at + 1 :]] for step in (1, 3)]
    return []


def _half_resized(name: str, snapshot: Snapshot, config: dict[str, Any]) -> Iterator[Fault]:
    names = {one.name: one for head in snapshot.headers for one in head.parsed.tensors}
    rows = value_at(config, "vocab_size")
    embedding = next((one for one in names if one.endswith(_EMBEDDINGS)), None)
    if embedding is None or _BY_TOKEN.isdisjoint(names):
        return
    width = names[embedding].shape[1]
    longer = packed_shape(snapshot, embedding, (rows + 8, width))
    for declared in (rows, rows + 8):
        yield Fault(
            name=f"{name}, only {embedding} resized, {declared} declared",
            snapshot=with_values(longer, {"vocab_size": declared}),
            cause="half-resized",
        )


_BY_TOKEN = frozenset(
    ("lm_head.weight", "embed_out.weight", "cls.predictions.bias", "vocab_projector.bias")
)
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")


def packed_shape(snapshot: Snapshot, name: str, shape: tuple[int, ...]) -> Snapshot:
    """The checkpoint with another shape of one tensor."""
    from math import prod  # noqa: PLC0415 - the same

    from msgspec.structs import replace  # noqa: PLC0415 - beside its use

    heads = []
    for head in snapshot.headers:
        tensors = tuple(
            one._replace(shape=shape, elements=prod(shape)) if one.name == name else one
            for one in head.parsed.tensors
        )
        heads.append(replace(head, size=None, known=replace(head.parsed, tensors=tensors)))
    return replace(snapshot, headers=tuple(heads))


def faults_of_packing(snapshot: Snapshot) -> Iterator[Fault]:
    """Of a plain model with linears of several hundred inputs, packed in each way."""
    for method, changes in _CHANGED.items():
        sound = packed(snapshot, method, 8 if method == "fp8" else 4, 64)
        key = "quantization" if method == "mlx" else "quantization_config"
        settings = json.loads(sound.config.content)[key]
        yield Fault(
            name=f"{method} undeclared",
            snapshot=with_values(sound, {key: None}),
            cause="quantization-undeclared",
        )
        for change in changes:
            held = {path: value_at(settings, path) for path in change}
            yield Fault(
                name=f"{method}, said to have {change}",
                snapshot=with_values(sound, {f"{key}.{path}": change[path] for path in change}),
                cause="quantization-settings",
                fields={f"{key}.{path}": (change[path], held[path]) for path in change},
            )
        other = "gptq" if method != "gptq" else "awq"
        if method != "mlx":
            yield Fault(
                name=f"{method}, said to be {other}",
                snapshot=with_values(sound, {key: METHODS[other][1](4, 64)}),
                cause="quantization-settings",
                fields={f"{key}.quant_method": (other, method)},
            )
        if method in _LISTS:
            path = f"{key}.{_LISTS[method]}"
            yield Fault(
                name=f"{method}, {path} with modules that are packed",
                snapshot=with_values(sound, {path: ["lm_head", "model.layers.1.mlp.up_proj"]}),
                cause="quantization-settings",
                fields={path: (["lm_head", "model.layers.1.mlp.up_proj"], ["lm_head"])},
            )


def healthy_packed(snapshot: Snapshot) -> Iterator[Snapshot]:
    for method in METHODS:
        yield packed(snapshot, method, 8 if method == "fp8" else 4, 64)


def larger_config() -> dict[str, Any]:
    return {**GROUPED, **_LARGER}


# Class whose weights are stored -> classes and types that a config declares instead.
OTHER_CLASSES = {
    "BertForMaskedLM": ("BertForQuestionAnswering", "BertForTokenClassification"),
    "LlamaForCausalLM": ("LlamaForSequenceClassification",),
    "GPT2LMHeadModel": ("GPT2ForTokenClassification",),
    "ViTForImageClassification": ("ViTForMaskedImageModeling",),
}
OTHER_TYPES = {
    "DistilBertForMaskedLM": ("bert", "BertForMaskedLM"),
    "ViTForImageClassification": ("swin", "SwinForImageClassification"),
    "Qwen3ForCausalLM": ("qwen2", "Qwen2ForCausalLM"),
    "MixtralForCausalLM": ("llama", "LlamaForCausalLM"),
    "GPT2LMHeadModel": ("gpt_neox", "GPTNeoXForCausalLM"),
    "WhisperForConditionalGeneration": ("bart", "BartForConditionalGeneration"),
    "MambaForCausalLM": ("gpt2", "GPT2LMHeadModel"),
}
LOST_PARTS = {
    "LlavaForConditionalGeneration": ("vision_tower", "multi_modal_projector"),
    "CLIPModel": ("vision_model", "text_model"),
    "T5ForConditionalGeneration": ("decoder",),
    "BartForConditionalGeneration": ("model.decoder", "model.encoder"),
    "WhisperForConditionalGeneration": ("model.encoder",),
}


def faults_of_class(name: str, snapshot: Snapshot) -> Iterator[Fault]:
    declared = json.loads(snapshot.config.content)["architectures"]
    for other in OTHER_CLASSES.get(name, ()):
        yield Fault(
            name=f"{name} said to be {other}",
            snapshot=with_values(snapshot, {"architectures": [other]}),
            cause="other-class",
            fields={"architectures": ([other], declared)},
        )
    if name in OTHER_TYPES:
        model_type, other = OTHER_TYPES[name]
        said = {"model_type": model_type, "architectures": [other]}
        was = json.loads(snapshot.config.content)["model_type"]
        yield Fault(
            name=f"{name} under a config of {other}",
            snapshot=with_values(snapshot, said),
            cause="other-architecture",
            fields={"model_type": (model_type, was), "architectures": ([other], declared)},
        )
    names = {one.name for head in snapshot.headers for one in head.parsed.tensors}
    for part in LOST_PARTS.get(name, ()):
        lost = {one for one in names if one.startswith(f"{part}.")}
        yield Fault(
            name=f"{name} without {part}",
            snapshot=without_tensors(snapshot, lost),
            cause="lost-part",
        )
