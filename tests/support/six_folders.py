"""Six folders of one small BERT: sound, and with five faults that people meet."""

import json
from pathlib import Path

from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by

ARCHITECTURE = "BertForMaskedLM"
_LOST = "bert.encoder.layer.1.output.dense.weight"


def _tensors():
    return {one.name: ("F32", tuple(one.shape)) for one in stored_by(expect(ARCHITECTURE))}


def _write(folder: Path, tensors, **config) -> Path:
    folder.mkdir(parents=True)
    described = {"architectures": [ARCHITECTURE], "dtype": "float32", **config}
    (folder / "config.json").write_bytes(config_bytes(**described))
    content = safetensors_bytes(tensors, metadata={"format": "pt"})
    (folder / "model.safetensors").write_bytes(content)
    return folder


def _shards(folder: Path) -> Path:
    """Two shards and their index, without the second shard."""
    tensors = _tensors()
    names = list(tensors)
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    files = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    _write(folder, {}).joinpath("model.safetensors").unlink()
    first = safetensors_bytes(
        {name: tensors[name] for name in halves[0]}, metadata={"format": "pt"}
    )
    (folder / files[0]).write_bytes(first)
    places = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def six_folders(place: Path) -> dict[str, Path]:
    """Write the folders into `place`; return them by the name of their fault."""
    tensors = _tensors()
    truncated = _write(place / "truncated", tensors) / "model.safetensors"
    truncated.write_bytes(truncated.read_bytes()[: truncated.stat().st_size * 3 // 4])
    return {
        "healthy": _write(place / "healthy", tensors),
        "missing tensor": _write(
            place / "missing", {name: one for name, one in tensors.items() if name != _LOST}
        ),
        "prefix": _write(
            place / "prefix", {f"module.{name}": one for name, one in tensors.items()}
        ),
        "lost shard": _shards(place / "lost-shard"),
        "truncated": truncated.parent,
        "wrong size": _write(place / "wrong-size", tensors, intermediate_size=17),
    }
