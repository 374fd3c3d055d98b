"""The sizes of the models of transformers that open_clip's configs and BiomedCLIP's name.

open_clip reads the config of a text model from the model's own repository; the sizes here are those
of the published config.json files.
"""

from collections.abc import Mapping
from types import MappingProxyType

_BERT: Mapping[str, object] = MappingProxyType(
    {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
    }
)
_ROBERTA = {**_BERT, "max_position_embeddings": 514, "type_vocab_size": 1}
_BIOMED_BERT = {"model_type": "bert", **_BERT, "max_position_embeddings": 512, "vocab_size": 30522}
_MT5 = {"model_type": "mt5", "d_kv": 64, "feed_forward_proj": "gated-gelu", "vocab_size": 250112}
_NLLB = {"model_type": "m2m_100", "d_model": 1024, "vocab_size": 256206}
TEXT_MODELS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "facebook/nllb-200-distilled-1.3B": {
            **_NLLB,
            "encoder_layers": 24,
            "encoder_ffn_dim": 8192,
        },
        "facebook/nllb-200-distilled-600M": {
            **_NLLB,
            "encoder_layers": 12,
            "encoder_ffn_dim": 4096,
        },
        "google/mt5-base": {
            **_MT5,
            "d_ff": 2048,
            "d_model": 768,
            "num_heads": 12,
            "num_layers": 12,
        },
        "google/mt5-xl": {**_MT5, "d_ff": 5120, "d_model": 2048, "num_heads": 32, "num_layers": 24},
        "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract": _BIOMED_BERT,
        "microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract": _BIOMED_BERT,
        "roberta-base": {"model_type": "roberta", **_ROBERTA, "vocab_size": 50265},
        "xlm-roberta-base": {"model_type": "xlm-roberta", **_ROBERTA, "vocab_size": 250002},
        "xlm-roberta-large": {
            "model_type": "xlm-roberta",
            **_ROBERTA,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "vocab_size": 250002,
        },
    }
)
