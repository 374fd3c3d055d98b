"""The smallest inputs, each in one line. Pure Python; data sections are zeros."""

import json
from collections.abc import Mapping, Sequence
from math import prod

from auditor.tensors import DTYPE_BITS

Described = Mapping[str, tuple[str, Sequence[int]]]


def safetensors_bytes(
    tensors: Described,
    *,
    metadata: Mapping[str, str] | None = None,
    align: int = 8,
    data: bool = True,
) -> bytes:
    """A whole file: `safetensors_bytes({"a": ("F32", (2, 3))})`; `data=False`: its head alone.

    The header is padded with spaces to a multiple of `align`, as the library's own writer does.
    """
    entries: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + prod(shape) * DTYPE_BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % align)
    return framed(header, bytes(end) if data else b"")


def framed(header: bytes | str, data: bytes = b"", *, length: int | None = None) -> bytes:
    """Any header behind its eight bytes of length, true or not."""
    content = header.encode() if isinstance(header, str) else header
    return (len(content) if length is None else length).to_bytes(8, "little") + content + data
