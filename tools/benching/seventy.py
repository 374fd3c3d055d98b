"""Llama-3.1-70B in 30 shards, as its config implies it, with zeros for numbers."""

import json
from collections.abc import Iterator
from math import prod

from support.builders import safetensors_bytes
from support.hub import Sparse

from auditor.analytic import Role, catalogue, read_config

SEVENTY = "bench/llama-70b"
_SHARD = 4_900_000_000  # bytes of data
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "vocab_size": 128_256,
    "hidden_size": 8192,
    "intermediate_size": 28_672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
}
Described = dict[str, tuple[str, tuple[int, ...]]]


def seventy() -> dict[str, bytes | Sparse]:
    """The files of the repository; the shards are made as they are read."""
    config = json.dumps(_CONFIG).encode()
    shards = list(_shards(config))
    files: dict[str, bytes | Sparse] = {"config.json": config}
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        head = safetensors_bytes(dict(sorted(shard.items())), data=False)
        files[name] = Sparse(head, len(head) + _bytes(shard))
        weight_map |= dict.fromkeys(shard, name)
    total = sum(map(_bytes, shards))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    return files


def _shards(config: bytes) -> Iterator[Described]:
    expected = catalogue.expect(read_config("config.json", config), "LlamaForCausalLM")
    part: Described = {}
    for one in expected.tensors:
        if one.role is Role.PARAMETER:
            if part and _bytes(part) + 2 * prod(one.shape) > _SHARD:
                yield part
                part = {}
            part[one.name] = ("BF16", one.shape)
    yield part


def _bytes(part: Described) -> int:
    return sum(2 * prod(shape) for _, shape in part.values())
