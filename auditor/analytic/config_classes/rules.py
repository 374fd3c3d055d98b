"""The rules that find common mistakes in configs.

A rule fires only if transformers cannot load the config or build its model; a test compares it
with the library. If the library refuses a config for another reason, only the oracle reports it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from auditor.analytic.config_classes.completion import CompletedConfig
from auditor.analytic.config_classes.declarations import library
from auditor.analytic.config_classes.faults import ConfigFault, FaultOrigin
from auditor.messages import described

Rule = Callable[[CompletedConfig], Iterator[ConfigFault]]


def faults_by_rules(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield the faults of the config, then the faults of its nested configs."""
    for rule in RULES:
        yield from rule(config)
    for key in config.values:
        if (part := config.part(key)) is not None:
            yield from faults_by_rules(part)


# --- lists with an entry for each layer ---------------------------------------------------------


def layer_lists(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield faults of layer-type lists of the wrong length or with an unknown type.

    Examples: layer_types of 6 entries with num_hidden_layers 2;
    layer_types ["full_attention", "windowed"].
    """
    depth = config.get("num_hidden_layers")
    known_types = {
        "layer_types": library().layer_types | library().older_layer_types.keys(),
        "mlp_layer_types": library().mlp_layer_types,
    }
    for key, types_of_key in known_types.items():
        types = config.get(key)
        if not isinstance(types, list) or type(depth) is not int:
            return  # then transformers does not check the next list either
        unknown = [each for each in types if not isinstance(each, str) or each not in types_of_key]
        if unknown:
            observed = f"{config.named(key)} has {described(unknown[0])}"
            yield _fault(config, f"{observed}, which is not a layer type", key)
        elif len(types) != depth:
            yield _wrong_length(config, key, len(types), "num_hidden_layers")


def attention_layers_of_gpt_neo(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield a fault if GPT-Neo's list of attention types does not fit the number of layers.

    Example: attention_types [[["global", "local"], 2]], four layers, with num_layers 2. The list
    attention_layers, which is derived from attention_types, replaces it if it is in the file.
    """
    depth = config.get("num_layers")
    if config.kind.model_type != "gpt_neo" or type(depth) is not int:
        return
    layers, types = config.get("attention_layers"), config.get("attention_types")
    types = _TYPES_OF_GPT_NEO if types is None else types
    key, length = "attention_layers", len(layers) if isinstance(layers, list) else None
    if length is None and isinstance(types, list):
        counts = [len(kinds) * max(times, 0) for kinds, times in _well_formed(types)]
        key, length = "attention_types", sum(counts) if len(counts) == len(types) else None
    if length is not None and length != depth:
        yield _wrong_length(config, key, length, "num_layers")


_TYPES_OF_GPT_NEO = [[["global", "local"], 12]]  # by default


def _well_formed(types: list[Any]) -> Iterator[tuple[list[Any], int]]:
    for entry in types:
        match entry:
            case [list(kinds), int(times)]:
                yield kinds, times


def rotated_layers(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield a fault if `no_rope_layers` has fewer entries than the model has layers.

    Example: no_rope_layers [1, 1, 1, 0] with num_hidden_layers 6.
    """
    layers, depth = config.get("no_rope_layers"), config.get("num_hidden_layers")
    declared = "no_rope_layers" in config.kind.fields
    if declared and isinstance(layers, list) and type(depth) is int and len(layers) < depth:
        yield _wrong_length(config, "no_rope_layers", len(layers), "num_hidden_layers")


def stages_of_backbone(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield a fault if a list of a backbone's stages contains a stage that does not exist.

    Example: out_indices [1, 5] or out_features ["stage5"] with depths [2, 2, 6, 2].
    """
    depths = config.get("depths")
    if config.kind.model_type not in _BACKBONES or not isinstance(depths, list):
        return
    count = len(depths) + 1  # the stem is number 0
    stages = {"stem", *(f"stage{number}" for number in range(1, count)), *range(-count, count)}
    for key in ("out_indices", "out_features"):
        stated = config.get(key)
        named = stated if isinstance(stated, list) else []
        beyond = [one for one in named if isinstance(one, int | str) and one not in stages]
        if beyond:
            observed = f"{config.named(key)} has {described(beyond[0])}"
            reason = f"{observed}, and there are {len(depths)} stages"
            yield _fault(config, reason, key, "depths")


_BACKBONES = frozenset({"convnext", "resnet", "swin"})


def _wrong_length(config: CompletedConfig, key: str, length: int, depth_key: str) -> ConfigFault:
    depth = f"{config.named(depth_key)} is {described(config[depth_key])}"
    reason = f"{config.named(key)} has {described(length)} entries, and {depth}"
    return _fault(config, reason, key, depth_key)


# --- ids, widths and names ----------------------------------------------------------------------


def padding_id(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield a fault if the embedding has no row for the padding token.

    Example: pad_token_id 32000 with vocab_size 32000, whose rows are 0 to 31999.
    """
    rows, row = config.get("vocab_size"), config.get("pad_token_id")
    if "vocab_size" not in config.kind.fields or config.kind.model_type in _WITHOUT_PADDING.split():
        return
    if type(rows) is int and type(row) is int and not -rows <= row < rows:
        has = f"rows 0 to {described(rows - 1)}" if rows > 0 else "no rows"
        observed = f"{config.named('pad_token_id')} is {described(row)}"
        reason = f"{observed}, and the embedding has {has}"
        yield _fault(config, reason, "pad_token_id", origin=FaultOrigin.MODEL)


# Model types with a class whose embedding has no padding row or another number of rows.
_WITHOUT_PADDING = (
    "bloom clip_text_model falcon gpt2 gpt_bigcode gpt_neo gpt_neox gptj hubert mamba mamba2 "
    "marian mpnet mpt mt5 openai-gpt paligemma rwkv siglip_text_model t5 wav2vec2 wavlm whisper"
)


def undivided_width(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield a fault if a width must be a multiple of the number of heads and is not.

    Example: hidden_size 768 with num_attention_heads 10. Models that round the width of a
    head down, or have a key for it, are not checked.
    """
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if config.kind.model_type not in _EVEN_HEADS.split() or not _has_layers(config):
        return
    if type(width) is int and type(heads) is int and heads > 0 and width % heads:
        keys = config.own("hidden_size"), config.own("num_attention_heads")
        D, quotient, H, remainder = map(described, (width, width // heads, heads, width % heads))
        reason = f"{config.named(keys[0])} {D} is not a multiple of {config.named(keys[1])} {H}"
        arithmetic = f"{D} = {quotient} * {H} + {remainder}"
        yield _fault(config, f"{reason}: {arithmetic}", *keys, origin=FaultOrigin.MODEL)


# Model types that raise for such a width, in their config class or in their attention. Types with
# an encoder and a decoder are left out: some of their classes have only one of the two.
_EVEN_HEADS = (
    "bert blip_text_model blip_vision_model bloom camembert clip_text_model clip_vision_model "
    "deberta-v2 deepseek_v2 distilbert esm falcon gemma2 gemma3_text gpt2 gpt_bigcode gpt_neo "
    "gpt_neox gptj hubert layoutlm llama modernbert mpnet openai-gpt opt qwen2_5_vl_text "
    "qwen2_vl_text roberta siglip_text_model siglip_vision_model stablelm wav2vec2 wavlm "
    "xlm-roberta"
)


def activations(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield a fault for an activation that transformers does not define.

    Examples: hidden_act "gelu_fastest"; feed_forward_proj "gated-gelux".
    """
    for key in _ACTIVATIONS if _has_layers(config) else ():
        name = config.values.get(key)
        unread = key not in config.kind.fields or key in _UNREAD.get(config.kind.model_type, ())
        unread = unread or (key == "hidden_act" and config.values.get("use_swiglu_ffn") is True)
        if unread or not isinstance(name, str):
            continue
        if key == "feed_forward_proj":
            name = name.removeprefix("gated-")
        if name not in library().activations:
            observed = f"{config.named(key)} is {described(config.values[key])}"
            reason = f"{observed}, which is not an activation"
            yield _fault(config, reason, key, origin=FaultOrigin.MODEL)


_ACTIVATIONS = (
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "activation",
    "feat_extract_activation",
    "feed_forward_proj",
    "projector_hidden_act",
)
# Keys that a config class declares, and that its model does not read.
_UNREAD: Mapping[str, tuple[str, ...]] = MappingProxyType({"gpt_oss": ("hidden_act",)})


def label_names(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield a fault if label names are not an object from each label's number to its name.

    Examples: id2label ["no", "yes"]; id2label {"no": 0, "yes": 1}.
    """
    names = config.get("id2label")
    if names is None:
        return
    if not isinstance(names, Mapping):
        observed = f"{config.named('id2label')} is {described(names)}"
        yield _fault(config, f"{observed}, expected an object from number to name", "id2label")
    elif words := [key for key in names if not _NUMBER.fullmatch(str(key))]:
        observed = f"{config.named('id2label')} has the key {described(words[0])}"
        yield _fault(config, f"{observed}, expected the number of a label", "id2label")


_NUMBER = re.compile(r"\s*[+-]?\d+\s*")


def dtypes(config: CompletedConfig) -> Iterator[ConfigFault]:
    """Yield a fault for a dtype that torch does not have, or in which models cannot be built.

    Examples: dtype "torch.float16", whose name is "float16"; torch_dtype "auto"; dtype "int8".
    """
    key = "dtype" if config.get("dtype") is not None else "torch_dtype"
    name = config.get(key)
    if not isinstance(name, str):
        return
    expected = None
    if name == "auto":
        expected = "the name of a dtype, or no such key"
    elif name.startswith("torch."):
        expected = f'"{name.removeprefix("torch.")}"'
    elif _NO_DEFAULT.fullmatch(name) and not config.path and not any(map(config.get, _PACKED)):
        expected = "a dtype of floats of 16 bits or more"
    if expected:
        yield _fault(config, f"{config.named(key)} is {described(name)}, expected {expected}", key)


_NO_DEFAULT = re.compile(r"u?int\d+|bool|complex\d+|float8_\w+")  # not for building models
_PACKED = ("quantization_config", "quantization", "compression_config")


def _has_layers(config: CompletedConfig) -> bool:
    """Return whether the model has layers; if it has none, settings of layers are not checked."""
    depths = config.get("depths")
    depths = depths if isinstance(depths, list) else [config.get("num_hidden_layers")]
    return any(not isinstance(each, int) or each > 0 for each in depths)


def _fault(
    config: CompletedConfig, reason: str, *keys: str, origin: FaultOrigin = FaultOrigin.CLASS
) -> ConfigFault:
    return ConfigFault(reason, tuple(config.path + key for key in keys), origin)


RULES: tuple[Rule, ...] = (
    layer_lists,
    attention_layers_of_gpt_neo,
    rotated_layers,
    stages_of_backbone,
    padding_id,
    undivided_width,
    activations,
    label_names,
    dtypes,
)
