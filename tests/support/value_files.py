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
