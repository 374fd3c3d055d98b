"""The files of a small model for the Hub on loopback, and of a large one that takes no room."""

from support.builders import framed, safetensors_bytes
from support.hub import Sparse

CONFIG, ONE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
WEIGHTS = safetensors_bytes({"a": ("F32", (2, 3))})
HEAD = WEIGHTS[:-24]  # 24 bytes of data: 4 * 2 * 3
FILES = {CONFIG: b"{}", ONE: WEIGHTS}


def large(length: int = 24_012) -> Sparse:
    """A file with a header of that length before five billion bytes that are never made."""
    header = safetensors_bytes({"a": ("U8", (5 * 10**9,))}, align=1, data=False)[8:]
    return Sparse(framed(header.ljust(length)), 8 + length + 5 * 10**9)
