"""Classes in the code of model repositories that transformers has taken over under another name.

The files of both store the same tensors: under the same names, as conversion_mapping.py of
transformers states, or under names of their own, which a published conversion script maps. The
configs differ in keys. A twin covers a config that states every key that shapes a tensor and no
option that the class of transformers lacks; the code itself is never run.
"""

import re
from collections.abc import Iterator, Mapping
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
    batched: frozenset[str] = frozenset()  # names with a leading dimension of 1
    splits: Mapping[str, Mapping[str, int]] = MappingProxyType({})  # name -> parts of its rows
    adapters: tuple[int, int] | None = None  # number and rank of the LoRA of each matrix

    def of(self, expectation: Expectation) -> Expectation:
        """Return the tensors as the code stores them; those that lead to one name are joined."""
        tensors: dict[str, ExpectedTensor] = {}
        for one in expectation.tensors:
            name = self._name(one.name)
            shape = one.shape[::-1] if name in self.transposed else one.shape
            if name in tensors:
                shape = (tensors[name].shape[0] + shape[0], *shape[1:])
            elif name in self.batched:
                shape = (1, *shape)
            source = self._name(one.tied_to) if one.tied_to else None
            tensors[name] = ExpectedTensor(name, shape, prod(shape), one.role, source)
        return summed_expectation(
            expectation.target,
            model_type=expectation.model_type,
            prefix="",
            tensors=tuple(part for one in tensors.values() for part in self._parts(one)),
            loading=Loading(buffers=self.buffers),
            library=expectation.library,
            by=expectation.by,
        )

    def _parts(self, whole: ExpectedTensor) -> Iterator[ExpectedTensor]:
        """Yield the tensors in which the code stores a tensor of transformers."""
        name, (rows, *rest) = whole.name, whole.shape
        shapes: dict[str, tuple[int, ...]] = {name: whole.shape}
        if name in self.splits:
            unit = rows // sum(self.splits[name].values())
            shapes = {part: (unit * share, *rest) for part, share in self.splits[name].items()}
        elif self.adapters is not None and rest:  # torch's parametrizations, and jina's LoRA
            count, rank = self.adapters
            before, after = (rows, rank), (rank, rest[0])
            if ".embeddings." not in name:
                before, after = after, before
            module = f"{name.removesuffix('.weight')}.parametrizations.weight"
            shapes = {
                f"{module}.original": whole.shape,
                f"{module}.0.lora_A": (count, *before),
                f"{module}.0.lora_B": (count, *after),
            }
        for part, shape in shapes.items():
            yield whole._replace(name=part, shape=shape, elements=prod(shape))

    def _name(self, name: str) -> str:
        for pattern, replacement in self.pairs:
            name = re.sub(pattern, replacement, name)
        return name


class _Twin(NamedTuple):
    """The model type of transformers whose classes a repository's classes have become.

    The keys of nested configs have dots.
    """

    stated: str  # model type in config.json
    model_type: str
    classes: Mapping[str, str]  # class in auto_map -> class of transformers
    keys: Mapping[str, str]  # key that shapes tensors, always stated -> key of transformers
    fixed: Mapping[str, object]  # option -> the value or values that are covered; None: absent
    implied: Mapping[str, object] = MappingProxyType({})  # key of transformers -> its value
    multiples: Mapping[str, int] = MappingProxyType({})  # key -> what the code rounds it up to
    parts: Mapping[str, str] = MappingProxyType({})  # nested config of transformers -> its type
    taken: Mapping[str, str] = MappingProxyType({})  # nested config -> that of transformers
    squares: frozenset[str] = frozenset()  # keys of one number for two equal sides
    names: OwnNames | None = None  # None: those of transformers
    adapters: tuple[str, str] | None = None  # keys: a list of adapters, and their rank
    package: str | None = None  # that has the classes, if no repository does
    is_library: bool = False  # transformers itself writes the type, with names of its own


class NativeTwin(NamedTuple):
    """The config that transformers' class reads, and the names in the files of the code."""

    config: Config
    names: OwnNames | None
    package: str | None  # that has the class, if no repository does


def _same(names: str, part: str = "", its: str = "") -> dict[str, str]:
    return {f"{part}{name}": f"{its or part}{name}" for name in names.split()}


_SIZES_OF_BERT = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size type_vocab_size"
)
_SIGLIP = "vision_model.vision_tower"
_PROJECTOR = r"model\.multi_modal_projector"
_SIZES_OF_LLAMA = "vocab_size hidden_size intermediate_size num_attention_heads num_key_value_heads"
_NAMES_OF_EXAONE = OwnNames(
    pairs=(
        (r"^model\.embed_tokens\.", "transformer.wte."),
        (r"^model\.layers\.", "transformer.h."),
        (r"^model\.norm\.", "transformer.ln_f."),
        (r"\.self_attn\.o_proj\.", ".attn.attention.out_proj."),
        (r"\.self_attn\.", ".attn.attention."),
        (r"\.input_layernorm\.", ".ln_1."),
        (r"\.post_attention_layernorm\.", ".ln_2."),
        (r"\.mlp\.gate_proj\.", ".mlp.c_fc_0."),
        (r"\.mlp\.up_proj\.", ".mlp.c_fc_1."),
        (r"\.mlp\.down_proj\.", ".mlp.c_proj."),
    ),
)
_KEPT = frozenset({"auto_map", "dtype", "quantization_config", "torch_dtype"})  # of nested configs


_TWINS = (
    _Twin(  # the code of Alibaba-NLP/new-impl
        stated="new",
        model_type="gte",
        classes={
            "NewModel": "GteModel",
            "NewForMaskedLM": "GteForMaskedLM",
            "NewForSequenceClassification": "GteForSequenceClassification",
            "NewForTokenClassification": "GteForTokenClassification",
        },
        keys=_same(_SIZES_OF_BERT),
        fixed={
            "layer_norm_type": "layer_norm",
            "pack_qkv": True,
            "position_embedding_type": "rope",
        },
    ),
    _Twin(  # the code of nomic-ai/nomic-bert-2048
        stated="nomic_bert",
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
    _Twin(  # the code of microsoft/Florence-2-large
        stated="florence2",
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
    _Twin(  # the code of OpenGVLab/InternVL3-1B
        stated="internvl_chat",
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
    _Twin(  # the code of jinaai/jina-embeddings-v3; pooler and LoRA are in its files
        stated="xlm-roberta",
        model_type="jina_embeddings_v3",
        classes={"XLMRobertaLoRA": "JinaEmbeddingsV3Model"},
        keys=_same(f"{_SIZES_OF_BERT} max_position_embeddings"),
        fixed={
            "last_layer_subset": None,
            "load_trained_adapters": True,
            "pad_vocab_size_multiple": None,
            "position_embedding_type": frozenset({"rotary", None}),
        },
        names=OwnNames(pairs=((r"^", "roberta."),)),
        adapters=("lora_adaptations", "lora_rank"),
    ),
    _Twin(  # the code of jinaai/jina-reranker-v2-base-multilingual
        stated="xlm-roberta",
        model_type="xlm-roberta",
        classes={"XLMRobertaForSequenceClassification": "XLMRobertaForSequenceClassification"},
        keys=_same(f"{_SIZES_OF_BERT} max_position_embeddings"),
        fixed={
            "last_layer_subset": None,
            "pad_vocab_size_multiple": None,
            "position_embedding_type": "absolute",
            "use_flash_attn": True,
        },
        names=OwnNames(  # as its convert_roberta_weights_to_flash.py renames
            pairs=(
                (r"^roberta\.embeddings\.LayerNorm\.", "roberta.emb_ln."),
                (r"^roberta\.encoder\.layer\.", "roberta.encoder.layers."),
                (r"\.attention\.self\.(?:query|key|value)\.", ".mixer.Wqkv."),
                (r"\.attention\.output\.dense\.", ".mixer.out_proj."),
                (r"\.attention\.output\.LayerNorm\.", ".norm1."),
                (r"\.intermediate\.dense\.", ".mlp.fc1."),
                (r"\.output\.dense\.", ".mlp.fc2."),
                (r"\.output\.LayerNorm\.", ".norm2."),
            ),
        ),
    ),
    _Twin(  # deepseek-ai/deepseek-vl-1.3b-chat; its pooling is in the files, and not used
        stated="multi_modality",
        model_type="deepseek_vl",
        package="deepseek_vl",
        classes={"MultiModalityCausalLM": "DeepseekVLForConditionalGeneration"},
        keys={},
        fixed={
            "aligner_config.cls": "MlpProjector",
            "aligner_config.params.depth": 2,
            "aligner_config.params.input_dim": 1024,
            "aligner_config.params.projector_type": "mlp_gelu",
            "gen_vision_config": None,
            "language_config.model_type": "llama",
            "language_config.tie_word_embeddings": frozenset({False, None}),
            "vision_config.cls": "CLIPVisionTower",
            "vision_config.params.image_size": 384,
            "vision_config.params.model_name": "siglip_large_patch16_384",
            "vision_config.params.select_layer": -1,
        },
        implied={
            "tie_word_embeddings": False,
            "vision_config.hidden_size": 1024,
            "vision_config.image_size": 384,
            "vision_config.intermediate_size": 4096,
            "vision_config.num_attention_heads": 16,
            "vision_config.num_hidden_layers": 24,
            "vision_config.patch_size": 16,
        },
        parts={"vision_config": "siglip_vision_model"},
        taken={"language_config": "text_config"},
        names=OwnNames(
            pairs=(
                (r"^model\.aligner\.linear1\.", "aligner.layers.0."),
                (r"^model\.aligner\.linear2\.", "aligner.layers.2."),
                (r"^lm_head\.", "language_model.lm_head."),
                (r"^model\.language_model\.", "language_model.model."),
                (r"^model\.vision_model\.", f"{_SIGLIP}."),
                (rf"^{_SIGLIP}\.embeddings\.patch_embedding\.", f"{_SIGLIP}.patch_embed.proj."),
                (rf"^{_SIGLIP}\.embeddings\.position_embedding\.weight$", f"{_SIGLIP}.pos_embed"),
                (rf"^{_SIGLIP}\.post_layernorm\.", f"{_SIGLIP}.norm."),
                (rf"^{_SIGLIP}\.encoder\.layers\.", f"{_SIGLIP}.blocks."),
                (rf"^({_SIGLIP}\..*)\.self_attn\.[qkv]_proj\.", r"\1.attn.qkv."),
                (rf"^({_SIGLIP}\..*)\.self_attn\.out_proj\.", r"\1.attn.proj."),
                (rf"^({_SIGLIP}\..*)\.layer_norm(\d)\.", r"\1.norm\2."),
                (rf"^{_SIGLIP}\.head\.probe$", f"{_SIGLIP}.attn_pool.latent"),
                (rf"^{_SIGLIP}\.head\.attention\.out_proj\.", f"{_SIGLIP}.attn_pool.proj."),
                (rf"^{_SIGLIP}\.head\.attention\.", f"{_SIGLIP}.attn_pool."),
                (rf"^{_SIGLIP}\.head\.layernorm\.", f"{_SIGLIP}.attn_pool.norm."),
                (rf"^{_SIGLIP}\.head\.mlp\.", f"{_SIGLIP}.attn_pool.mlp."),
            ),
            batched=frozenset({f"{_SIGLIP}.pos_embed"}),
            splits={
                f"{_SIGLIP}.attn_pool.in_proj_{kind}": {
                    f"{_SIGLIP}.attn_pool.q.{kind}": 1,
                    f"{_SIGLIP}.attn_pool.kv.{kind}": 2,
                }
                for kind in ("weight", "bias")
            },
        ),
    ),
    _Twin(  # the code of LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct
        stated="exaone",
        model_type="llama",
        classes={"ExaoneForCausalLM": "LlamaForCausalLM"},
        keys={**_same(_SIZES_OF_LLAMA), "num_layers": "num_hidden_layers"},
        fixed={},
        names=_NAMES_OF_EXAONE,
    ),
    _Twin(
        stated="exaone",
        model_type="llama",
        is_library=True,
        classes=_same("LlamaForCausalLM LlamaModel"),
        keys=_same(f"{_SIZES_OF_LLAMA} num_hidden_layers"),
        fixed={},
        names=_NAMES_OF_EXAONE,
    ),
    _Twin(
        stated="sarvam_moe",
        model_type="glm4_moe",
        is_library=True,
        classes=_same("Glm4MoeForCausalLM Glm4MoeModel"),
        keys=_same(
            f"{_SIZES_OF_LLAMA} num_hidden_layers first_k_dense_replace head_dim "
            "moe_intermediate_size n_routed_experts n_shared_experts use_qk_norm"
        ),
        fixed={},
        names=OwnNames(
            pairs=(
                (r"^model\.embed_tokens\.", "model.word_embeddings."),
                (r"\.self_attn\.[qkv]_proj\.", ".attention.query_key_value."),
                (r"\.self_attn\.o_proj\.", ".attention.dense."),
                (r"\.self_attn\.q_norm\.", ".attention.query_layernorm."),
                (r"\.self_attn\.k_norm\.", ".attention.key_layernorm."),
                (r"\.mlp\.gate\.e_score_correction_bias$", ".mlp.gate.expert_bias"),
            ),
        ),
    ),
)


def as_native_twin(config: Config, custom: str | None) -> NativeTwin | None:
    """Return the twin of a class of custom code with this config; None if no twin covers it.

    `custom` is the name of the class in auto_map; None if auto_map names no class.
    """
    name = (custom or next(iter(config.architectures), "")).rpartition(".")[2]
    for twin in _TWINS:
        is_of_class = twin.stated == config.model_type and name in twin.classes
        is_of_code = not (twin.package or twin.is_library)
        if is_of_class and is_of_code == (custom is not None):
            return _covered(twin, config, twin.classes[name])
    return None


def _covered(twin: _Twin, config: Config, target: str) -> NativeTwin | None:
    """Return the config and the names for transformers' class; None if the twin lacks an option."""
    values = config.values
    sizes = {key: _value(values, key) for key in twin.keys}
    names = twin.names
    if names is not None and twin.adapters:
        adapters, rank = (values.get(key) for key in twin.adapters)
        if not (isinstance(adapters, list) and adapters and isinstance(rank, int) and rank > 0):
            return None
        names = names._replace(adapters=(len(adapters), rank))
    is_covered = (
        all(_is_size(size) for size in sizes.values())
        and all(_equal(_value(values, key), only) for key, only in twin.fixed.items())
        and all(sizes[key] % unit == 0 for key, unit in twin.multiples.items())
        and all(isinstance(values.get(key), Mapping) for key in twin.taken)
    )
    if not is_covered:
        return None
    native: dict[str, Any] = {
        **{key: value for key, value in values.items() if not twin.parts or key in _KEPT},
        **{part: {"model_type": kind} for part, kind in twin.parts.items()},
        **{part: values[key] for key, part in twin.taken.items()},
        "architectures": [target],
        "model_type": twin.model_type,
    }
    squared = {key: [size] * 2 if key in twin.squares else size for key, size in sizes.items()}
    stated = {its: squared[key] for key, its in twin.keys.items()}
    for key, value in {**stated, **twin.implied}.items():
        part, _, name = key.rpartition(".")
        (native[part] if part else native)[name] = value
    return NativeTwin(replace(config, values=MappingProxyType(native)), names, twin.package)


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
    """Return whether an option has the only value, or one of a set of values."""
    if isinstance(only, frozenset):
        return any(_equal(value, each) for each in only)
    return type(value) is type(only) and value == only
