"""The tables from GGUF's module names to transformers' names on disk, for each model type.

The left sides come from llama.cpp's `gguf` package (constants.TENSOR_NAMES, with `@` for the
`blk.N.` of a block); the right sides have `{n}` for N. `*` is the number of an expert or of a head,
an index on the first axis of the stored tensor. `a|b` means `a` or `b`, as the
architecture has it. `.weight` or `.bias` follows a name, unless the left side contains it already.
"""

import re
from collections.abc import Iterable, Mapping
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
GPT2 = names_table(
    {
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    names_in_blocks(
        "transformer.h",
        {
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
    ),
)
FALCON = names_table(
    {
        "token_embd": "transformer.word_embeddings",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    names_in_blocks(
        "transformer.h",
        {
            "attn_norm": "input_layernorm|ln_mlp",
            "attn_norm_2": "ln_attn",
            "attn_qkv": "self_attention.query_key_value",
            "attn_output": "self_attention.dense",
            "ffn_up": "mlp.dense_h_to_4h",
            "ffn_down": "mlp.dense_4h_to_h",
        },
    ),
)
BLOOM = names_table(
    FALCON,
    {"token_embd_norm": "transformer.word_embeddings_layernorm"},
    names_in_blocks("transformer.h", {"ffn_norm": "post_attention_layernorm"}),
)
GPT_NEOX = names_table(
    {
        "token_embd": "gpt_neox.embed_in",
        "output_norm": "gpt_neox.final_layer_norm",
        "output": "embed_out",
    },
    names_in_blocks(
        "gpt_neox.layers",
        {
            "attn_norm": "input_layernorm",
            "attn_qkv": "attention.query_key_value",
            "attn_output": "attention.dense",
            "ffn_norm": "post_attention_layernorm",
            "ffn_up": "mlp.dense_h_to_4h",
            "ffn_down": "mlp.dense_4h_to_h",
        },
    ),
)
MPT = names_table(
    {
        "token_embd": "transformer.wte",
        "output_norm": "transformer.norm_f",
        "output": "lm_head",
    },
    names_in_blocks(
        "transformer.blocks",
        {
            "attn_norm": "norm_1",
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.out_proj",
            "ffn_norm": "norm_2",
            "ffn_up": "ffn.up_proj",
            "ffn_down": "ffn.down_proj",
        },
    ),
)
MAMBA = names_table(
    {
        "token_embd": "backbone.embeddings",
        "output_norm": "backbone.norm_f",
        "output": "lm_head",
    },
    names_in_blocks(
        "backbone.layers",
        {
            "attn_norm": "norm",
            "ssm_in": "mixer.in_proj",
            "ssm_conv1d": "mixer.conv1d",
            "ssm_x": "mixer.x_proj",
            "ssm_dt": "mixer.dt_proj",
            "ssm_a": "mixer.A_log",
            "ssm_d": "mixer.D",
            "ssm_out": "mixer.out_proj",
        },
    ),
)
BERT = names_table(
    {
        "token_embd": "embeddings.word_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
        "token_types": "embeddings.token_type_embeddings",
        "position_embd": "embeddings.position_embeddings",
    },
    names_in_blocks(
        "encoder.layer",
        {
            "attn_q": "attention.self.query",
            "attn_k": "attention.self.key",
            "attn_v": "attention.self.value",
            "attn_output": "attention.output.dense",
            "attn_output_norm": "attention.output.LayerNorm",
            "ffn_up": "intermediate.dense",
            "ffn_down": "output.dense",
            "layer_output_norm": "output.LayerNorm",
        },
    ),
)


MODERNBERT = names_table(
    {
        "token_embd": "embeddings.tok_embeddings",
        "token_embd_norm": "embeddings.norm",
        "output_norm": "final_norm",
    },
    names_in_blocks(
        "layers",
        {
            "attn_norm": "attn_norm",
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.Wo",
            "ffn_norm": "mlp_norm",
            "ffn_up": "mlp.Wi",
            "ffn_down": "mlp.Wo",
        },
    ),
)


def _t5_attention(gguf: str, path: str) -> Table:
    parts = {part: part for part in "qkvo"} | {"rel_b": "relative_attention_bias"}
    return {f"{gguf}_{part}": f"{path}.{name}" for part, name in parts.items()}


def _t5_tower(before: str, path: str, ffn: str, more: Table) -> Table:
    names = {
        "attn_norm": "layer.0.layer_norm",
        **_t5_attention("attn", "layer.0.SelfAttention"),
        **more,
        "ffn_norm": f"{ffn}.layer_norm",
        "ffn_gate": f"{ffn}.DenseReluDense.wi_0",
        "ffn_up": f"{ffn}.DenseReluDense.wi_1|{ffn}.DenseReluDense.wi",
        "ffn_down": f"{ffn}.DenseReluDense.wo",
    }
    top = {f"{before}output_norm": f"{path}.final_layer_norm"}
    return names_table(top, names_in_blocks(f"{path}.block", names, before))


CROSS = {
    "cross_attn_norm": "layer.1.layer_norm",
    **_t5_attention("cross_attn", "layer.1.EncDecAttention"),
}
T5 = names_table(
    {"token_embd": "shared", "output": "lm_head"},
    _t5_tower("enc.", "encoder", "layer.1", {}),
    _t5_tower("dec.", "decoder", "layer.2", CROSS),
)


TABLES: Mapping[str, Table] = MappingProxyType(
    {
        "bert": BERT,
        "bloom": BLOOM,
        "cohere": LLAMA,
        "cohere2": LLAMA,
        "deepseek_v2": DEEPSEEK,
        "deepseek_v3": DEEPSEEK,
        "falcon": FALCON,
        "gemma": LLAMA,
        "gemma2": GEMMA2,
        "gemma3_text": GEMMA2,
        "glm4": GLM4,
        "glm4_moe": GLM4_MOE,
        "gpt2": GPT2,
        "gpt_bigcode": GPT2,
        "gpt_neox": GPT_NEOX,
        "gpt_oss": GPT_OSS,
        "granite": LLAMA,
        "granitemoe": GRANITEMOE,
        "lfm2": LFM2,
        "lfm2_moe": LFM2,
        "llama": LLAMA,
        "mamba": MAMBA,
        "mistral": LLAMA,
        "mixtral": MIXTRAL,
        "modernbert": MODERNBERT,
        "mpt": MPT,
        "olmo2": OLMO2,
        "olmoe": ROUTED,
        "phi": PHI,
        "phi3": PHI3,
        "qwen2": LLAMA,
        "qwen2_moe": QWEN2_MOE,
        "qwen3": LLAMA,
        "qwen3_moe": ROUTED,
        "smollm3": LLAMA,
        "stablelm": STABLELM,
        "starcoder2": STARCODER2,
        "t5": T5,
    }
)

# Tensors that llama.cpp uses if a file has them, of heads, drafting layers and joined projections.
_ALSO_USED = re.compile(
    r"(enc\.|dec\.)?(@nextn\..+|cls(\.norm|\.output)?|dense_[23]|output_norm|position_embd"
    r"|@attn_qkv|@ffn_(gate|up|down)_shexp|.+\.bias)",
    re.ASCII,
)


def is_refused(key: str) -> bool:
    """Return whether llama.cpp refuses a file with this tensor if nothing expects the tensor.

    `key` has `@` for the block: "@attn_q.weight". Biases are optional in many architectures.
    """
    return _ALSO_USED.fullmatch(key.removesuffix(".weight")) is None


# Some files store two tensors instead of one: attn_k_b and attn_v_b, ffn_gate_exps and ffn_up_exps.
_OFTEN_IN_TWO = frozenset({"@attn_kv_b", "@ffn_gate_up_exps"})
_NUMBER = re.compile(r"\.(\d+)(?=\.)", re.ASCII)
_ENDING = re.compile(r"(.+)(\.(?:weight|bias))", re.ASCII | re.DOTALL)


def names_in_file(model_type: str, names: Iterable[str]) -> frozenset[str]:
    """Return the GGUF names of tensors, given the names that transformers uses on disk.

    Tensors that are only a part of a stored tensor, or have an unknown name, are left out.
    """
    key_by_name = {
        path.replace("{n}", "#") + alternative.replace("*", "#"): key
        for key, template in TABLES.get(model_type, {}).items()
        if key not in _OFTEN_IN_TWO
        for path, alternative in _alternatives(template)
    }
    stored_names = set()
    for name in names:
        number = _NUMBER.search(name)
        block = f"blk.{number[1]}." if number else ""
        # A name has the block's number, and may have the expert's number too.
        for pattern in (_NUMBER.sub(".#", name, count=1), _NUMBER.sub(".#", name)):
            stem = _ENDING.fullmatch(pattern)
            if key := key_by_name.get(pattern):
                stored_names.add(key.replace("@", block))
                break
            if stem and (key := key_by_name.get(stem[1])):
                stored_names.add(f"{key.replace('@', block)}{stem[2]}")
                break
    return frozenset(stored_names)


def _alternatives(template: str) -> list[tuple[str, str]]:
    before, within, rest = template.rpartition(".{n}.")
    return [(f"{before}{within}", alternative) for alternative in rest.split("|")]
