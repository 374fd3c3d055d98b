"""The tensors that compressed-tensors stores under each name of a module; see layout.py."""

from collections.abc import Mapping
from math import prod

from auditor.layouts._scales import TENSOR, Grain, scales_shape
from auditor.layouts.compressed_tensors import packs
from auditor.layouts.compressed_tensors.schemes import CompressedScheme, flat_settings, read_schemes
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Implied,
    Members,
    PackingLedger,
    Shape,
    Stored,
    WrittenTensor,
    tensor_name,
)

_WORD = 32
_MATRIX = 2
_ONE = WrittenTensor((1,), ("F32", "BF16", "F16"))
_BYTES = {"nvfp4-pack-quantized": 4, "mxfp4-pack-quantized": 4, "mxfp6-pack-quantized": 6}
_EXPONENTS = frozenset({"mxfp4-pack-quantized", "mxfp6-pack-quantized", "mxfp8-quantized"})
# Tensors that any format may have.
_ACTIVATIONS = dict.fromkeys(
    ("input_scale", "output_scale", "input_global_scale", "output_global_scale"), _ONE
)
_CACHE = dict.fromkeys(("k_scale", "v_scale", "q_scale"), _ONE)


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return the expected tensors of quantized modules, except sparse and marlin-24 weights."""
    written: dict[str, WrittenTensor] = {}
    schemes = read_schemes(flat_settings(declared), stored.modules, PackingLedger())
    for module, parts in stored.modules.items():
        scheme, shape = schemes.of(module), implied(tensor_name(module))
        if scheme is None or not scheme.quantizes or shape is None or len(shape) < _MATRIX:
            continue
        form = packs.packed_format(parts, scheme) or _eight_bit_form(parts, scheme)
        grain = scheme.grain if form is None else packs.fixed_grain(form) or scheme.grain
        if form is not None and grain is not None:
            own = _written(form, scheme, shape, grain)
            written |= {parts[last].name: one for last, one in own.items() if last in parts}
    return written


def _eight_bit_form(parts: Members, scheme: CompressedScheme) -> str | None:
    """Return the format of an 8-bit weight; the scheme decides if only an index names it."""
    if not packs.keeps_shape(parts):
        return None
    if scheme.form == "mxfp8-quantized":
        return scheme.form
    return "int-quantized" if scheme.kind == "int" else "float-quantized"


def _written(
    form: str, scheme: CompressedScheme, shape: Shape, grain: Grain
) -> Mapping[str, WrittenTensor]:
    """Map last parts of names to the tensors of a weight (..., out, in) and its companions.

    Return {} for formats without expected tensors.
    """
    scales = (1,) if grain == TENSOR else scales_shape(shape, grain)
    companions = {**_ACTIVATIONS, **_CACHE, "weight_g_idx": WrittenTensor(shape[-1:], ("I32",))}
    if form == "pack-quantized":
        return {**companions, **_words(scheme.bits or 4, shape, scales)}
    if form in _BYTES:
        *rows, inputs = shape
        inside = "U8" if form in _EXPONENTS else "F8_E4M3"
        packed = WrittenTensor((*rows, inputs * _BYTES[form] // 8), ("U8",))
        own = {"weight_packed": packed, "weight_scale": WrittenTensor(scales, (inside,))}
        return {**companions, **own, "weight_global_scale": _ONE}
    if form in {"int-quantized", "float-quantized", "naive-quantized", "mxfp8-quantized"}:
        dtype = "I8" if scheme.kind == "int" else "F8_E4M3"
        dtypes = ("U8",) if form in _EXPONENTS else FLOATS
        own = {
            "weight": WrittenTensor(shape, (dtype,)),
            "weight_scale": WrittenTensor(scales, dtypes),
        }
        return {**companions, **own, "weight_zero_point": WrittenTensor(scales, (dtype,))}
    return {}


def _words(bits: int, shape: Shape, scales: Shape) -> Mapping[str, WrittenTensor]:
    """Return the expected weight_packed, scales, weight_shape and zero points.

    Older versions use more words if `bits` does not divide 32.
    """
    *rows, inputs = shape
    own: dict[str, WrittenTensor] = {
        "weight_scale": WrittenTensor(scales, FLOATS),
        "weight_shape": WrittenTensor((len(shape),), ("I64", "I32")),
    }
    padded, dense = -(-inputs // (_WORD // bits)), -(-inputs * bits // _WORD)
    own["weight_packed"] = WrittenTensor(
        (*rows, padded), ("I32",), fewer=prod(rows) * (padded - dense)
    )
    if len(scales) > 1:
        *experts, outputs, columns = scales
        padded, dense = -(-outputs // (_WORD // bits)), -(-outputs * bits // _WORD)
        less = prod(experts) * columns * (padded - dense)
        own["weight_zero_point"] = WrittenTensor((*experts, padded, columns), ("I32",), fewer=less)
    return own
