"""The families of models, one file each; the catalogue imports a file when its classes are needed.

The functions of a file are builders, named after the modules that they build: attention, layer,
mlp. Several files have an `attention` for their own model; a model that shares a module with
another model imports the builder. Files that begin with an underscore contain code that several
families share.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from threading import RLock
from types import MappingProxyType

# Files with one model type, whose name is the file's.
_ALONE = (
    "albert bert blip bloom convnext detr distilbert electra esm falcon gpt2 gpt_bigcode "
    "gpt_neo gpt_neox gpt_oss gptj gte layoutlm llama llava modernbert mpnet mpt opt paligemma phi "
    "phi3 rag resnet rwkv segformer smollm3 stablelm starcoder2 swin whisper"
)
# File -> its model types, for files with several model types or with a different name.
_KIN = {
    "bart": "bart m2m_100 marian mbart pegasus",
    "clip": "clip clip_text_model clip_vision_model",
    "cohere": "cohere cohere2",
    "deberta_v2": "deberta-v2",
    "deepseek": "deepseek_v2 deepseek_v3",
    "dinov2": "dinov2 dinov2_with_registers",
    "dinov3": "dinov3_vit",
    "gemma": "gemma gemma2",
    "gemma3": "gemma3 gemma3_text",
    "gemma4": "gemma4 gemma4_audio gemma4_text gemma4_vision",
    "glm4": "glm4 glm4_moe",
    "granite": "granite granitemoe",
    "lfm2": "lfm2 lfm2_moe",
    "mamba": "mamba mamba2",
    "mistral": "mistral mixtral",
    "olmo": "olmo2 olmoe",
    "openai_gpt": "openai-gpt",
    "qwen": "qwen2 qwen3",
    "qwen2_vl": "qwen2_5_vl qwen2_5_vl_text qwen2_vl qwen2_vl_text",
    "qwen3_5": (
        "qwen3_5 qwen3_5_text qwen3_5_vision qwen3_5_moe qwen3_5_moe_text qwen3_5_moe_vision"
    ),
    "qwen3_vl": "qwen3_vl qwen3_vl_text qwen3_vl_vision",
    "qwen_moe": "qwen2_moe qwen3_moe",
    "roberta": "camembert roberta xlm-roberta",
    "sam": "sam sam_vision_model",
    "siglip": "siglip siglip_text_model siglip_vision_model",
    "t5": "mt5 t5",
    "transformer_2017": "transformer-2017",
    "vision_encoder_decoder": "vision-encoder-decoder",
    "vit": "deit vit",
    "vitmatte": "vitdet vitmatte",
    "wav2vec2": "hubert wav2vec2 wavlm",
}
# Model type -> the file with its classes, so that only the needed file is imported.
FILES: Mapping[str, str] = MappingProxyType(
    {name: name for name in _ALONE.split()}
    | {model_type: file for file, types in _KIN.items() for model_type in types.split()}
)

# Types whose classes are generated forms; FILES has them under their own names.
_BY_DATA = (
    "distilbert gemma gemma2 glm4 gpt_bigcode gpt_oss modernbert mpt opt phi "
    "phi3 qwen2 qwen3 stablelm starcoder2"
)
BY_DATA = frozenset(_BY_DATA.split())


_LOADED = set[str]()  # of the types that are data
_LOADING = RLock()  # audits run in threads, and only an import of a file waits for another


@cache
def load(model_type: str) -> None:
    """Register a type's classes in the catalogue, and the derived defaults of its config class."""
    if model_type not in BY_DATA:
        import_module(f"auditor.analytic.families.{FILES[model_type]}")
        return
    by_data = import_module("auditor.analytic.families._by_data")
    with _LOADING:
        if model_type not in _LOADED:
            by_data.register(model_type)
            _LOADED.add(model_type)


# Older names in checkpoints on the Hub -> current names, and types with a config class of their own
# -> the type whose classes transformers builds for them; the tensors are equal.
OLD_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "RefinedWeb": "falcon",
        "RefinedWebModel": "falcon",
        "gpt-sw3": "gpt2",
        "internlm3": "llama",
        "iquestcoder": "llama",
        "kimi_k2": "deepseek_v3",
        "sarvam_mla": "deepseek_v3",
        "stablelm_epoch": "stablelm",
    }
)
OLD_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "LLaMAForCausalLM": "LlamaForCausalLM",
        "MPTForCausalLM": "MptForCausalLM",
        "MPTModel": "MptModel",
        "RWForCausalLM": "FalconForCausalLM",
        "RWForQuestionAnswering": "FalconForQuestionAnswering",
        "RWForSequenceClassification": "FalconForSequenceClassification",
        "RWForTokenClassification": "FalconForTokenClassification",
        "RWModel": "FalconModel",
        "StableLMEpochForCausalLM": "StableLmForCausalLM",
        "T5WithLMHeadModel": "T5ForConditionalGeneration",
        "Wav2Vec2ForMaskedLM": "Wav2Vec2ForCTC",
    }
)
