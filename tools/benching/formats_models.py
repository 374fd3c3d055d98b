"""Models of 7 and 8 billion parameters as a .bin, GGUF and GPTQ; their weights are holes.

Built in the server's process. What a reader can ask for is all there: the torch files' directories
and pickles, the whole of GGUF's metadata with a tokenizer, the header of safetensors.
"""

import json
import re
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from support.builders import safetensors_bytes
from support.gguf_files import ARRAY, F32, I32, STRING, U32, Pair, gguf_bytes
from support.gguf_files import Tensor as GgufTensor
from support.hub import Hub, Sparse
from support.torch_files import STORAGES, write_large

from auditor.analytic import Role, catalogue, read_config
from auditor.containers.gguf import GGML_TYPES
from auditor.tensors import DTYPE_BITS
from benching.checkpoints import GGUF, GGUF_FILE, GPTQ, TORCH

Shape = tuple[int, ...]
Described = dict[str, tuple[str, Shape]]  # name: (dtype, shape)
Files = dict[str, bytes | Sparse | Path]

_LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
LLAMA_2: Mapping[str, Any] = {
    **_LLAMA,
    "vocab_size": 32_000,
    "intermediate_size": 11_008,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}
LLAMA_3: Mapping[str, Any] = {
    **_LLAMA,
    "vocab_size": 128_256,
    "intermediate_size": 14_336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rope_theta": 500_000.0,
}
MERGES = 280_147  # of Llama 3's tokenizer

_SHARD = 10 * 10**9  # bytes: what save_pretrained filled a .bin with before it wrote safetensors
_GROUP = 128  # inputs to a scale of GPTQ
_F32, _Q4_K, _Q6_K = 0, 12, 14  # ggml's numbers


def add_formats(hub: Hub, folder: Path) -> None:
    """Serve all three; the torch files are written to the folder, as holes."""
    hub.add(TORCH, torch_files(folder))
    hub.add(GGUF, {GGUF_FILE: gguf_file()})
    hub.add(GPTQ, gptq_files())


def shapes(values: Mapping[str, Any]) -> dict[str, Shape]:
    """What a LlamaForCausalLM of this config stores."""
    config = read_config("config.json", json.dumps(values).encode())
    listed = catalogue.expect(config, "LlamaForCausalLM").tensors
    return {tensor.name: tensor.shape for tensor in listed if tensor.role is Role.PARAMETER}


# --- torch ------------------------------------------------------------------------------------


def torch_files(folder: Path) -> Files:
    """Llama-2-7B in F16 and two shards, with the inv_freq of every layer that it was saved with."""
    tensors: Described = {}
    for name, shape in shapes(LLAMA_2).items():
        tensors[name] = ("F16", shape)
        if name.endswith("self_attn.o_proj.weight"):
            tensors[name.replace("o_proj.weight", "rotary_emb.inv_freq")] = ("F32", (64,))
    parts = tuple(_parts(tensors))
    files: Files = {"config.json": _json(LLAMA_2)}
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        name = f"pytorch_model-{number:05}-of-{len(parts):05}.bin"
        files[name] = write_large(folder / name, part)
        weight_map |= dict.fromkeys(part, name)
    total = sum(_torch_size(*one) for one in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    files["pytorch_model.bin.index.json"] = _json(index)
    return files


def _parts(tensors: Described) -> Iterator[Described]:
    """Shards, each filled until the next tensor would pass the limit."""
    part: Described = {}
    size = 0
    for name, one in tensors.items():
        length = _torch_size(*one)
        if part and size + length > _SHARD:
            yield part
            part, size = {}, 0
        part[name] = one
        size += length
    yield part


def _torch_size(dtype: str, shape: Shape) -> int:
    return prod(shape) * STORAGES[dtype][1]


# --- GPTQ -------------------------------------------------------------------------------------


def gptq_files() -> Files:
    """Llama-2-7B in 4 bits, groups of 128, with act-order: one file."""
    settings = {
        "bits": 4,
        "group_size": _GROUP,
        "damp_percent": 0.1,
        "desc_act": True,
        "sym": True,
        "true_sequential": True,
        "quant_method": "gptq",
    }
    tensors: Described = {}
    for name, shape in shapes(LLAMA_2).items():
        if name.endswith("_proj.weight"):
            tensors |= _packed(name.removesuffix("weight"), *shape)
        else:
            tensors[name] = ("F16", shape)
    head = safetensors_bytes(dict(sorted(tensors.items())), metadata={"format": "pt"}, data=False)
    data = sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in tensors.values())
    config = _json({**LLAMA_2, "quantization_config": settings})
    return {"config.json": config, "model.safetensors": Sparse(head, len(head) + data)}


def _packed(module: str, outputs: int, inputs: int) -> Described:
    """A linear as auditor/layouts/gptq.py describes it: eight numbers to a word of 32 bits."""
    groups = inputs // _GROUP
    return {
        f"{module}g_idx": ("I32", (inputs,)),
        f"{module}qweight": ("I32", (inputs // 8, outputs)),
        f"{module}qzeros": ("I32", (groups, outputs // 8)),
        f"{module}scales": ("F16", (groups, outputs)),
    }


# --- GGUF -------------------------------------------------------------------------------------

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.weight")


def gguf_file() -> Sparse:
    """Llama-3.1-8B in Q4_K_M as llama.cpp writes it, with rope_freqs and the tokenizer."""
    table = [GgufTensor("rope_freqs.weight", (64,), _F32, 0)]
    end = _gguf_size(table[0])
    for name, shape in shapes(LLAMA_3).items():
        table.append(_gguf_tensor(name, shape, end))
        end += _gguf_size(table[-1])
    head = gguf_bytes(_metadata(), table, data=False)
    return Sparse(head, len(head) + end)


def _gguf_tensor(name: str, shape: Shape, offset: int) -> GgufTensor:
    number, kind = -1, name.removesuffix(".weight")
    if found := _LAYER.fullmatch(name):
        number, kind = int(found[1]), found[2]
    known = _GGUF_NAMES[kind]
    prefix = f"blk.{number}." if found else ""
    return GgufTensor(f"{prefix}{known}.weight", shape, _type(known, shape, number), offset)


def _type(known: str, shape: Shape, number: int) -> int:
    """Q4_K_M of llama.cpp's quantiser: norms in F32, the head and half of two kinds in Q6_K."""
    if len(shape) == 1:
        return _F32
    layers = LLAMA_3["num_hidden_layers"]
    eighth = layers // 8
    outer = number < eighth or number >= 7 * eighth or (number - eighth) % 3 == 2
    fine = known == "output" or (known in {"attn_v", "ffn_down"} and outer)
    return _Q6_K if fine else _Q4_K


def _gguf_size(tensor: GgufTensor) -> int:
    """Bytes of its data; all here are multiples of the alignment of 32."""
    kind = GGML_TYPES[tensor.type]
    return prod(tensor.shape) // kind.block * kind.size


def _metadata() -> list[Pair]:
    """The pairs of such a file in llama.cpp's order; 7.8 MB, as Llama 3's tokenizer makes them."""
    count: int = LLAMA_3["vocab_size"]
    tokens = [f"Ġ{number:05x}" for number in range(count)]
    merges = [f"Ġ{number:05x} {number % 4096:03x}" for number in range(MERGES)]
    return [
        ("general.architecture", STRING, "llama"),
        ("general.type", STRING, "model"),
        ("general.name", STRING, "Llama 3.1 8B"),
        ("llama.block_count", U32, LLAMA_3["num_hidden_layers"]),
        ("llama.context_length", U32, LLAMA_3["max_position_embeddings"]),
        ("llama.embedding_length", U32, LLAMA_3["hidden_size"]),
        ("llama.feed_forward_length", U32, LLAMA_3["intermediate_size"]),
        ("llama.attention.head_count", U32, LLAMA_3["num_attention_heads"]),
        ("llama.attention.head_count_kv", U32, LLAMA_3["num_key_value_heads"]),
        ("llama.rope.freq_base", F32, LLAMA_3["rope_theta"]),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("general.file_type", U32, 15),  # mostly Q4_K_M
        ("llama.vocab_size", U32, count),
        ("llama.rope.dimension_count", U32, 128),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "llama-bpe"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * count)),
        ("tokenizer.ggml.merges", ARRAY, (STRING, merges)),
        ("tokenizer.ggml.bos_token_id", U32, 128_000),
        ("tokenizer.ggml.eos_token_id", U32, 128_009),
        ("general.quantization_version", U32, 2),
    ]


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
