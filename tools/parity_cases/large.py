"""Configs of published sizes: many layers, many experts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# Ways of spoiling in which a size could matter.
WAYS = frozenset(
    {
        "one dropped",
        "one reshaped",
        "some extra",
        "an expert dropped",
        "a matrix of all experts dropped",
        "prefix stripped",
    }
)

MODELS: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType(
    {
        # Llama-2-70B, 723 tensors
        "llama": (
            "LlamaForCausalLM",
            {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672}
            | {"num_attention_heads": 64, "num_key_value_heads": 8},
        ),
        # Mixtral-8x22B, 1,739 tensors
        "mixtral": (
            "MixtralForCausalLM",
            {"num_hidden_layers": 56, "hidden_size": 6144, "intermediate_size": 16384}
            | {"num_attention_heads": 48, "num_key_value_heads": 8, "num_local_experts": 8},
        ),
        # DeepSeek-V3, 91,991 tensors with its layer for drafting
        "deepseek_v3": ("DeepseekV3ForCausalLM", {"num_hidden_layers": 61}),
        # Qwen3-235B-A22B, 36,945 tensors
        "qwen3_moe": (
            "Qwen3MoeForCausalLM",
            {"num_hidden_layers": 94, "hidden_size": 4096, "num_attention_heads": 64}
            | {"num_key_value_heads": 4, "num_experts": 128, "moe_intermediate_size": 1536},
        ),
        # a BERT of 400 layers
        "bert": ("BertForMaskedLM", {"num_hidden_layers": 400}),
        # OPT-175B
        "opt": (
            "OPTForCausalLM",
            {"num_hidden_layers": 96, "hidden_size": 12288, "ffn_dim": 49152}
            | {"num_attention_heads": 96, "word_embed_proj_dim": 12288},
        ),
        # and without a closed form: MiniMax-M2, 62 layers of 256 experts
        "minimax_m2": ("MiniMaxM2ForCausalLM", {"num_hidden_layers": 62}),
        # dots.llm1, 62 layers of 128 experts
        "dots1": (
            "Dots1ForCausalLM",
            {"num_hidden_layers": 62, "n_routed_experts": 128, "n_shared_experts": 2}
            | {"moe_intermediate_size": 1408, "first_k_dense_replace": 1},
        ),
        # NLLB-MoE-54B, whose experts are stored one by one and kept so
        "nllb-moe": ("NllbMoeForConditionalGeneration", {}),
        # ERNIE-4.5-300B, 54 layers of 64 experts
        "ernie4_5_moe": (
            "Ernie4_5_MoeForCausalLM",
            {"num_hidden_layers": 54, "hidden_size": 8192, "moe_num_experts": 64},
        ),
    }
)
