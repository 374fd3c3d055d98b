"""How transformers 5 loads the model types here: older names, sub-models, and what it leaves out.

Facts of its conversion_mapping.py and of its classes' `_keys_to_ignore_on_load_unexpected`, by
class name or model type; the patterns are its own, with its unescaped dots.
"""

from collections.abc import Mapping
from types import MappingProxyType

Renames = tuple[tuple[str, str], ...]  # (pattern, replacement), in their order

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

# By class name, which is asked first, or by model type.
RENAMES: Mapping[str, Renames] = MappingProxyType(
    {
        "CLIPTextModel": _TEXT_TOWER,
        "CLIPVisionModel": _VISION_TOWER,
        "DeiTModel": _VIT,
        "DetrForSegmentation": _DETR_MASKS,
        "DetrModel": _DETR,
        "Dinov2Backbone": _DINOV2,
        "Dinov2Model": _DINOV2,
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
        "esm": (
            (
                r"encoder.layer..*\.attention.self.rotary_embeddings.inv_freq",
                "rotary_embeddings.inv_freq",
            ),
        ),
        "gemma3": _LLAVA,
        "granitemoe": (
            (r"block_sparse_moe\.input_linear\.weight", "block_sparse_moe.experts.gate_up_proj"),
            (r"block_sparse_moe\.output_linear\.weight", "block_sparse_moe.experts.down_proj"),
            (r"block_sparse_moe\.router\.layer\.weight", "block_sparse_moe.router.weight"),
        ),
        "llava": _LLAVA,
        "mixtral": ((".block_sparse_moe.", ".mlp."),),
        "paligemma": _LLAVA,
        "qwen3_5_moe_text": _QWEN3_5_TEXT,
        "qwen3_5_text": _QWEN3_5_TEXT,
        "swin": _SWIN,
    }
)

# Where a class has its base model, other than below the family's prefix.
BASES: Mapping[str, str] = MappingProxyType({"DetrForSegmentation": "detr.model"})

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

# Models whose experts are fused as they are loaded; inside another model, only where it has them.
FUSED = frozenset({"qwen3_5_moe_text"})

_CROSS_BIAS = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)

# Names that are not reported as unexpected, by class name and by model type.
SILENT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "DebertaV2ForMaskedLM": ("mask_predictions.*",),
        "MT5ForConditionalGeneration": _CROSS_BIAS,
        "MT5ForQuestionAnswering": _CROSS_BIAS,
        "MT5ForSequenceClassification": _CROSS_BIAS,
        "MT5Model": _CROSS_BIAS,
        "Qwen3_5ForCausalLM": ("^model.visual.*",),
        "Qwen3_5MoeForCausalLM": ("^model.visual.*",),
        "T5EncoderModel": ("decoder",),
        "T5ForConditionalGeneration": _CROSS_BIAS,
        "T5ForQuestionAnswering": _CROSS_BIAS,
        "T5ForSequenceClassification": _CROSS_BIAS,
        "T5ForTokenClassification": ("decoder",),
        "T5Model": _CROSS_BIAS,
        "bart": ("encoder.version", "decoder.version"),
        "deberta-v2": ("position_embeddings",),
        "deepseek_v3": (r"model\.layers\.61.*",),
        "detr": (r"detr\.model\.backbone\.model\.layer\d+\.0\.downsample\.1\.num_batches_tracked",),
        "esm": ("position_embeddings.weight",),
        "glm4_moe": (r"model\.layers\.92.*", r"model\.layers\.46.*"),
        "gpt2": ("attn.bias", "crossattention.bias"),
        "gpt_neox": ("attention.bias", "attention.masked_bias"),
        "qwen3_5": ("^mtp.*",),
        "qwen3_5_moe": ("^mtp.*",),
        "qwen3_5_moe_text": ("^mtp.*",),
        "qwen3_5_moe_vision": ("^mtp.*",),
        "qwen3_5_text": ("^mtp.*",),
        "qwen3_5_vision": ("^mtp.*",),
        "swin": (
            r"attention\.self\.relative_position_index",
            r"attention\.relative_position_bias\.relative_position_index",
        ),
    }
)

# Buffers that a class takes where they are stored, and does not miss where they are not.
TAKEN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "BartForConditionalGeneration": ("^final_logits_bias$",),
        "MBartForConditionalGeneration": ("^final_logits_bias$",),
        "MarianMTModel": ("^final_logits_bias$", r"coder\.embed_positions\.weight$"),
        "PegasusForConditionalGeneration": ("^final_logits_bias$",),
    }
)

# Model types that have buffers, rotary frequencies or the numbers of positions, which they store
# no more: loading leaves out what is called so, wherever older versions had it.
ROTARY = frozenset(
    {
        "cohere",
        "cohere2",
        "deepseek_v2",
        "deepseek_v3",
        "falcon",
        "gemma",
        "gemma2",
        "gemma4_vision",
        "glm4",
        "glm4_moe",
        "gpt_neox",
        "gpt_oss",
        "granite",
        "granitemoe",
        "lfm2",
        "llama",
        "mistral",
        "mixtral",
        "olmo2",
        "olmoe",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_5_vl_text",
        "qwen2_moe",
        "qwen2_vl_text",
        "qwen3",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen3_vl_text",
        "smollm3",
        "stablelm",
        "starcoder2",
    }
)
POSITIONS = frozenset(
    {
        "albert",
        "bert",
        "blip",
        "camembert",
        "clip_text_model",
        "clip_vision_model",
        "deberta-v2",
        "distilbert",
        "electra",
        "esm",
        "layoutlm",
        "mpnet",
        "openai-gpt",
        "roberta",
        "siglip_text_model",
        "siglip_vision_model",
        "xlm-roberta",
    }
)
