"""The tables of GGUF names for decoders with tensors below `model.layers`; see names.py.

The helpers that build these tables come first.
"""

from collections.abc import Mapping
from types import MappingProxyType

Table = Mapping[str, str]


def names_table(*parts: Table) -> Table:
    return MappingProxyType({key: name for part in parts for key, name in part.items()})


def names_in_blocks(path: str, names: Table, before: str = "") -> Table:
    return {f"{before}@{key}": f"{path}.{{n}}.{name}" for key, name in names.items()}


def _experts(
    path: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj"
) -> Table:
    names = {"ffn_gate_exps": gate, "ffn_up_exps": up, "ffn_down_exps": down}
    return _layers({key: f"{path}.*.{name}" for key, name in names.items()})


def _shared(path: str) -> Table:
    parts = ("gate", "up", "down")
    return _layers({f"ffn_{part}_shexp": f"{path}.{part}_proj" for part in parts})


def _layers(names: Table) -> Table:
    return names_in_blocks("model.layers", names)


TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LLAMA = names_table(
    TOP,
    _layers(
        {
            "attn_norm": "input_layernorm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            "ffn_norm": "post_attention_layernorm",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
        }
    ),
)
ROUTED = names_table(LLAMA, _layers({"ffn_gate_inp": "mlp.gate"}), _experts("mlp.experts"))
MIXTRAL = names_table(
    LLAMA,
    _layers({"ffn_gate_inp": "block_sparse_moe.gate"}),
    _experts("block_sparse_moe.experts", "w1", "w3", "w2"),
)
QWEN2_MOE = names_table(
    ROUTED,
    _shared("mlp.shared_expert"),
    _layers({"ffn_gate_inp_shexp": "mlp.shared_expert_gate"}),
)
CORRECTED = _layers({"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"})
DEEPSEEK = names_table(
    ROUTED,
    _shared("mlp.shared_experts"),
    CORRECTED,
    _layers(
        {
            "attn_q_a": "self_attn.q_a_proj",
            "attn_q_a_norm": "self_attn.q_a_layernorm",
            "attn_q_b": "self_attn.q_b_proj",
            "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
            "attn_kv_a_norm": "self_attn.kv_a_layernorm",
            "attn_kv_b": "self_attn.kv_b_proj",
        }
    ),
)
GLM4_MOE = names_table(
    ROUTED,
    _shared("mlp.shared_experts"),
    CORRECTED,
    _layers(
        {
            "post_attention_norm": "post_attention_layernorm",
            "nextn.eh_proj": "eh_proj",
            "nextn.embed_tokens": "embed_tokens",
            "nextn.enorm": "enorm",
            "nextn.hnorm": "hnorm",
            "nextn.shared_head_head": "shared_head.head",
            "nextn.shared_head_norm": "shared_head.norm",
        }
    ),
)
GEMMA2 = names_table(
    LLAMA,
    _layers(
        {
            "post_attention_norm": "post_attention_layernorm",
            "ffn_norm": "pre_feedforward_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        }
    ),
)
OLMO2 = names_table(
    LLAMA,
    _layers(
        {
            "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        }
    ),
)
GLM4 = names_table(
    LLAMA,
    _layers(
        {
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            "ffn_up": "mlp.gate_up_proj",
        }
    ),
)
GPT_OSS = names_table(
    LLAMA,
    _layers(
        {
            "post_attention_norm": "post_attention_layernorm",
            "attn_sinks.weight": "self_attn.sinks",
            "ffn_gate_inp": "mlp.router",
            "ffn_down_exps.weight": "mlp.experts.down_proj",
            "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
        }
    ),
)
GRANITEMOE = names_table(
    LLAMA,
    _layers(
        {
            "ffn_gate_inp": "block_sparse_moe.router.layer",
            "ffn_gate_up_exps": "block_sparse_moe.input_linear",
            "ffn_down_exps": "block_sparse_moe.output_linear",
        }
    ),
)
PHI = names_table(
    LLAMA,
    {"output_norm": "model.final_layernorm"},
    _layers(
        {
            "attn_output": "self_attn.dense",
            "attn_q_norm": "self_attn.q_layernorm",
            "attn_k_norm": "self_attn.k_layernorm",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
        }
    ),
)
PHI3 = names_table(LLAMA, _layers({"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}))
STABLELM = names_table(
    LLAMA,
    _layers(
        {
            "attn_q_norm": "self_attn.q_layernorm.norms.*",
            "attn_k_norm": "self_attn.k_layernorm.norms.*",
        }
    ),
)
STARCODER2 = names_table(LLAMA, _layers({"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}))
LFM2 = names_table(
    {
        "token_embd": "model.embed_tokens",
        "token_embd_norm": "model.embedding_norm",
        "output": "lm_head",
    },
    _layers(
        {
            "attn_norm": "operator_norm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.out_proj",
            "attn_q_norm": "self_attn.q_layernorm",
            "attn_k_norm": "self_attn.k_layernorm",
            "shortconv.conv": "conv.conv",
            "shortconv.in_proj": "conv.in_proj",
            "shortconv.out_proj": "conv.out_proj",
            "ffn_norm": "ffn_norm",
            "ffn_gate": "feed_forward.w1",
            "ffn_up": "feed_forward.w3",
            "ffn_down": "feed_forward.w2",
            "ffn_gate_inp": "feed_forward.gate",
            "exp_probs_b.bias": "feed_forward.expert_bias",
        }
    ),
    _experts("feed_forward.experts", "w1", "w3", "w2"),
)
