"""The two models that are measured; built in the server's process, weights never materialised."""

import json
from collections.abc import Iterator, Sequence
from math import prod

from support.builders import Described, safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Hub, Sparse

from auditor.checkpoint.snapshot import WeightHeader
from auditor.downloader import bundled
from auditor.downloader.model_argument import HubModel
from auditor.tensors import DTYPE_BITS, StoredTensor

SINGLE_ID, SINGLE_ALIAS = "google-bert/bert-base-chinese", "bert-base-chinese"
SHARDED_ID = "bench/many-layers"

Files = dict[str, bytes | Sparse]


def add_models(hub: Hub, layers: int, shards: int) -> None:
    """Serve the single file, by its legacy name too, and the sharded model."""
    hub.add(SINGLE_ID, single(), aliases=[SINGLE_ALIAS])
    hub.add(SHARDED_ID, sharded(layers, shards))


def single() -> Files:
    """bert-base-chinese: its published config and the header of its 411,553,788 bytes."""
    snapshot = bundled.read(HubModel(id=SINGLE_ID))
    if snapshot.config is None:
        message = f"the snapshot of {SINGLE_ID} has no config"
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
    content = {"metadata": metadata, "weight_map": weight_map}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _size(tensors: Sequence[StoredTensor]) -> int:
    return sum(prod(tensor.shape) * DTYPE_BITS[tensor.dtype] // 8 for tensor in tensors)


def _name(tensor: StoredTensor) -> str:
    return tensor.name
