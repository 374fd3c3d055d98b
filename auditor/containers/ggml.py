"""The types of ggml's tensors: how many numbers a block holds, and how many bytes it takes.

Numbers and names are those of `enum ggml_type` in ggml.h; sizes those of its block structs, which
the `gguf` package has as GGML_QUANT_SIZES. Where safetensors has a dtype of the same name, it is
the same dtype.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class GgmlType(NamedTuple):
    """One way of storing a row of numbers, block by block."""

    name: str  # "F32", "Q4_K"
    block: int  # numbers in a block; a row is a whole number of blocks
    size: int  # bytes of a block


def _types(*rows: tuple[int, str, int, int]) -> Mapping[int, GgmlType]:
    return MappingProxyType({number: GgmlType(*fields) for number, *fields in rows})  # type: ignore[arg-type]


TYPES = _types(
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 2 + 16),
    (3, "Q4_1", 32, 2 + 2 + 16),
    (6, "Q5_0", 32, 2 + 4 + 16),
    (7, "Q5_1", 32, 2 + 2 + 4 + 16),
    (8, "Q8_0", 32, 2 + 32),
    (9, "Q8_1", 32, 4 + 4 + 32),
    (10, "Q2_K", 256, 2 + 2 + 16 + 64),
    (11, "Q3_K", 256, 2 + 12 + 32 + 64),
    (12, "Q4_K", 256, 2 + 2 + 12 + 128),
    (13, "Q5_K", 256, 2 + 2 + 12 + 32 + 128),
    (14, "Q6_K", 256, 2 + 16 + 64 + 128),
    (15, "Q8_K", 256, 4 + 256 + 32),
    (16, "IQ2_XXS", 256, 2 + 64),
    (17, "IQ2_XS", 256, 2 + 64 + 8),
    (18, "IQ3_XXS", 256, 2 + 64 + 32),
    (19, "IQ1_S", 256, 2 + 32 + 16),
    (20, "IQ4_NL", 32, 2 + 16),
    (21, "IQ3_S", 256, 2 + 64 + 8 + 32 + 4),
    (22, "IQ2_S", 256, 2 + 64 + 8 + 8),
    (23, "IQ4_XS", 256, 2 + 2 + 4 + 128),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 32 + 16 + 8),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 48 + 4 + 2),
    (35, "TQ2_0", 256, 64 + 2),
    (39, "MXFP4", 32, 1 + 16),
    (40, "NVFP4", 64, 4 + 32),
    (41, "Q1_0", 128, 2 + 16),
)

# Numbers that had a meaning once; llama.cpp refuses files that use them.
REMOVED: Mapping[int, str] = MappingProxyType(
    {
        4: "Q4_2",
        5: "Q4_3",
        31: "Q4_0_4_4",
        32: "Q4_0_4_8",
        33: "Q4_0_8_8",
        36: "IQ4_NL_4_4",
        37: "IQ4_NL_4_8",
        38: "IQ4_NL_8_8",
    }
)
