"""Classes in the code of model repositories that transformers has taken over under another name.

The files of both store the same tensors: under the same names, as conversion_mapping.py of
transformers states, or under names of their own, which transformers' conversion script maps. The
configs differ in keys. A twin covers a config that states every key that shapes a tensor and no
option that the class of transformers lacks; the code itself is never run.
"""

import re
from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.analytic import Config, Expectation
from auditor.analytic.expectation import ExpectedTensor, summed_expectation
from auditor.analytic.loading import Loading


class OwnNames(NamedTuple):
    """The names of a class's tensors in the files of custom code."""

    pairs: tuple[
        tuple[str, str], ...
    ]  # (pattern in transformers' name, what replaces it), in order
    transposed: frozenset[str] = frozenset()
    buffers: tuple[str, ...] = ()  # patterns of tensors that are not learned

    def of(self, expectation: Expectation) -> Expectation:
        """Return the tensors as the code stores them; those that lead to one name are joined."""
        tensors: dict[str, ExpectedTensor] = {}
        for one in expectation.tensors:
            name = self._name(one.name)
            shape = one.shape[::-1] if name in self.transposed else one.shape
            if name in tensors:
                shape = (tensors[name].shape[0] + shape[0], *shape[1:])
            source = self._name(one.tied_to) if one.tied_to else None
            tensors[name] = ExpectedTensor(name, shape, prod(shape), one.role, source)
        return summed_expectation(
            expectation.target,
            model_type=expectation.model_type,
            prefix="",
            tensors=tuple(tensors.values()),
            loading=Loading(buffers=self.buffers),
            library=expectation.library,
            by=expectation.by,
        )

    def _name(self, name: str) -> str:
        for pattern, replacement in self.pairs:
            name = re.sub(pattern, replacement, name)
        return name


class _Twin(NamedTuple):
    """The model type of transformers whose classes a repository's classes have become.

    The keys of nested configs have dots.
    """

    model_type: str
    classes: Mapping[str, str]  # class in auto_map -> class of transformers
    keys: Mapping[str, str]  # key that shapes tensors, always stated -> key of transformers
    fixed: Mapping[str, object]  # option -> its only value that is covered; None: absent
    multiples: Mapping[str, int] = MappingProxyType({})  # key -> what the code rounds it up to
    parts: Mapping[str, str] = MappingProxyType({})  # nested config of transformers -> its type
    squares: frozenset[str] = frozenset()  # keys of one number for two equal sides
    names: OwnNames | None = None  # None: those of transformers


class NativeTwin(NamedTuple):
    """The config that transformers' class reads, and the names in the files of the code."""

    config: Config
    names: OwnNames | None


def _same(names: str, part: str = "", its: str = "") -> dict[str, str]:
    return {f"{part}{name}": f"{its or part}{name}" for name in names.split()}


_PROJECTOR = r"model\.multi_modal_projector"
_KEPT = frozenset({"auto_map", "dtype", "quantization_config", "torch_dtype"})  # of nested configs


# Model type in config.json -> the twin.
_TWINS: Mapping[str, _Twin] = MappingProxyType(
    {
        "new": _Twin(  # the code of Alibaba-NLP/new-impl
            model_type="gte",
            classes={
                "NewModel": "GteModel",
                "NewForMaskedLM": "GteForMaskedLM",
                "NewForSequenceClassification": "GteForSequenceClassification",
                "NewForTokenClassification": "GteForTokenClassification",
            },
            keys=_same(
                "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
                "type_vocab_size"
            ),
            fixed={
                "layer_norm_type": "layer_norm",
                "pack_qkv": True,
                "position_embedding_type": "rope",
            },
        ),
        "nomic_bert": _Twin(  # the code of nomic-ai/nomic-bert-2048
            model_type="nomic_bert",
            classes={"NomicBertModel": "NomicBertModel"},
            keys={
                "n_embd": "hidden_size",
                "n_head": "num_attention_heads",
                "n_inner": "intermediate_size",
                "n_layer": "num_hidden_layers",
                **_same("type_vocab_size vocab_size"),
            },
            fixed={
                "activation_function": "swiglu",
                "mlp_fc1_bias": False,
                "mlp_fc2_bias": False,
                "num_experts": None,
                "num_heads_kv": None,
                "qkv_proj_bias": False,
                "rotary_emb_fraction": 1.0,
                "type_vocab_size": 2,
            },
            multiples={"n_inner": 256, "vocab_size": 64},
        ),
        "florence2": _Twin(  # the code of microsoft/Florence-2-large
            model_type="florence2",
            classes={"Florence2ForConditionalGeneration": "Florence2ForConditionalGeneration"},
            keys={
                **_same(
                    "d_model decoder_ffn_dim decoder_layers encoder_ffn_dim encoder_layers "
                    "max_position_embeddings vocab_size",
                    "text_config.",
                ),
                **_same(
                    "depths num_groups num_heads patch_padding patch_prenorm patch_size "
                    "patch_stride projection_dim",
                    "vision_config.",
                ),
                "vision_config.dim_embed": "vision_config.embed_dim",
                "vision_config.image_pos_embed.max_pos_embeddings": (
                    "vision_config.max_position_embeddings"
                ),
                "vision_config.visual_temporal_embedding.max_temporal_embeddings": (
                    "vision_config.max_temporal_embeddings"
                ),
            },
            fixed={
                "vision_config.image_pos_embed.type": "learned_abs_2d",
                "vision_config.visual_temporal_embedding.type": "COSINE",
            },
            parts={"text_config": "bart", "vision_config": "florence_vision"},
            names=OwnNames(
                pairs=(
                    (r"^lm_head\.", "language_model.lm_head."),
                    (r"^model\.language_model\.", "language_model.model."),
                    (rf"^{_PROJECTOR}\.image_projection\.weight$", "image_projection"),
                    (rf"^{_PROJECTOR}\.image_position_embed\.", "image_pos_embed."),
                    (rf"^{_PROJECTOR}\.", ""),
                    (r"^model\.vision_tower\.", "vision_tower."),
                    (r"^(vision_tower\.convs\.\d+)\.conv\.", r"\1.proj."),
                    (r"^(vision_tower\..*\.conv\d)\.", r"\1.fn.dw."),
                    (r"^(vision_tower\..*\.(?:channel|window)_attn)\.", r"\1.fn."),
                    (r"^(vision_tower\..*channel_block)\.norm1\.", r"\1.channel_attn.norm."),
                    (r"^(vision_tower\..*spatial_block)\.norm1\.", r"\1.window_attn.norm."),
                    (r"^(vision_tower\..*\.ffn)\.", r"\1.fn.net."),
                    (r"^(vision_tower\..*)\.norm2\.", r"\1.ffn.norm."),
                ),
                transposed=frozenset({"image_projection"}),
                buffers=(r"^language_model\.final_logits_bias$",),
            ),
        ),
        "internvl_chat": _Twin(  # the code of OpenGVLab/InternVL3-1B
            model_type="internvl",
            classes={"InternVLChatModel": "InternVLForConditionalGeneration"},
            keys={
                **_same(
                    "hidden_size intermediate_size num_attention_heads num_hidden_layers "
                    "num_key_value_heads vocab_size",
                    "llm_config.",
                    "text_config.",
                ),
                **_same(
                    "hidden_size image_size intermediate_size num_attention_heads num_channels "
                    "num_hidden_layers patch_size",
                    "vision_config.",
                ),
                "llm_config.tie_word_embeddings": "tie_word_embeddings",
                "vision_config.qk_normalization": "vision_config.use_qk_norm",
                "vision_config.qkv_bias": "vision_config.attention_bias",
            },
            fixed={
                "downsample_ratio": 0.5,
                "llm_config.model_type": "qwen2",
                "use_backbone_lora": 0,
                "use_llm_lora": 0,
                "vision_config.norm_type": "layer_norm",
            },
            parts={"text_config": "qwen2", "vision_config": "internvl_vision"},
            squares=frozenset({"vision_config.image_size", "vision_config.patch_size"}),
            names=OwnNames(
                pairs=(
                    (r"^multi_modal_projector\.layer_norm\.", "mlp1.0."),
                    (r"^multi_modal_projector\.linear_1\.", "mlp1.1."),
                    (r"^multi_modal_projector\.linear_2\.", "mlp1.3."),
                    (r"^vision_tower\.", "vision_model."),
                    (r"^(vision_model\.embeddings)\.cls_token$", r"\1.class_embedding"),
                    (r"^(vision_model\.embeddings\.position_embedding)s$", r"\1"),
                    (r"^(vision_model\..*\.patch_embedding)s\.projection\.", r"\1."),
                    (r"^(vision_model\.encoder\.layer)\.", r"\1s."),
                    (r"^(vision_model\..*)\.attention\.[qkv]_proj\.", r"\1.attn.qkv."),
                    (r"^(vision_model\..*)\.attention\.projection_layer\.", r"\1.attn.proj."),
                    (r"^(vision_model\..*)\.attention\.", r"\1.attn."),
                    (r"^(vision_model\..*)\.lambda_(\d)$", r"\1.ls\2"),
                    (r"^(vision_model\..*)\.layernorm_before\.", r"\1.norm1."),
                    (r"^(vision_model\..*)\.layernorm_after\.", r"\1.norm2."),
                ),
            ),
        ),
    }
)


def as_native_twin(config: Config, custom: str) -> NativeTwin | None:
    """Return the twin of a class of custom code with this config; None if no twin covers it.

    `custom` is the name of the class in auto_map.
    """
    twin, values = _TWINS.get(config.model_type or ""), config.values
    if twin is None or custom.rpartition(".")[2] not in twin.classes:
        return None
    sizes = {key: _value(values, key) for key in twin.keys}
    is_covered = (
        all(_is_size(size) for size in sizes.values())
        and all(_equal(_value(values, key), only) for key, only in twin.fixed.items())
        and all(sizes[key] % unit == 0 for key, unit in twin.multiples.items())
    )
    if not is_covered:
        return None
    native: dict[str, Any] = {
        **{key: value for key, value in values.items() if not twin.parts or key in _KEPT},
        **{part: {"model_type": kind} for part, kind in twin.parts.items()},
        "architectures": [twin.classes.get(name, name) for name in config.architectures],
        "model_type": twin.model_type,
    }
    for key, its in twin.keys.items():
        part, _, name = its.rpartition(".")
        size = [sizes[key]] * 2 if key in twin.squares else sizes[key]
        (native[part] if part else native)[name] = size
    return NativeTwin(replace(config, values=MappingProxyType(native)), twin.names)


def _value(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key with dots; None if it is absent."""
    part, _, rest = key.partition(".")
    value = values.get(part)
    if not rest:
        return value
    return _value(value, rest) if isinstance(value, Mapping) else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) or (
        isinstance(value, list) and all(isinstance(item, int) for item in value)
    )


def _equal(value: object, only: object) -> bool:
    return type(value) is type(only) and value == only
