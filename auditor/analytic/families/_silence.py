"""What transformers 5 says nothing about when it loads the model types here.

Facts of its classes' `_keys_to_ignore_on_load_unexpected` and `_missing`, and of the buffers that
they register, by class name or model type; the patterns are its own, with its unescaped dots.
"""

from collections.abc import Mapping
from types import MappingProxyType

_SINUSOIDS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
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

# Optional buffers that a class still has: it takes them where they are stored.
TAKEN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "BartForConditionalGeneration": ("^final_logits_bias$",),
        "MBartForConditionalGeneration": ("^final_logits_bias$",),
        "MarianMTModel": ("^final_logits_bias$", r"coder\.embed_positions\.weight$"),
        "PegasusForConditionalGeneration": ("^final_logits_bias$",),
        "esm": (r"(^|\.)attention\.self\.rotary_embeddings\.inv_freq$",),
    }
)

# Names in memory that are not reported as missing.
UNMISSED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "BartForConditionalGeneration": ("final_logits_bias",),
        "MBartForConditionalGeneration": ("final_logits_bias",),
        "MarianMTModel": ("final_logits_bias", *_SINUSOIDS),
        "MarianModel": _SINUSOIDS,
        "PegasusForConditionalGeneration": ("final_logits_bias",),
        "SwinBackbone": ("swin.layernorm.*",),
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

# Model types of papers, which transformers does not have.
OF_NO_LIBRARY = frozenset({"transformer-2017"})
