"""DeepSeek-R1 in FP8: its config, its tensors, and how large its files are."""

import json
from math import ceil

from auditor.analytic import catalogue, read_config

R1 = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
BYTES = 688_586_727_753  # of its 163 files, as the Hub lists them
HALVES = ("embed_tokens", "lm_head", "gate", "norm", "shared_head.head", "eh_proj")


def r1():
    """Its tensors, with the dtypes and scales that its model card describes."""
    expected = catalogue.expect(
        read_config("config.json", json.dumps(R1).encode()), "DeepseekV3ForCausalLM"
    )
    table = {}
    for tensor in expected.tensors:
        module = tensor.name.rpartition(".")[0]
        if tensor.name.endswith("bias"):
            table[tensor.name] = ("F32", tensor.shape)
        elif module.endswith(HALVES):
            table[tensor.name] = ("BF16", tensor.shape)
        else:
            table[tensor.name] = ("F8_E4M3", tensor.shape)
            grid = tuple(ceil(side / 128) for side in tensor.shape)
            table[f"{module}.weight_scale_inv"] = ("F32", grid)
    return table, {tensor.name: tensor.shape for tensor in expected.tensors}
