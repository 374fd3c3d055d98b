"""torchao, https://github.com/pytorch/ao: tensor subclasses, stored as their inner tensors.

A parameter `X.weight` becomes `X._weight_qdata`, `X._weight_scale` and so on, one for each inner
tensor; torchao 0.14 wrote `X.weight:qdata`, `X.weight:scale`, and `X.norm.weight:_data` for
unpacked parameters. A weight (out, in), with any number of experts before both, is stored as:

    Int8Tensor, IntxUnpackedToInt8Tensor   qdata I8 (out, in)         scale (out, in/g)
    Float8Tensor                           qdata F8 (out, in)         scale (out/b, in/c)
    Int4Tensor                             qdata I8 (out, in/2)       scale (in/g, out)
    Int4PlainInt32Tensor                   qdata I32 (out, in/8)      scale (in/g, out)
    Int4TilePackedTo4dTensor               qdata I32 (N/8, K/128, 32, 4)
                                           scale_and_zero (K/g, N, 2)
    MXTensor                               qdata F8 (out, in) or U8 (out, in/2)
                                           scale F8_E8M0 (out, in/32)
    NVFP4Tensor                            qdata U8 (out, in/2)       scale F8_E4M3 (out, in/16)

zero_point has the shape of scale. N and K are out and in, rounded up to the tiles' 8 or 16 and
1,024. The scales of the last two may be swizzled: 32 x 16 for every 128 x 128 numbers, or 128 x 64
for NVFP4. The file's metadata names the class; dtypes and shapes show it too. Sources: torchao/
quantization/quantize_/workflows, prototype/mx_formats and prototype/safetensors of 0.18.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import prod

from auditor.layouts.engine import Bundle, LayoutTable, Packing, constant_settings
from auditor.layouts.packing import (
    FLOATS,
    Members,
    Shape,
    Stored,
    WrittenTensor,
    tensor_name,
)
from auditor.tensors import DTYPE_BITS, StoredTensor

_COMPANIONS: Mapping[str, str] = {
    "scale": "scales of the packed numbers",
    "zero_point": "zero points, one for each scale",
    "scale_and_zero": "scales and zero points of the packed numbers",
    "per_tensor_scale": "scales of the scales, one for a tensor",
    "act_pre_scale": "scales of activations",
    "act_quant_scale": "scales of activations",
    "act_quant_zero_point": "zero points of activations",
    "act_per_tensor_scale": "scales of activations",
}
_NAME = re.compile(rf"(?:_(\w+?)_|(\w+):)(qdata|_data|{'|'.join(_COMPANIONS)})", re.ASCII)
_BYTES = {"I8": "INT8", "F8_E4M3": "F8_E4M3", "F8_E5M2": "F8_E5M2"}
_ANY = tuple(DTYPE_BITS)  # dtypes of scales, and of zero points, which may be floats
_TILED = 4  # dimensions of qdata in tiles
_INPUTS_TILE, _OUTPUTS_TILE = 1024, 16


def _recognises(stored: Stored) -> bool:
    """Whether a name ends in `_weight_qdata` or `weight:qdata`."""
    return any(
        last.endswith(("_qdata", ":qdata"))
        for members in stored.modules.values()
        for last in members
    )


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    """Yield `X.weight` with its inner tensors; a `_data` tensor is a plain parameter."""
    for module, members in stored.modules.items():
        parts_by_parameter: dict[tuple[str, bool], dict[str, StoredTensor]] = defaultdict(dict)
        for last, tensor in members.items():
            match = _NAME.fullmatch(last) if last[:1] == "_" or ":" in last else None
            if match is not None:
                parts_by_parameter[match[1] or match[2], ":" in last][match[3]] = tensor
        for (parameter, _), parts in parts_by_parameter.items():
            name = tensor_name(module, parameter)
            if "_data" in parts:
                own = parts.pop("_data")
                yield Bundle(module, name, {"qdata": own}, plain=own)
            if parts:
                yield Bundle(module, name, parts)


# --- one parameter ----------------------------------------------------------------------------


def _by_shapes(parts: Members, _settings: None, expected: Shape | None) -> list[Packing] | str:
    """Return the possible packings by the dtypes of qdata and scale, or a text on a valid shape."""
    stored, dtype = parts["qdata"].shape or (), parts["qdata"].dtype or ""
    if len(stored) < 2 or 0 in stored:  # noqa: PLR2004 - (out, in)
        return "two axes or more"
    halves = (*stored[:-1], stored[-1] * 2)
    is_tiled = "scale_and_zero" in parts or len(stored) >= _TILED
    if dtype == "I32" and not is_tiled:
        return [_scaled(parts, "INT4", (*stored[:-1], stored[-1] * 8))]
    if dtype == "I32":
        return [_tiles(parts, stored, expected)] if len(stored) >= _TILED else "tiles (..., 32, 4)"
    if dtype == "U8":
        is_mx = "scale" in parts and parts["scale"].dtype == "F8_E8M0"
        return [_scaled(parts, "MXFP4" if is_mx else "NVFP4", halves)]
    if dtype not in _BYTES:
        return "a dtype of a class of torchao"
    is_int4 = dtype == "I8" and _is_int4(parts, halves)
    return [_scaled(parts, "INT4", halves) if is_int4 else _scaled(parts, _BYTES[dtype], stored)]


def _is_int4(parts: Members, halves: Shape) -> bool:
    """Whether a byte of qdata holds two numbers, as its scales and float zero points show."""
    scale, zero = (parts.get(last) for last in ("scale", "zero_point"))
    if scale is None or scale.shape is None or len(scale.shape) != len(halves):
        return False
    *_, outputs, inputs = halves
    *_, groups, width = scale.shape
    if zero is not None and zero.dtype is not None and not zero.dtype.startswith(("F", "BF")):
        return False
    return groups > 0 and width == outputs and inputs % groups == 0 and groups != outputs


def _scaled(parts: Members, dtype: str, shape: Shape) -> Packing:
    """Return the packing of a qdata that has the axes of a plain weight, with its scales."""
    scale = _scales(parts, dtype, shape)
    tensors = {
        "scale": scale,
        "per_tensor_scale": _one_or(parts, "per_tensor_scale", prod(shape[:-2])),
        "act_pre_scale": _one_or(parts, "act_pre_scale", shape[-1]),
    }
    stored = parts["scale"].shape if "scale" in parts else None
    if stored is not None:
        tensors["zero_point"] = WrittenTensor(stored, _ANY)
    return Packing(shape=shape, dtype=dtype, tensors=tensors, words=dtype)


def _scales(parts: Members, dtype: str, shape: Shape) -> WrittenTensor:
    """Return the expected scales: one of a few shapes, or one block size for each axis."""
    *experts, outputs, inputs = shape
    scale = parts.get("scale")
    if dtype == "NVFP4" or (scale is not None and scale.dtype == "F8_E8M0" and dtype != "INT4"):
        block, tile = (16, 64) if dtype == "NVFP4" else (32, 128)
        swizzled = (*experts, 32 * -(-outputs // 128), 16 * -(-inputs // tile))
        plain = (*experts, outputs, -(-inputs // block))
        return WrittenTensor(plain, _ANY, others=(swizzled,))
    weight_shape = (*experts, inputs, outputs) if dtype == "INT4" else shape
    stored = scale.shape if scale is not None else None
    if stored is not None and len(stored) == len(weight_shape) and 0 not in stored:
        rests = (number % part for number, part in zip(weight_shape, stored, strict=True))
        if not any(rests):
            return WrittenTensor(stored, _ANY)
    channel = (*experts, 1, outputs) if dtype == "INT4" else (*experts, outputs, 1)
    others: tuple[Shape, ...] = () if dtype == "INT4" else ((), (1,), (outputs,))
    return WrittenTensor(channel, _ANY, others=others)


def _one_or(parts: Members, last: str, count: int) -> WrittenTensor:
    """Return the expected tensor `last`, which has one or `count` elements, in any shape."""
    stored = parts[last].shape if last in parts else None
    fits = stored is not None and prod(stored) in {1, count}
    return WrittenTensor(stored if fits and stored is not None else (count,), _ANY)


def _tiles(parts: Members, stored: Shape, expected: Shape | None) -> Packing:
    """Return the packing of qdata (N/8, K/128, 32, 4) with scale_and_zero (K/g, N, 2)."""
    *experts, rows, columns, _, half = stored
    outputs, inputs = rows * 8, columns * 16 * half * 2
    both = parts["scale_and_zero"].shape if "scale_and_zero" in parts else None
    groups = both[-3] if both is not None and len(both) > 2 else 1  # noqa: PLR2004 - (K/g, N, 2)
    if groups < 1 or inputs % groups:
        groups = 1
    before = both[:-3] if both is not None else ()
    tensors = {
        "qdata": WrittenTensor((*experts, rows, columns, 32, 4), ("I32",)),
        "scale_and_zero": WrittenTensor((*before, groups, outputs, 2), FLOATS),
    }
    shape = _trimmed((*experts, outputs, inputs), expected)
    return Packing(shape=shape, dtype="INT4", tensors=tensors, words="tiles of INT4")


def _trimmed(shape: Shape, expected: Shape | None) -> Shape:
    """Return the architecture's shape if padding to full tiles gives `shape`, else `shape`."""
    if expected is None or len(expected) != len(shape) or expected[:-2] != shape[:-2]:
        return shape
    spare = [stored - needed for stored, needed in zip(shape[-2:], expected[-2:], strict=True)]
    fits = 0 <= spare[0] < _OUTPUTS_TILE and 0 <= spare[1] < _INPUTS_TILE
    return expected if fits else shape


LAYOUT = LayoutTable[None](
    name="torchao",
    recognises=_recognises,
    packed="qdata",
    dtypes=frozenset(_ANY),
    dtype="INT8",
    companions=_COMPANIONS,
    needed=lambda parts, *_: ["scale_and_zero" if "scale_and_zero" in parts else "scale"],
    settings=constant_settings(lambda *_: None),
    by_shapes=_by_shapes,
    bundles=_bundles,
).layout()
