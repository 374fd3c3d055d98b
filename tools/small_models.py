"""Small models of transformers, built from a type's config and called, to see which configs work.

A composite config is small in all of its parts. `outcome` is None if the call succeeds, else the
error as text.
"""

import copy
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# A small value for each key that a config class has; sizes that belong together fit.
SMALL: Mapping[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "d_model": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_attention_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "max_position_embeddings": 64,
    "max_source_positions": 32,
    "max_target_positions": 64,
    "num_experts": 8,
    "num_local_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 0,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "image_size": 16,
    "patch_size": 8,
    "num_channels": 3,
}
# Types that do not work with the small values may with these in addition, one set after another.
OTHERS: tuple[Mapping[str, Any], ...] = (
    {},
    {"layer_types": None},
    {"num_key_value_heads": 4},
    {"head_dim": 8},
    {"head_dim": 8, "layer_types": None},
    {"moe_intermediate_size": [16, 16]},
    {"hidden_size": 256, "head_dim": 64},
    {"hidden_size": 256, "head_dim": 64, "num_hidden_layers": 8},
    {"num_experts_per_tok": 1},
    {"num_hidden_layers": 6},
    {"hidden_size": 512},
    {"vocab_size": 130_000},
    {"head_dim": 8, "hidden_size": 64, "num_attention_heads": 8, "vocab_size_per_layer_input": 64},
)
MOST = 30_000_000  # parameters of a model that is called
_MEL = ("num_mel_bins", "feature_size", "input_feat_size", "input_dim", "input_size", "n_mels")
_AUTOS = ("AutoModel", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM")


def small_values(kind: Any, more: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return small values for a config class, and for the configs in it."""
    defaults = kind().to_dict()
    names = kind.attribute_map
    wanted = {names.get(key, key): value for key, value in {**SMALL, **more}.items()}
    values = {key: value for key, value in wanted.items() if key in defaults}
    for key, part in kind.sub_configs.items():
        stated = defaults.get(key)
        if not isinstance(stated, Mapping):
            continue
        try:
            inner = config_class(stated.get("model_type")) if _is_auto(part) else part
            values[key] = {"model_type": inner.model_type, **small_values(inner, more)}
        except Exception:  # noqa: BLE001, S112 - the part keeps its defaults
            continue
    return values


def _is_auto(part: Any) -> bool:
    return part.__name__ == "AutoConfig"


def config_class(model_type: Any) -> Any:
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - seconds

    return CONFIG_MAPPING[model_type]


def model_class(config: Any) -> Any:
    """Return the class to call: of an auto class, else a model with this config class; or None."""
    import transformers  # noqa: PLC0415 - seconds

    for auto in _AUTOS:
        mapping = getattr(transformers, auto)._model_mapping
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    try:
        module = importlib.import_module(
            type(config).__module__.replace(".configuration_", ".modeling_")
        )
    except ImportError:
        return None
    classes = [
        one
        for name, one in inspect.getmembers(module, inspect.isclass)
        if getattr(one, "config_class", None) is type(config)
        and issubclass(one, transformers.PreTrainedModel)
        and not name.endswith("PreTrainedModel")
    ]
    return min(classes, key=lambda one: len(one.__name__), default=None)


def built(model_type: str, values: Mapping[str, Any]) -> Any:
    """Build a model of the type; raise the library's error, or ValueError for a large model."""
    import torch  # noqa: PLC0415 - seconds

    torch.manual_seed(0)
    config = config_class(model_type)(**copy.deepcopy(dict(values)))
    config._experts_implementation = "eager"
    kind = model_class(config)
    if kind is None:
        raise ValueError("no class")
    with torch.device("meta"):
        size = sum(one.numel() for one in kind._from_config(config).parameters())
    if size > MOST:
        raise ValueError(f"too large: {size:,} parameters")
    return kind._from_config(config, dtype=torch.float32).eval()


def outcome(model_type: str, values: Mapping[str, Any]) -> str | None:
    """Build the type's model and call it; return the error as text, None without one."""
    try:
        model = built(model_type, values)
    except Exception as error:  # noqa: BLE001 - any error of the library is the answer
        return text_of(error)
    return first_success(model.__call__, inputs_of(model.config))


def first_success(call: Callable[..., Any], inputs: Iterator[Mapping[str, Any]]) -> str | None:
    """Return None if the call succeeds with one of the inputs, else the most telling error."""
    import torch  # noqa: PLC0415 - seconds

    answer = "no inputs"
    for one in inputs:
        try:
            with torch.no_grad():
                call(**one)
        except Exception as error:  # noqa: BLE001 - any error of the library is the answer
            text = text_of(error)
            if answer == "no inputs" or _is_of_inputs(answer):
                answer = text
        else:
            return None
    return answer


def text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _is_of_inputs(error: str) -> bool:
    words = ("unexpected keyword", "missing", "You must specify", "Provide exactly", "NoneType")
    return any(word in error for word in words)


def number_in(config: Any, keys: tuple[str, ...], default: int) -> int:
    values = (getattr(config, key, None) for key in keys)
    return next((value for value in values if type(value) is int), default)


def inputs_of(config: Any) -> Iterator[dict[str, Any]]:
    """Yield inputs of the usual kinds: tokens, pixels, features of a sound, embeddings."""
    import torch  # noqa: PLC0415 - seconds

    ids = torch.randint(3, 60, (2, 16))
    mask = torch.ones_like(ids)
    size, channels = getattr(config, "image_size", 16), getattr(config, "num_channels", 3)
    size = size if isinstance(size, int) else 16
    yield {"input_ids": ids, "use_cache": False}
    yield {"input_ids": ids, "decoder_input_ids": ids, "use_cache": False}
    pixels = torch.zeros((1, channels, size, size))
    yield {"pixel_values": pixels}
    yield {"input_ids": ids[:1], "pixel_values": pixels, "attention_mask": mask[:1]}
    yield {"input_values": torch.zeros((1, 4000))}
    yield {"input_values": torch.zeros((1, 1, 4000))}
    yield {"input_values": torch.zeros((1, 4000)), "decoder_input_ids": ids[:1]}
    bins = number_in(config, _MEL, 80)
    frames = 2 * number_in(config, ("max_source_positions",), 32)
    for features in (torch.zeros((1, bins, frames)), torch.zeros((1, frames, bins))):
        for more in ({}, {"decoder_input_ids": ids[:1]}, {"attention_mask": torch.ones(1, frames)}):
            yield {"input_features": features, **more}
    width = number_in(config, ("hidden_size", "d_model"), 32)
    yield {"inputs_embeds": torch.zeros((1, 16, width)), "use_cache": False}
    yield {"inputs_embeds": torch.zeros((1, 16, width))}
    yield {"hidden_states": torch.zeros((1, 16, width))}
    yield {"past_values": torch.zeros((1, 64))}
