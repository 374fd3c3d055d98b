"""torchao, https://github.com/pytorch/ao: tensor subclasses, taken apart for safetensors.

A parameter `X.weight` becomes `X._weight_qdata`, `X._weight_scale` and so on, one for each tensor
inside; torchao 0.14 wrote `X.weight:qdata`, `X.weight:scale`, and `X.norm.weight:_data` for
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
from typing import NamedTuple

from auditor.layouts.packing import (
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    Members,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
    tensor_name,
)
from auditor.tensors import StoredTensor

_NOTES: Mapping[str, str] = {
    "scale": "scales of the packed numbers",
    "zero_point": "zero points, one for each scale",
    "scale_and_zero": "scales and zero points of the packed numbers",
    "per_tensor_scale": "scales of the scales, one for a tensor",
    "act_pre_scale": "scales of activations",
    "act_quant_scale": "scales of activations",
    "act_quant_zero_point": "zero points of activations",
    "act_per_tensor_scale": "scales of activations",
}
_NAME = re.compile(rf"(?:_(\w+?)_|(\w+):)(qdata|_data|{'|'.join(_NOTES)})", re.ASCII)
_BYTES = {"I8": "INT8", "F8_E4M3": "F8_E4M3", "F8_E5M2": "F8_E5M2"}
_FLOATS = ("F", "BF")
_TILED = 4  # dimensions of a weight in tiles
_INPUTS_TILE, _OUTPUTS_TILE = 1024, 16


def recognises(stored: Stored) -> bool:
    """Whether a name ends in `_weight_qdata` or `weight:qdata`."""
    return any(
        last.endswith(("_qdata", ":qdata"))
        for members in stored.modules.values()
        for last in members
    )


class _Parts(NamedTuple):
    """The stored tensors of one parameter."""

    name: str
    qdata: StoredTensor
    others: Members  # scale, zero_point, ...


def unpack(stored: Stored, _declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each `_weight_qdata` as `weight`."""
    ledger, kinds = PackingLedger(), set()
    for name, members in _parameters(stored):
        plain, qdata = members.pop("_data", None), members.pop("qdata", None)
        if plain is not None:
            ledger.tensors.append(LogicalTensor(plain, name, plain.shape, plain.dtype or "F32"))
        for last, tensor in members.items():
            ledger.note(_NOTES[last], tensor)
        if qdata is not None:
            kinds.add(_unpack(_Parts(name, qdata, members), implied, ledger))
        elif members:
            ledger.lack("scales and the like whose qdata is not stored", *members.values())
    return ledger.close(", ".join(("torchao", *sorted(kind for kind in kinds if kind))))


def _parameters(stored: Stored) -> Iterator[tuple[str, dict[str, StoredTensor]]]:
    """Yield `X.weight` and its parts; a single part with an ordinary name is not packed."""
    for module, members in stored.modules.items():
        parts_by_parameter: dict[tuple[str, bool], dict[str, StoredTensor]] = defaultdict(dict)
        for last, tensor in members.items():
            named = _NAME.fullmatch(last) if last[:1] == "_" or ":" in last else None
            if named is not None:
                parts_by_parameter[named[1] or named[2], ":" in last][named[3]] = tensor
        for (parameter, _), parts in parts_by_parameter.items():
            yield tensor_name(module, parameter), parts


# --- one parameter ----------------------------------------------------------------------------


def _unpack(parts: _Parts, implied: Implied, ledger: PackingLedger) -> str:
    qdata = parts.qdata
    _lacking(parts, ledger)
    if qdata.shape is None:
        ledger.tensors.append(LogicalTensor(qdata, parts.name, None, "INT8"))
        return ""
    read = _reading(parts)
    if read is None:
        ledger.fault(f"qdata is {qdata.dtype} {qdata.shape}, which no class of torchao has", qdata)
        return ""
    label, shape = read
    if label == "INT4" and _is_tiled(parts):
        shape = _trimmed(shape, implied(parts.name))
        _check_tiled(parts, ledger)
    else:
        _check(parts, label, shape, ledger)
    ledger.tensors.append(LogicalTensor(qdata, parts.name, shape, label))
    return label.lower()


def _lacking(parts: _Parts, ledger: PackingLedger) -> None:
    if not {"scale", "scale_and_zero"} & parts.others.keys():
        ledger.lack("packed without its scale", parts.qdata)


def _is_tiled(parts: _Parts) -> bool:
    return "scale_and_zero" in parts.others or len(parts.qdata.shape or ()) >= _TILED


def _reading(parts: _Parts) -> tuple[str, Shape] | None:
    """Return the dtype and shape of the numbers; None if no class stores such a qdata."""
    dtype, shape = parts.qdata.dtype, parts.qdata.shape or ()
    if len(shape) < 2 or 0 in shape:  # noqa: PLR2004 - (out, in)
        return None
    halves = (*shape[:-1], shape[-1] * 2)
    if dtype == "I32":
        return _words(parts, shape)
    if dtype == "U8":
        return ("MXFP4" if _scale_dtype(parts) == "F8_E8M0" else "NVFP4"), halves
    if dtype == "I8" and _is_int4(parts, halves):
        return "INT4", halves
    return (_BYTES[dtype], shape) if dtype in _BYTES else None


def _words(parts: _Parts, shape: Shape) -> tuple[str, Shape] | None:
    if not _is_tiled(parts):
        return "INT4", (*shape[:-1], shape[-1] * 8)
    if len(shape) < _TILED:
        return None
    *experts, rows, columns, _, half = shape
    return "INT4", (*experts, rows * 8, columns * 16 * half * 2)


def _scale_dtype(parts: _Parts) -> str | None:
    return parts.others["scale"].dtype if "scale" in parts.others else None


def _is_int4(parts: _Parts, halves: Shape) -> bool:
    """Whether a byte has two numbers: then scales are (in/g, out), and zero points floats."""
    scale, zero = (parts.others.get(last) for last in ("scale", "zero_point"))
    if scale is None or scale.shape is None or len(scale.shape) != len(halves):
        return False
    *_, outputs, inputs = halves
    *_, groups, width = scale.shape
    if zero is not None and zero.dtype is not None and not zero.dtype.startswith(_FLOATS):
        return False
    return groups > 0 and width == outputs and inputs % groups == 0 and groups != outputs


def _trimmed(shape: Shape, expected: Shape | None) -> Shape:
    """Return the architecture's shape if it rounds up to these tiles, else the stored shape."""
    if expected is None or len(expected) != len(shape) or expected[:-2] != shape[:-2]:
        return shape
    spare = [held - needed for held, needed in zip(shape[-2:], expected[-2:], strict=True)]
    fits = 0 <= spare[0] < _OUTPUTS_TILE and 0 <= spare[1] < _INPUTS_TILE
    return expected if fits else shape


# --- scales and zero points -------------------------------------------------------------------


def _check(parts: _Parts, label: str, shape: Shape, ledger: PackingLedger) -> None:
    scale = parts.others.get("scale")
    if scale is None or scale.shape is None:
        return
    allowed = _allowed(parts, label, shape)
    if not _divides(scale.shape, allowed):
        held = f"{parts.qdata.dtype} {parts.qdata.shape} holds {shape} of {label}"
        ledger.fault(f"scale is {scale.shape}: qdata {held}", scale)
    zero = parts.others.get("zero_point")
    if zero is not None and zero.shape not in {None, scale.shape}:
        ledger.fault(f"zero_point is {zero.shape}, scale is {scale.shape}", zero)
    _check_small(parts, shape, ledger)


class _Allowed(NamedTuple):
    """The shapes that scales may have: one of `exact`, or parts of `blocks`, side by side."""

    exact: frozenset[Shape]
    blocks: Shape | None


def _allowed(parts: _Parts, label: str, shape: Shape) -> _Allowed:
    *experts, outputs, inputs = shape
    if label == "INT4":
        return _Allowed(frozenset(), (*experts, inputs, outputs))
    if _scale_dtype(parts) == "F8_E8M0" or label == "NVFP4":
        block, tile = (16, 64) if label == "NVFP4" else (32, 128)
        swizzled = (32 * -(-outputs // 128), 16 * -(-inputs // tile))
        plain = (outputs, -(-inputs // block))
        return _Allowed(frozenset({(*experts, *swizzled), (*experts, *plain)}), None)
    return _Allowed(frozenset({(), (1,), (outputs,)}), shape)


def _divides(scale: Shape, allowed: _Allowed) -> bool:
    if scale in allowed.exact:
        return True
    blocks = allowed.blocks
    if blocks is None or len(scale) != len(blocks) or 0 in scale:
        return False
    return all(number % part == 0 for number, part in zip(blocks, scale, strict=True))


def _check_tiled(parts: _Parts, ledger: PackingLedger) -> None:
    """Check scale_and_zero (K/g, N, 2) against qdata (N/8, K/128, 32, 4)."""
    qdata, both = parts.qdata, parts.others.get("scale_and_zero")
    *_, rows, columns, lanes, half = qdata.shape or ()
    if (lanes, half) != (32, 4):  # a warp, and t = 8 in the class
        ledger.fault(f"qdata is {qdata.shape}, tiles are (..., 32, 4)", qdata)
    if both is None or both.shape is None:
        return
    outputs, inputs = rows * 8, columns * 16 * half * 2
    fits = len(both.shape) > 2 and both.shape[-2:] == (outputs, 2)  # noqa: PLR2004 - (K/g, N, 2)
    if not fits or both.shape[-3] < 1 or inputs % both.shape[-3]:
        held = f"qdata {qdata.shape} holds ({outputs:,}, {inputs:,})"
        ledger.fault(f"scale_and_zero is {both.shape}: {held}", both)


def _check_small(parts: _Parts, shape: Shape, ledger: PackingLedger) -> None:
    sizes = {"per_tensor_scale": {1, prod(shape[:-2])}, "act_pre_scale": {1, shape[-1]}}
    for last, allowed in sizes.items():
        tensor = parts.others.get(last)
        if tensor is not None and tensor.elements is not None and tensor.elements not in allowed:
            ledger.fault(f"{last} is {tensor.shape}: {max(allowed):,} numbers at most", tensor)


LAYOUT = Layout(name="torchao", methods=("torchao",), recognises=recognises, unpack=unpack)
