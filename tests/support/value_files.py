"""Small safetensors files with given numbers, written without any library of the field."""

import json
from pathlib import Path

import numpy as np

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16"} | {
    f"{sign}int{bits}": f"{letter}{bits}"
    for sign, letter in (("", "I"), ("u", "U"))
    for bits in (8, 16, 32, 64)
}


def bf16(numbers: np.ndarray) -> np.ndarray:
    """The upper halves of float32."""
    return (np.asarray(numbers, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_numbers(path: Path, tensors: dict) -> Path:
    """name -> an array, or (dtype, shape, bytes)."""
    entries, contents, at = {}, [], 0
    for name, value in tensors.items():
        raw = isinstance(value, tuple)
        dtype, shape, content = (
            value
            if raw
            else (
                DTYPES[str(value.dtype)],
                value.shape,
                value.tobytes(),
            )
        )
        entries[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [at, at + len(content)],
        }
        contents.append(content)
        at += len(content)
    header = json.dumps(entries).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join([len(header).to_bytes(8, "little"), header, *contents]))
    return path


def write_model(folder: Path, tensors: dict, shards: int = 1, config: dict | None = None) -> str:
    """A folder of the tensors in the given order, dealt out to the shards in turn."""
    names = list(tensors)
    weight_map = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        file = file if shards > 1 else "model.safetensors"
        write_numbers(folder / file, {name: tensors[name] for name in names[number::shards]})
        weight_map |= dict.fromkeys(names[number::shards], file)
    if shards > 1:
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config or {}))
    return str(folder)
