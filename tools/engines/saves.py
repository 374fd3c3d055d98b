"""Small fresh saves of classes of transformers, as save_pretrained writes them.

Sizes come from one table of key names. A config has as many layers as its pattern of layers needs.
The model is first built on the meta device, where it takes no memory.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
import transformers
from safetensors.torch import load_file
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from auditor.engines.knowledge import value_by_rule

Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]

MOST_BYTES = 40_000_000
_MOST_LAYERS = 8
# A key takes the first size whose pattern it matches.
_SIZES = (
    (r"(hidden_size|n_embd|d_model|embed_dim|dim|width|projection_dim|out_hidden_size)", 64),
    (r"(num_(hidden_|decoder_)?layers|n_layers?|(en|de)coder_layers|depth|num_blocks)", 2),
    (r"(num_nextn_predict_layers|mtp_num_hidden_layers|num_kv_shared_layers)", 0),
    (r"(.*num_(key_value|kv)_heads|kv_n_heads|multi_query_group_num|linear_num_key_heads)", 2),
    (r"(.*num_attention_heads|n_heads?|num_heads|linear_num_value_heads|mamba_n_heads)", 4),
    (r"(encoder|decoder)_attention_heads", 4),
    (r"(.*(intermediate|ffn)_(size|dim|hidden_size)|n_inner|ffn_dim|ffn_size)", 128),
    (r"(vocab_size(_per_layer_input)?|embedding_table_size|\w+_vocab_size)", 256),
    (r"(max_position_embeddings|n_positions|max_seq_len|max_sequence_length)", 128),
    (r"(n_routed_experts|num_(local_)?experts|moe_num_experts|n_experts)", 4),
    (r"(num_experts_per_tok(en)?|moe_topk|moe_k|top_k_experts|num_experts_per_token|moe_top_k)", 2),
    (r"(n_group|topk_group|num_expert_group|n_groups|mamba_n_groups|zero_expert_num)", 1),
    (r"(first_k_dense_replace|num_dense_layers|n_shared_experts|num_shared_experts)", 1),
    (r"(q_lora_rank|kv_lora_rank|hidden_size_per_layer_input|laurel_rank|\w+_lora_rank)", 32),
    (r"(qk_rope_head_dim|qk_head_dim_rope|index_topk)", 8),
    (r"((\w+_)?head_dim|qk_nope_head_dim|mamba_d_head|mamba_head_dim|(\w+_)?state_size)", 16),
    (r"(lru_width|conv_dim|mamba_d_ssm|vision_output_dim)", 64),
    (r"(mamba_d_state|ssm_state_size|chunk_size|mamba_chunk_size|time_step_rank)", 16),
    (r"(index_n_heads|mamba_num_heads)", 4),
    (r"(sliding_window|attention_window_size|attention_chunk_size)", 32),
)
# Keys whose values change which tensors there are, beside the boolean ones.
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "q_lora_rank": (None,),
    "first_k_dense_replace": (0, 99),
    "num_shared_experts": (0,),
    "n_shared_experts": (0, None),
    "num_local_experts": (0,),
    "shared_intermediate_size": (0,),
    "decoder_sparse_step": (99,),
    "num_dense_layers": (0, 99),
    "hidden_size_per_layer_input": (0,),
}
_MOST_FLAGS = 5
# What a type needs beside the sizes, because its numbers depend on one another; text is a rule.
_OWN: Mapping[str, Config] = {
    "bamba": {"mamba_n_heads": "hidden_size/8", "mamba_d_head": 16, "attn_layer_indices": [1]},
    "dbrx": {
        "attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2},
        "ffn_config": {"hidden_size": 64, "ffn_hidden_size": 128, "moe_num_experts": 4},
    },
    "dory": {"n_input_layers": 1, "n_output_layers": 1},
    "dots1": {
        "first_k_dense_replace": 1,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
    },
    "dots3_note_text": {"num_key_value_heads": 4, "qk_nope_head_dim": 8},
    "falcon": {"ffn_hidden_size": "4*hidden_size"},
    "falcon_h1": {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64},
    "glm5_next_text": {"num_key_value_heads": 4},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "gpt_neox": {"intermediate_size": "4*hidden_size"},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {
        "mamba_n_heads": "hidden_size/8",
        "mamba_d_head": 16,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "hunyuan_v1_dense": {"head_dim": 16, "num_key_value_heads": 2},
    "hunyuan_v1_moe": {"head_dim": 16, "num_key_value_heads": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "llama4_vision_model": {"projector_input_dim": 64, "projector_output_dim": 64},
    "mamba2": {"num_heads": "hidden_size/8", "head_dim": 16, "expand": 2, "n_groups": 1},
    "mistral4": {"qk_nope_head_dim": 8, "qk_head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "zamba2": {
        "num_hidden_layers": 2,
        "layers_block_type": ["linear_attention", "hybrid"],
        "hybrid_layer_ids": [1],
        "num_key_value_heads": 4,
        "attention_head_dim": "hidden_size/2",
        "mamba_headdim": "hidden_size/4",
    },
    "zaya": {"num_experts_per_tok": 1},
}
_AUTO = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
)


class Save(NamedTuple):
    """One model as save_pretrained writes it."""

    class_name: str
    model_type: str
    config: Config
    tensors: Tensors
    base_prefix: str = ""  # `model.`; empty for a class without a base model
    head: str = ""  # the name of the output embedding's weight, if the class has one
    head_shape: tuple[int, ...] = ()
    changes: Mapping[str, Any] = {}  # the keys that were set beside the sizes


class Outside(Exception):  # noqa: N818 - it says where a class lies
    """A class that cannot be built small here, with the reason."""


@cache
def model_type_of(class_name: str) -> str:
    """Return the model type of a class's own config."""
    cls = getattr(transformers, class_name, None)
    config_class = getattr(cls, "config_class", None)
    if not isinstance(getattr(config_class, "model_type", None), str):
        raise Outside("transformers does not export the class")
    return config_class.model_type


def head_class(model_type: str) -> str:
    """Return a model type's class with a language head; raise Outside if it has none."""
    names = [getattr(modeling_auto, auto).get(model_type) for auto in _AUTO]
    candidates = [name for name in names if isinstance(name, str)]
    own = [name for name in candidates if _is_own(name, model_type)]
    if not own:
        raise Outside("transformers has no language model of this type")
    return own[0]


def relatives(model_type: str) -> dict[str, str]:
    """Return the base class and the class for sequence classification, by the probe's word."""
    autos = {
        "base": "MODEL_MAPPING_NAMES",
        "score": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    }
    found = {word: getattr(modeling_auto, auto).get(model_type) for word, auto in autos.items()}
    return {
        word: name
        for word, name in found.items()
        if isinstance(name, str) and _is_own(name, model_type)
    }


def _is_own(class_name: str, model_type: str) -> bool:
    try:
        return model_type_of(class_name) == model_type
    except Outside:
        return False


def defaults_of(model_type: str) -> Config:
    """Return the default config of a model type; raise Outside if it has none."""
    try:
        return CONFIG_MAPPING[model_type]().to_dict()
    except KeyError:
        raise Outside("transformers does not have the model type") from None
    except Exception as error:
        raise Outside(f"no default config: {str(error)[:120]}") from error


def small_config(
    model_type: str, changes: Mapping[str, Any], sizes: Mapping[str, int] | None = None
) -> Any:
    """Return a small config of a model type; `sizes` overrides sizes, `changes` sets keys.

    A dotted key is one of a nested config.
    """
    defaults = defaults_of(model_type)
    config_class = CONFIG_MAPPING[model_type]
    last: Exception = Outside("no number of layers fits")
    wanted = (sizes or {}).get("num_hidden_layers", 2)
    for layers in range(wanted, _MOST_LAYERS + 1):
        keywords = _small(defaults, {**(sizes or {}), "num_hidden_layers": layers}, model_type)
        for key, value in changes.items():
            _put(keywords, key, value)
        try:
            config = config_class(**keywords)
        except Exception as error:  # noqa: BLE001 - any error says that the sizes do not fit
            last = error
            continue
        if "num_hidden_layers" in changes or _shows_pattern(config, layers):
            return config
        last = Outside("the pattern of layers is too long")
    raise Outside(f"no small config: {str(last)[:120]}")


def _small(defaults: Mapping[str, Any], sizes: Mapping[str, int], model_type: str = "") -> Config:
    """Return keywords with small values for what the defaults contain."""
    keywords: Config = {}
    for key, value in defaults.items():
        if isinstance(value, dict) and ("model_type" in value or key.endswith("_config")):
            own = dict(sizes) if key == "text_config" else {}
            keywords[key] = _small(value, own, str(value.get("model_type", "")))
            if "model_type" in value:
                keywords[key]["model_type"] = value["model_type"]
        elif key.endswith("token_id") and isinstance(value, int):
            keywords[key] = value if value < 250 else 250 + value % 5
        elif type(value) is int and value > 0 and (size := _size_of(key, sizes)) is not None:
            keywords[key] = size
    for key, value in _OWN.get(model_type, {}).items():
        known = {**defaults, **keywords}
        keywords[key] = value_by_rule(value, known) if isinstance(value, str) else value
    return keywords


_SCALED = {64: "hidden_size", 2: "num_hidden_layers", 128: "intermediate_size"}


def _size_of(key: str, sizes: Mapping[str, int]) -> int | None:
    """Return a key's size; a key with another name for one of `sizes` takes that."""
    if key in sizes:
        return sizes[key]
    for pattern, size in _SIZES:
        if re.fullmatch(pattern, key):
            name = _SCALED.get(size, "")
            return sizes[name] if name in sizes and re.fullmatch(pattern, name) else size
    return None


def _put(keywords: Config, key: str, value: Any) -> None:
    *outer, last = key.split(".")
    for part in outer:
        keywords = keywords.setdefault(part, {})
    keywords[last] = value


def _shows_pattern(config: Any, layers: int) -> bool:
    """Return whether the layers are of as many kinds as those of the class's defaults."""
    text = config.get_text_config()
    types = getattr(text, "layer_types", None)
    full = type(text)().to_dict().get("layer_types")
    if not types or not full:
        return True
    return len(set(types)) >= len(set(full)) or layers >= _MOST_LAYERS


def hollow(class_name: str, changes: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """Return a small model of a class on the meta device; raise Outside if there is none."""
    config = small_config(model_type_of(class_name), changes, sizes)
    try:
        with torch.device("meta"):
            return getattr(transformers, class_name)(config)
    except Exception as error:
        raise Outside(f"not built: {type(error).__name__}: {str(error)[:120]}") from error


def build(
    class_name: str,
    changes: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Save:
    """Return a small save of a class; raise Outside if there is none."""
    meta = hollow(class_name, changes or {}, sizes or {})
    count = sum(tensor.numel() for tensor in meta.state_dict().values())
    if 2 * count > MOST_BYTES:
        raise Outside(f"a small save has {2 * count:,} bytes")
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        try:
            model = type(meta)(meta.config).to(torch.bfloat16)
            model.save_pretrained(folder)
        except Exception as error:
            raise Outside(f"not saved: {type(error).__name__}: {str(error)[:120]}") from error
        tensors = load_file(Path(folder, "model.safetensors"))
        written = json.loads(Path(folder, "config.json").read_text())
    prefix = f"{model.base_model_prefix}." if model.base_model_prefix else ""
    in_names = prefix and any(name.startswith(prefix) for name in tensors)
    return Save(
        class_name,
        model_type_of(class_name),
        written,
        tensors,
        prefix if in_names else "",
        *_head(model),
        changes or {},
    )


def _head(model: Any) -> tuple[str, tuple[int, ...]]:
    """Return the name and the shape of the output embedding's weight."""
    head = model.get_output_embeddings()
    for name, module in model.named_modules():
        if head is not None and module is head and hasattr(head, "weight"):
            return f"{name}.weight", tuple(head.weight.shape)
    return "", ()


def variants(class_name: str) -> Iterator[tuple[Config, Save]]:
    """Yield a save for each set of kinds that the class's flags make, the defaults first."""
    first = build(class_name)
    seen = {kinds(first.tensors)}
    yield {}, first
    deciding: list[tuple[str, Any]] = []
    plain = hollow(class_name, {}, {}).state_dict().keys()
    text = first.config.get("text_config", first.config)
    depth = (("num_hidden_layers", 2),) if text.get("num_hidden_layers", 2) > 2 else ()
    for key, value in (*depth, *flips(first.config)):
        try:
            names = hollow(class_name, {key: value}, {}).state_dict().keys()
            if names == plain and "tie_word_embeddings" not in key:
                continue
            save = build(class_name, {key: value})
        except Outside:
            continue
        if kinds(save.tensors) not in seen:
            seen.add(kinds(save.tensors))
            deciding.append((key, value))
            yield {key: value}, save
    for size in range(2, len(deciding[:_MOST_FLAGS]) + 1):
        for chosen in itertools.combinations(deciding[:_MOST_FLAGS], size):
            changes = dict(chosen)
            if len(changes) < size:
                continue
            try:
                save = build(class_name, changes)
            except Outside:
                continue
            if kinds(save.tensors) not in seen:
                seen.add(kinds(save.tensors))
                yield changes, save


def flips(config: Mapping[str, Any], outer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys that may change which tensors there are, with other values."""
    for key, value in sorted(config.items(), key=lambda item: item[0] != "tie_word_embeddings"):
        if isinstance(value, bool) and key not in {"return_dict", "use_cache"}:
            yield outer + key, not value
        elif key == "text_config" and isinstance(value, dict):
            yield from flips(value, "text_config.")
        for choice in _CHOICES.get(key, ()):
            if choice != value:
                yield outer + key, choice
    if not outer and "tie_word_embeddings" not in config:
        yield "tie_word_embeddings", True
        yield "tie_word_embeddings", False


def kind_of(name: str) -> str:
    """Return a tensor's name with each number replaced by a star."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def kinds(names: Any) -> tuple[str, ...]:
    """Return the kinds of tensors' names, sorted."""
    return tuple(sorted({kind_of(name) for name in names}))
