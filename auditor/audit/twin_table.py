"""The classes of custom code that transformers has taken over, with the maps of keys and names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.audit.own_names import OwnNames


class Twin(NamedTuple):
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

TWINS = (
    Twin(  # the code of Alibaba-NLP/new-impl
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
    Twin(  # the code of nomic-ai/nomic-bert-2048
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
    Twin(  # the code of microsoft/Florence-2-large
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
    Twin(  # the code of OpenGVLab/InternVL3-1B
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
    Twin(  # the code of jinaai/jina-embeddings-v3; pooler and LoRA are in its files
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
    Twin(  # the code of jinaai/jina-reranker-v2-base-multilingual
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
    Twin(  # deepseek-ai/deepseek-vl-1.3b-chat; its pooling is in the files, and not used
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
    Twin(  # the code of LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct
        stated="exaone",
        model_type="llama",
        classes={"ExaoneForCausalLM": "LlamaForCausalLM"},
        keys={**_same(_SIZES_OF_LLAMA), "num_layers": "num_hidden_layers"},
        fixed={},
        names=_NAMES_OF_EXAONE,
    ),
    Twin(
        stated="exaone",
        model_type="llama",
        is_library=True,
        classes=_same("LlamaForCausalLM LlamaModel"),
        keys=_same(f"{_SIZES_OF_LLAMA} num_hidden_layers"),
        fixed={},
        names=_NAMES_OF_EXAONE,
    ),
    Twin(
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
