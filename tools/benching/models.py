"""The models that are measured; built in the server's process, weights never materialised."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from support import deepseek_v3
from support.builders import Described, safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Hub, Sparse

from auditor.checkpoint.snapshot import WeightHeader
from auditor.downloader import bundled
from auditor.downloader.model_argument import HubModel
from auditor.tensors import DTYPE_BITS, StoredTensor
from benching.checkpoints import BERT, DEEPSEEK, LLAMA, MANY_LAYERS, SHARDS

BERT_ID = "google-bert/bert-base-chinese"  # the other name is its alias

# meta-llama/Llama-3.1-8B's config.json.
LLAMA_CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
_LLAMA_SHARD = 5 * 10**9  # bytes: what save_pretrained fills before it begins another file

Files = dict[str, bytes | Sparse]


def add_models(hub: Hub, layers: int, experts: int) -> None:
    """Serve checkpoints.listed(layers, experts), BERT by its legacy name too."""
    hub.add(BERT_ID, single(), aliases=[BERT])
    hub.add(LLAMA, llama())
    code = dict.fromkeys(("configuration_deepseek.py", "modeling_deepseek.py"), b"# not read\n")
    weights = {one.name: _content(one) for one in deepseek_v3.files(experts)}
    hub.add(DEEPSEEK, {**code, **weights})
    hub.add(MANY_LAYERS, sharded(layers, SHARDS))


def _content(file: deepseek_v3.File) -> bytes | Sparse:
    return file.head if len(file.head) == file.size else Sparse(file.head, file.size)


def llama() -> Files:
    """Llama-3.1-8B in 4 shards, name by name."""
    parts: list[Described] = [{}]
    size = 0
    for name, shape in _llama_tensors():
        length = 2 * prod(shape)
        if size + length > _LLAMA_SHARD:
            parts.append({})
            size = 0
        parts[-1] = {**parts[-1], name: ("BF16", shape)}
        size += length
    files: Files = {"config.json": _json(LLAMA_CONFIG)}
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        head = safetensors_bytes(dict(sorted(part.items())), metadata={"format": "pt"}, data=False)
        files[name] = Sparse(head, len(head) + sum(2 * prod(shape) for _, shape in part.values()))
        weight_map |= dict.fromkeys(part, name)
    total = sum(2 * prod(shape) for _, shape in _llama_tensors())
    files["model.safetensors.index.json"] = _json(
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    )
    return files


def _llama_tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
    V, D, F, KV = 128_256, 4096, 14_336, 8 * 128
    yield "model.embed_tokens.weight", (V, D)
    for number in range(32):
        at = f"model.layers.{number}"
        yield f"{at}.self_attn.q_proj.weight", (D, D)
        yield f"{at}.self_attn.k_proj.weight", (KV, D)
        yield f"{at}.self_attn.v_proj.weight", (KV, D)
        yield f"{at}.self_attn.o_proj.weight", (D, D)
        yield f"{at}.mlp.gate_proj.weight", (F, D)
        yield f"{at}.mlp.up_proj.weight", (F, D)
        yield f"{at}.mlp.down_proj.weight", (D, F)
        yield f"{at}.input_layernorm.weight", (D,)
        yield f"{at}.post_attention_layernorm.weight", (D,)
    yield "model.norm.weight", (D,)
    yield "lm_head.weight", (V, D)


def single() -> Files:
    """bert-base-chinese: its published config and the header of its 411,553,788 bytes."""
    snapshot = bundled.read(HubModel(id=BERT_ID))
    if snapshot.config is None:
        message = f"the snapshot of {BERT_ID} has no config"
        raise ValueError(message)
    weights = {head.name: _zeros_after(head) for head in snapshot.headers}
    return {snapshot.config.name: snapshot.config.content, **weights}


def _zeros_after(head: WeightHeader) -> Sparse:
    if head.size is None:
        message = f"the snapshot does not know the size of {head.name}"
        raise ValueError(message)
    return Sparse(head.prefix, head.size)


def sharded(layers: int, shards: int) -> Files:
    """A BertModel of tiny width, as save_pretrained writes it: shards of consecutive tensors."""
    tensors = stored_by(expect("BertModel", num_hidden_layers=layers))
    files: Files = {}
    weight_map = {}
    parts = tuple(_parts(tensors, shards))
    for number, part in enumerate(parts, start=1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        files[name] = _shard(part)
        weight_map |= dict.fromkeys((tensor.name for tensor in part), name)
    files["model.safetensors.index.json"] = _index(tensors, weight_map)
    files["config.json"] = config_bytes(
        architectures=["BertModel"], num_hidden_layers=layers, dtype="float32"
    )
    return files


def _parts(tensors: Sequence[StoredTensor], shards: int) -> Iterator[Sequence[StoredTensor]]:
    size = -(-len(tensors) // shards)
    for start in range(0, len(tensors), size):
        yield tensors[start : start + size]


def _shard(part: Sequence[StoredTensor]) -> Sparse:
    """The header in the order of names, as the library's own writer has it for one dtype."""
    described: Described = {
        tensor.name: (tensor.dtype, tensor.shape) for tensor in sorted(part, key=_name)
    }
    head = safetensors_bytes(described, metadata={"format": "pt"}, data=False)
    return Sparse(head, len(head) + _size(part))


def _index(tensors: Sequence[StoredTensor], weight_map: dict[str, str]) -> bytes:
    parameters = sum(prod(tensor.shape) for tensor in tensors)
    metadata = {"total_parameters": parameters, "total_size": _size(tensors)}
    return _json({"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))})


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _size(tensors: Sequence[StoredTensor]) -> int:
    return sum(prod(tensor.shape) * DTYPE_BITS[tensor.dtype] // 8 for tensor in tensors)


def _name(tensor: StoredTensor) -> str:
    return tensor.name
