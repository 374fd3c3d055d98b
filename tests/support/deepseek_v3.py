"""DeepSeek-V3 as published: config.json, an index, and the headers of 163 shards in fp8.

The headers are made name by name, after the model card and the shapes that its config gives, and
without this project's own closed form; TENSORS and ELEMENTS are what the Hub shows.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, prod
from pathlib import Path
from typing import Any, NamedTuple

from support.builders import safetensors_bytes

from auditor.tensors import DTYPE_BITS

CONFIG: Mapping[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_deepseek.DeepseekV3Config",
        "AutoModel": "modeling_deepseek.DeepseekV3Model",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM",
    },
    "bos_token_id": 0,
    "eos_token_id": 1,
    "ep_size": 1,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "initializer_range": 0.02,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    },
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1",
    "use_cache": True,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
SHARDS = 163
# As the Hub shows them: every element, those of the scales included.
TENSORS, ELEMENTS = 91_991, 684_531_386_000

_BLOCK = 128  # rows and columns that share a scale
D, V = CONFIG["hidden_size"], CONFIG["vocab_size"]
HEADS, LATENT = CONFIG["num_attention_heads"], CONFIG["kv_lora_rank"]
LAYERS, DENSE, EXPERTS = 61, 3, 256

Stored = tuple[str, tuple[str, tuple[int, ...]]]  # name, (dtype, shape)


class File(NamedTuple):
    """One file: its name, what it begins with, and how long it is."""

    name: str
    head: bytes
    size: int


def tensors(experts: int = EXPERTS) -> Iterator[Stored]:
    """In the order of the layers; with fewer experts for a smaller model of the same kind."""
    yield "model.embed_tokens.weight", ("BF16", (V, D))
    for layer in range(LAYERS):
        yield from _layer(layer, experts)
    yield "model.norm.weight", ("BF16", (D,))
    yield "lm_head.weight", ("BF16", (V, D))
    yield from _drafting(f"model.layers.{LAYERS}", experts)


def _layer(number: int, experts: int) -> Iterator[Stored]:
    at = f"model.layers.{number}"
    yield from _attention(f"{at}.self_attn")
    if number < DENSE:
        yield from _mlp(f"{at}.mlp", CONFIG["intermediate_size"])
    else:
        yield f"{at}.mlp.gate.weight", ("BF16", (experts, D))
        yield f"{at}.mlp.gate.e_score_correction_bias", ("F32", (experts,))
        for expert in range(experts):
            yield from _mlp(f"{at}.mlp.experts.{expert}", CONFIG["moe_intermediate_size"])
        yield from _mlp(f"{at}.mlp.shared_experts", CONFIG["moe_intermediate_size"])
    yield f"{at}.input_layernorm.weight", ("BF16", (D,))
    yield f"{at}.post_attention_layernorm.weight", ("BF16", (D,))


def _drafting(at: str, experts: int) -> Iterator[Stored]:
    """The layer behind the last, which predicts a token more: a MoE layer, with both embeddings."""
    yield from _layer(LAYERS, experts)
    yield f"{at}.embed_tokens.weight", ("BF16", (V, D))
    yield f"{at}.enorm.weight", ("BF16", (D,))
    yield f"{at}.hnorm.weight", ("BF16", (D,))
    yield f"{at}.eh_proj.weight", ("BF16", (D, 2 * D))
    yield f"{at}.shared_head.norm.weight", ("BF16", (D,))
    yield f"{at}.shared_head.head.weight", ("BF16", (V, D))


def _attention(at: str) -> Iterator[Stored]:
    """Latent attention: queries, and keys with values, each through a narrow vector."""
    nope, rope, value = 128, 64, 128
    narrow = CONFIG["q_lora_rank"]
    yield from _linear(f"{at}.q_a_proj", narrow, D)
    yield f"{at}.q_a_layernorm.weight", ("BF16", (narrow,))
    yield from _linear(f"{at}.q_b_proj", HEADS * (nope + rope), narrow)
    yield from _linear(f"{at}.kv_a_proj_with_mqa", LATENT + rope, D)
    yield f"{at}.kv_a_layernorm.weight", ("BF16", (LATENT,))
    yield from _linear(f"{at}.kv_b_proj", HEADS * (nope + value), LATENT)
    yield from _linear(f"{at}.o_proj", D, HEADS * value)


def _mlp(at: str, width: int) -> Iterator[Stored]:
    yield from _linear(f"{at}.gate_proj", width, D)
    yield from _linear(f"{at}.up_proj", width, D)
    yield from _linear(f"{at}.down_proj", D, width)


def _linear(at: str, out: int, into: int) -> Iterator[Stored]:
    yield f"{at}.weight", ("F8_E4M3", (out, into))
    yield f"{at}.weight_scale_inv", ("F32", (ceil(out / _BLOCK), ceil(into / _BLOCK)))


def files(experts: int = EXPERTS) -> Iterator[File]:
    """config.json, the index, and all weight files."""
    config = {**CONFIG, "n_routed_experts": experts}
    yield _text("config.json", config)
    parts = tuple(_parts(list(tensors(experts))))
    weight_map = {}
    for number, part in enumerate(parts, start=1):
        name = f"model-{number:05}-of-{len(parts):06}.safetensors"
        # As the library's writer has them: wide dtypes first, then by name.
        ordered = dict(sorted(part, key=lambda one: (-DTYPE_BITS[one[1][0]], one[0])))
        head = safetensors_bytes(ordered, metadata={"format": "pt"}, data=False)
        yield File(name, head, len(head) + sum(map(_bytes, part)))
        weight_map |= dict.fromkeys((tensor for tensor, _ in part), name)
    metadata = {"total_size": sum(_bytes(one) for part in parts for one in part)}
    yield _text("model.safetensors.index.json", {"metadata": metadata, "weight_map": weight_map})


def write(folder: Path) -> None:
    """All of them on a disk, with holes where the weights would be."""
    folder.mkdir()
    for one in files():
        with (folder / one.name).open("wb") as file:
            file.write(one.head)
            file.truncate(one.size)


def _text(name: str, value: Mapping[str, Any]) -> File:
    content = (json.dumps(value, indent=2) + "\n").encode()
    return File(name, content, len(content))


def _parts(every: Sequence[Stored]) -> Iterator[Sequence[Stored]]:
    """What each shard holds: it ends with the tensor that reaches its share of the bytes."""
    whole = sum(map(_bytes, every))
    part: list[Stored] = []
    done, ended = 0, 0
    for one in every:
        part.append(one)
        done += _bytes(one)
        if done * SHARDS >= (ended + 1) * whole:
            yield part
            part, ended = [], ended + 1


def _bytes(one: Stored) -> int:
    dtype, shape = one[1]
    return prod(shape) * DTYPE_BITS[dtype] // 8
