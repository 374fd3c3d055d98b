"""The tables from GGUF's module names to transformers' names on disk, for each model type.

The left sides come from llama.cpp's `gguf` package (constants.TENSOR_NAMES, with `@` for the
`blk.N.` of a block); the right sides have `{n}` for N. `*` is the number of an expert or of a head,
an index on the first axis of the stored tensor. `a|b` means `a` or `b`, as the
architecture has it. `.weight` or `.bias` follows a name, unless the left side contains it already.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from auditor.layouts.gguf import decoders
from auditor.layouts.gguf.decoders import Table, names_in_blocks, names_table

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


def _t5_tower(before: str, path: str, ffn: str, more: Table = MappingProxyType({})) -> Table:
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
    _t5_tower("enc.", "encoder", "layer.1"),
    _t5_tower("dec.", "decoder", "layer.2", CROSS),
)


TABLES: Mapping[str, Table] = MappingProxyType(
    {
        "bert": BERT,
        "bloom": BLOOM,
        "cohere": decoders.LLAMA,
        "cohere2": decoders.LLAMA,
        "deepseek_v2": decoders.DEEPSEEK,
        "deepseek_v3": decoders.DEEPSEEK,
        "falcon": FALCON,
        "gemma": decoders.LLAMA,
        "gemma2": decoders.GEMMA2,
        "gemma3_text": decoders.GEMMA2,
        "glm4": decoders.GLM4,
        "glm4_moe": decoders.GLM4_MOE,
        "gpt2": GPT2,
        "gpt_bigcode": GPT2,
        "gpt_neox": GPT_NEOX,
        "gpt_oss": decoders.GPT_OSS,
        "granite": decoders.LLAMA,
        "granitemoe": decoders.GRANITEMOE,
        "lfm2": decoders.LFM2,
        "lfm2_moe": decoders.LFM2,
        "llama": decoders.LLAMA,
        "mamba": MAMBA,
        "mistral": decoders.LLAMA,
        "mixtral": decoders.MIXTRAL,
        "modernbert": MODERNBERT,
        "mpt": MPT,
        "olmo2": decoders.OLMO2,
        "olmoe": decoders.ROUTED,
        "phi": decoders.PHI,
        "phi3": decoders.PHI3,
        "qwen2": decoders.LLAMA,
        "qwen2_moe": decoders.QWEN2_MOE,
        "qwen3": decoders.LLAMA,
        "qwen3_moe": decoders.ROUTED,
        "smollm3": decoders.LLAMA,
        "stablelm": decoders.STABLELM,
        "starcoder2": decoders.STARCODER2,
        "t5": T5,
    }
)

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
