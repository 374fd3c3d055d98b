"""A plain model's linears packed as the common layouts store them: shapes alone, by arithmetic."""

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from msgspec.structs import replace
from support.changes import with_values
from support.layouts.tables import (
    below,
    block_scaled,
    eight_bits,
    four_bits,
    gemm,
    gptq,
    mlx,
    pack_quantized,
)

from auditor.checkpoint.snapshot import Snapshot
from auditor.tensors import DTYPE_BITS, Span, StoredTensor

Table = dict[str, tuple[str, tuple[int, ...]]]  # dtype and shape, by name


def fp8(out: int, inputs: int, _bits: int, block: int) -> Table:
    return block_scaled(out, inputs, block, block)


def bitsandbytes(out: int, inputs: int, bits: int, _group: int) -> Table:
    return eight_bits((out, inputs)) if bits == 8 else four_bits((out, inputs))


def words_of_mlx(out: int, inputs: int, bits: int, group: int) -> Table:
    return mlx((out, inputs), bits, group)


def _compressed_settings(bits: int, group: int) -> dict[str, Any]:
    strategy = {"strategy": "channel"} if group == -1 else {"strategy": "group"}
    weights = {
        "num_bits": bits,
        "type": "int",
        "symmetric": True,
        "group_size": None if group == -1 else group,
        **strategy,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


# Method -> how it packs a linear, and what a config says of it.
METHODS: dict[
    str, tuple[Callable[[int, int, int, int], Table], Callable[[int, int], dict[str, Any]]]
] = {
    "gptq": (
        gptq,
        lambda bits, group: {
            "quant_method": "gptq",
            "bits": bits,
            "group_size": group,
            "desc_act": False,
        },
    ),
    "awq": (
        gemm,
        lambda bits, group: {
            "quant_method": "awq",
            "bits": bits,
            "group_size": group,
            "version": "gemm",
            "zero_point": True,
        },
    ),
    "fp8": (
        fp8,
        lambda _bits, block: {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [block, block],
        },
    ),
    "bitsandbytes": (
        bitsandbytes,
        lambda bits, _group: {
            "quant_method": "bitsandbytes",
            "load_in_4bit": bits == 4,
            "load_in_8bit": bits == 8,
            "bnb_4bit_quant_type": "nf4",
            "llm_int8_skip_modules": ["lm_head"],
        },
    ),
    "compressed-tensors": (pack_quantized, _compressed_settings),
    "mlx": (words_of_mlx, lambda bits, group: {"bits": bits, "group_size": group}),
}


def packed(
    plain: Snapshot, method: str, bits: int, group: int, *, left: Iterable[str] = ()
) -> Snapshot:
    """The same model with the linears of its layers packed, but for those whose names end so."""
    pack, settings = METHODS[method]
    left = (*left, "embed_tokens", "lm_head")
    heads = []
    for head in plain.headers:
        table: Table = {}
        for one in head.parsed.tensors:
            module = one.name.removesuffix(".weight")
            linear = one.name.endswith(".weight") and len(one.shape) == 2
            if linear and not module.endswith(left):
                table |= below(module, pack(*one.shape, bits, group))
            else:
                table[one.name] = (one.dtype, one.shape)
        tensors = tuple(_laid_out(table, head.name))
        heads.append(replace(head, size=None, known=replace(head.parsed, tensors=tensors)))
    key = "quantization" if method == "mlx" else "quantization_config"
    return with_values(replace(plain, headers=tuple(heads)), {key: settings(bits, group)})


def _laid_out(table: Table, file: str) -> Iterable[StoredTensor]:
    at = 0
    for name, (dtype, shape) in sorted(table.items()):
        size = prod(shape) * DTYPE_BITS[dtype] // 8
        yield StoredTensor(name, dtype, shape, prod(shape), file, Span(at, at + size))
        at += size
