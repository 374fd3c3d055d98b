"""The writer of small GGUF files, of any metadata and table of tensors."""

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

Shape = tuple[int, ...]  # slowest first, as in PyTorch

# The numbers of value types, and struct's letters.
TYPES = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I")}
TYPES |= {"i32": (5, "i"), "f32": (6, "f"), "bool": (7, "B"), "str": (8, ""), "arr": (9, "")}
TYPES |= {"u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}
# ggml's types of tensors: (number, numbers in a block, bytes of a block).
GGML = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34)}
GGML |= {"BF16": (30, 1, 2), "I8": (24, 1, 1), "I32": (26, 1, 4), "F64": (28, 1, 8)}
_ALIGNMENT = 32


class Typed(NamedTuple):
    """A value of the metadata with its type; a list has items of the type."""

    type: str  # "u32"
    value: bool | float | str | list[int] | list[float] | list[str]


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _one(kind: str, value: object) -> bytes:
    return _text(str(value)) if kind == "str" else struct.pack("<" + TYPES[kind][1], value)


def _pair(key: str, typed: Typed) -> bytes:
    number = TYPES[typed.type][0]
    if not isinstance(typed.value, list):
        return _text(key) + struct.pack("<I", number) + _one(typed.type, typed.value)
    start = _text(key) + struct.pack("<IIQ", TYPES["arr"][0], number, len(typed.value))
    return start + b"".join(_one(typed.type, item) for item in typed.value)


def write(
    path: Path,
    metadata: Mapping[str, Typed],
    shapes: Mapping[str, Shape],
    types: Mapping[str, str] | None = None,
) -> None:
    """Write a file with zeros as data; a tensor is F32 unless `types` has another type."""
    types = types or {}
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(metadata))]
    parts += [_pair(key, typed) for key, typed in metadata.items()]
    end = 0
    for name, shape in shapes.items():
        number, block, size = GGML[types.get(name, "F32")]
        dimensions = shape[::-1]
        parts.append(_text(name) + struct.pack("<I", len(dimensions)))
        parts.append(struct.pack(f"<{len(dimensions)}QIQ", *dimensions, number, end))
        end += -(-math.prod(shape) // block * size // _ALIGNMENT) * _ALIGNMENT
    header = b"".join(parts)
    start = -(-len(header) // _ALIGNMENT) * _ALIGNMENT
    with path.open("wb") as file:
        file.write(header)
        file.truncate(start + end)
