"""How transformers 5 loads the model types here: older names, fused experts, and sub-models.

Facts of its conversion_mapping.py, by class name or model type; the patterns are its own, with its
unescaped dots.
"""

from collections.abc import Mapping
from types import MappingProxyType

from auditor.analytic.renaming_rules import Operation, Rule

Renames = tuple[tuple[str, str], ...]  # (pattern, replacement), in their order
Conversions = tuple[Rule, ...]
Rules = tuple[tuple[str, str] | Rule, ...]  # both, in their order

_TEXT_TOWER: Renames = ((r"^text_model\.(.+)", r"\1"),)
_VISION_TOWER: Renames = ((r"^vision_model\.(.+)", r"\1"),)
_VIT: Renames = (
    (r"encoder\.layer\.", "layers."),
    ("attention.query", "q_proj"),
    ("attention.key", "k_proj"),
    ("attention.value", "v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)
_DINOV2: Renames = (
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("mlp.weights_out", "mlp.down_proj"),
)
_DETR: Renames = (
    ("backbone.conv_encoder", "backbone"),
    ("out_proj", "o_proj"),
    (r"layers.(\d+).fc1", r"layers.\1.mlp.fc1"),
    (r"layers.(\d+).fc2", r"layers.\1.mlp.fc2"),
)
_DETR_MASKS: Renames = (
    ("bbox_attention.q_linear", "bbox_attention.q_proj"),
    ("bbox_attention.k_linear", "bbox_attention.k_proj"),
    ("mask_head.lay1", "mask_head.conv1.conv"),
    ("mask_head.gn1", "mask_head.conv1.norm"),
    ("mask_head.lay2", "mask_head.conv2.conv"),
    ("mask_head.gn2", "mask_head.conv2.norm"),
    ("mask_head.adapter1", "mask_head.fpn_stages.0.fpn_adapter"),
    ("mask_head.lay3", "mask_head.fpn_stages.0.refine.conv"),
    ("mask_head.gn3", "mask_head.fpn_stages.0.refine.norm"),
    ("mask_head.adapter2", "mask_head.fpn_stages.1.fpn_adapter"),
    ("mask_head.lay4", "mask_head.fpn_stages.1.refine.conv"),
    ("mask_head.gn4", "mask_head.fpn_stages.1.refine.norm"),
    ("mask_head.adapter3", "mask_head.fpn_stages.2.fpn_adapter"),
    ("mask_head.lay5", "mask_head.fpn_stages.2.refine.conv"),
    ("mask_head.gn5", "mask_head.fpn_stages.2.refine.norm"),
    ("mask_head.out_lay", "mask_head.output_conv"),
)
_SEGFORMER: Renames = (
    (r"encoder.patch_embeddings.(\d+).", r"stages.\1.patch_embeddings."),
    (r"encoder.block.(\d+).", r"stages.\1.blocks."),
    (r"encoder.layer_norm.(\d+)", r"stages.\1.layer_norm"),
    ("attention.self.query", "attention.q_proj"),
    ("attention.self.key", "attention.k_proj"),
    ("attention.self.value", "attention.v_proj"),
    ("attention.self.sr", "attention.sequence_reduction.sequence_reduction"),
    ("attention.self.layer_norm", "attention.sequence_reduction.layer_norm"),
    ("attention.output.dense", "attention.o_proj"),
    ("mlp.dense1", "mlp.fc1"),
    ("mlp.dense2", "mlp.fc2"),
    ("layer_norm_1", "layernorm_before"),
    ("layer_norm_2", "layernorm_after"),
)
_SWIN: Renames = (
    ("attention.self.query", "attention.q_proj"),
    ("attention.self.key", "attention.k_proj"),
    ("attention.self.value", "attention.v_proj"),
    (
        "attention.self.relative_position_bias_table",
        "attention.relative_position_bias.relative_position_bias_table",
    ),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
)
_LLAVA: Renames = (
    ("^language_model.lm_head", "lm_head"),
    ("^language_model", "model.language_model"),
    ("^vision_tower", "model.vision_tower"),
    ("^multi_modal_projector", "model.multi_modal_projector"),
)
_LLAVA_MODEL: Renames = (("^language_model.model", "language_model"),)
_QWEN2_VL: Renames = (
    ("^visual", "model.visual"),
    (r"^model(?!\.(language_model|visual))", "model.language_model"),
)
_QWEN2_VL_MODEL: Renames = ((r"^model\.(?:(?!language_model\.))(.+)", r"model.language_model.\1"),)
_QWEN3_5_TEXT: Renames = ((r"^model\.language_model\.(.+)", r"model.\1"),)

_STACKED = Operation("MergeModulelist")  # an axis of experts in front
_ABOVE = Operation("Concatenate", axes=(1,))  # what gates above what is gated, in each expert


def _experts(gate: str, up: str, down: str, module: str) -> Conversions:
    """The experts of a layer become two tensors, (E, 2F, D) and (E, D, F)."""
    each = [f"{module}.*.{name}.weight" for name in (gate, up, down)]
    return (
        Rule((each[0], each[1]), (f"{module}.gate_up_proj",), operations=(_STACKED, _ABOVE)),
        Rule((each[2],), (f"{module}.down_proj",), operations=(_STACKED,)),
    )


_EXPERTS = _experts("gate_proj", "up_proj", "down_proj", "mlp.experts")
_HALVES = Operation("Chunk")
_SWIGLU = tuple(
    Rule(
        (f"mlp.weights_in.{kind}",),
        (f"mlp.gate_proj.{kind}", f"mlp.up_proj.{kind}"),
        operations=(_HALVES,),
    )
    for kind in ("weight", "bias")
)

# By class name, which is asked first, or by model type.
RULES: Mapping[str, Rules] = MappingProxyType(
    {
        "CLIPTextModel": _TEXT_TOWER,
        "CLIPVisionModel": _VISION_TOWER,
        "DeiTModel": _VIT,
        "DetrForSegmentation": _DETR_MASKS,
        "DetrModel": _DETR,
        "Dinov2Backbone": (*_DINOV2, *_SWIGLU),
        "Dinov2Model": (*_DINOV2, *_SWIGLU),
        "GPTNeoXForCausalLM": ((r"^embed_out\.", "lm_head."),),
        "Gemma3Model": _LLAVA_MODEL,
        "LlavaModel": _LLAVA_MODEL,
        "PaliGemmaModel": _LLAVA_MODEL,
        "Qwen2VLForConditionalGeneration": _QWEN2_VL,
        "Qwen2VLModel": _QWEN2_VL_MODEL,
        "Qwen2_5_VLForConditionalGeneration": _QWEN2_VL,
        "Qwen2_5_VLModel": _QWEN2_VL_MODEL,
        "SegformerForSemanticSegmentation": (
            ("decode_head.linear_c", "decode_head.linear_projections"),
        ),
        "SegformerModel": _SEGFORMER,
        "SiglipTextModel": _TEXT_TOWER,
        "SiglipVisionModel": _VISION_TOWER,
        "SwinBackbone": ((r"^encoder\.", "swin.encoder."), (r"^embeddings\.", "swin.embeddings.")),
        "ViTModel": _VIT,
        "deepseek_v2": _EXPERTS,
        "deepseek_v3": _EXPERTS,
        "esm": (
            (
                "encoder.layer.*.attention.self.rotary_embeddings.inv_freq",
                "rotary_embeddings.inv_freq",
            ),
            ("LayerNorm.gamma", "LayerNorm.weight"),
            ("LayerNorm.beta", "LayerNorm.bias"),
        ),
        "gemma3": _LLAVA,
        "glm4_moe": _EXPERTS,
        "granitemoe": (
            (r"block_sparse_moe\.input_linear\.weight", "block_sparse_moe.experts.gate_up_proj"),
            (r"block_sparse_moe\.output_linear\.weight", "block_sparse_moe.experts.down_proj"),
            (r"block_sparse_moe\.router\.layer\.weight", "block_sparse_moe.router.weight"),
        ),
        "lfm2_moe": _experts("w1", "w3", "w2", "feed_forward.experts"),
        "llava": _LLAVA,
        "mixtral": ((".block_sparse_moe.", ".mlp."), *_experts("w1", "w3", "w2", ".experts")),
        "olmoe": _EXPERTS,
        "paligemma": _LLAVA,
        "qwen2_moe": _EXPERTS,
        "qwen3_5_moe_text": (*_QWEN3_5_TEXT, *_EXPERTS),
        "qwen3_5_text": _QWEN3_5_TEXT,
        "qwen3_moe": _EXPERTS,
        "swin": _SWIN,
    }
)

# Where a class has its base model, other than below the family's prefix; None: it has none.
BASES: Mapping[str, str | None] = MappingProxyType(
    {"DetrForSegmentation": "detr.model", "Dinov2Backbone": None}
)

# Classes that have only some of the models inside their base model.
ONLY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "CLIPForImageClassification": ("vision_model",),
        "SiglipForImageClassification": ("vision_model",),
    }
)

# Model type -> the models inside its base model: path, key of their config, model type if unsaid.
INSIDE: Mapping[str, tuple[tuple[str, str, str], ...]] = MappingProxyType(
    {
        "clip": (
            ("text_model", "text_config", "clip_text_model"),
            ("vision_model", "vision_config", "clip_vision_model"),
        ),
        "gemma3": (
            ("vision_tower", "vision_config", "siglip_vision_model"),
            ("language_model", "text_config", "gemma3_text"),
        ),
        "gemma4": (
            ("vision_tower", "vision_config", "gemma4_vision"),
            ("language_model", "text_config", "gemma4_text"),
        ),
        "llava": (
            ("vision_tower", "vision_config", "clip_vision_model"),
            ("language_model", "text_config", "llama"),
        ),
        "paligemma": (
            ("vision_tower", "vision_config", "siglip_vision_model"),
            ("language_model", "text_config", "gemma"),
        ),
        "qwen2_5_vl": (("language_model", "text_config", "qwen2_5_vl_text"),),
        "qwen2_vl": (("language_model", "text_config", "qwen2_vl_text"),),
        "qwen3_5": (("language_model", "text_config", "qwen3_5_text"),),
        "qwen3_5_moe": (("language_model", "text_config", "qwen3_5_moe_text"),),
        "qwen3_vl": (("language_model", "text_config", "qwen3_vl_text"),),
        "siglip": (
            ("text_model", "text_config", "siglip_text_model"),
            ("vision_model", "vision_config", "siglip_vision_model"),
        ),
        "vision-encoder-decoder": (("encoder", "encoder", "vit"), ("decoder", "decoder", "bert")),
    }
)
