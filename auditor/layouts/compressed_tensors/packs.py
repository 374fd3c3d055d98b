"""The packed weights of compressed-tensors: their unpacked shapes, computed from stored shapes."""

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.layouts._scales import Grain, group_grain
from auditor.layouts.compressed_tensors.schemes import CompressedScheme
from auditor.layouts.packing import Implied, LogicalTensor, Members, PackingLedger, Shape
from auditor.tensors import StoredTensor

_WORD = 32
_KEPT = frozenset({"I8", "F8_E4M3"})  # dtypes of weights stored in the model's shape
_MATRIX = 2
_BITS = (4, 8, 2, 3, 5, 6, 7, 1)  # tried in this order if no config declares them
_HALVES = 16  # inputs of a tile of marlin-24; half of them are zero
_FLOATS = {  # a format -> bits of a number, and inputs that share a scale
    "nvfp4-pack-quantized": (4, 16),
    "mxfp4-pack-quantized": (4, 32),
    "mxfp6-pack-quantized": (6, 32),
}
_INSIDE = {form: form.removesuffix("-pack-quantized").upper() for form in _FLOATS}
_NOT_UNPACKED = (
    "compressed-tensors 0.20 no longer unpacks sparse-bitmask: transformers would load random "
    "weights; save it dense, with disable_sparse_compression=True"
)
_BYTE_SCALES = group_grain(32)  # of mxfp8

NEEDED: Mapping[str, tuple[str, ...]] = {  # a format -> the tensors that its weights need
    "pack-quantized": ("weight_scale", "weight_shape"),
    "nvfp4-pack-quantized": ("weight_scale", "weight_global_scale"),
    "marlin-24": ("scale_packed", "meta"),
    "sparse-24-bitmask": ("shape",),
    "sparse-bitmask": ("shape",),
}
BESIDE: Mapping[str, str] = {  # a tensor that a weight may have -> its description
    "weight_zero_point": "zero points, one for each scale",
    "weight_g_idx": "g_idx: the group of each input, which were sorted by activation",
    "weight_shape": "the shape of the unpacked weight",
    "weight_global_scale": "the scale of a weight's scales",
}
_BESIDE_SPARSE: Mapping[str, str] = {
    "bitmask": "bit masks: where the numbers of a sparse weight stand",
    "shape": "the shape of the unpacked weight",
    "row_offsets": "where the rows of a sparse weight begin",
}
_BESIDE_MARLIN: Mapping[str, str] = {
    "meta": "which two of four inputs a 2:4 sparse weight keeps",
    "scale_packed": "scales, permuted for the Marlin kernel",
}


class PackedWeight(NamedTuple):
    """A packed weight with its format and its unpacked shape."""

    form: str
    piece: LogicalTensor


def companion_kinds(form: str) -> Mapping[str, str]:
    """Map the companion tensors that a weight of a format may have to their descriptions."""
    if form == "marlin-24":
        return {**BESIDE, **_BESIDE_MARLIN}
    return {**BESIDE, **_BESIDE_SPARSE} if form.startswith("sparse") else BESIDE


def fixed_grain(form: str) -> Grain | None:
    """Return the grain (part of a weight with one scale) that a format fixes, else None."""
    if form in _FLOATS:
        return group_grain(_FLOATS[form][1])
    return _BYTE_SCALES if form == "mxfp8-quantized" else None


def keeps_shape(parts: Members) -> bool:
    """Whether a module stores an 8-bit weight in the model's shape."""
    weight = parts.get("weight")
    return weight is not None and "weight_scale" in parts and weight.dtype in {None, *_KEPT}


def find_packed_weight(
    name: str, parts: Members, scheme: CompressedScheme, implied: Implied, ledger: PackingLedger
) -> PackedWeight | None:
    """Return a module's packed weight; None if it has none, or if it cannot be unpacked."""
    form = packed_format(parts, scheme)
    if form is None:
        return None
    stored = parts["compressed" if form.startswith("sparse") else "weight_packed"]
    if stored.shape is None:
        return PackedWeight(form, LogicalTensor(stored, name, None, _inside(form, scheme)))
    if len(stored.shape) < (1 if form == "sparse-bitmask" else _MATRIX):
        ledger.fault(f"{stored.shape} has no rows and columns to unpack as {form}", stored)
        return None
    match form:
        case "pack-quantized":
            shape, bits = _words(stored, parts, scheme, implied(name), ledger)
            return PackedWeight(form, LogicalTensor(stored, name, shape, f"INT{bits}"))
        case "marlin-24":
            shape, bits = _marlin(stored, parts, scheme, implied(name), ledger)
            return PackedWeight(form, LogicalTensor(stored, name, shape, f"INT{bits}"))
        case "sparse-24-bitmask":
            shape = (*stored.shape[:-1], 2 * stored.shape[-1])
            mask, need = parts["bitmask"], (*shape[:-1], -(-shape[-1] // 8))
            if mask.shape not in {None, need}:
                reason = f"bitmask is {mask.shape}; a bit for each number of {shape} is {need}"
                ledger.fault(reason, mask)
        case "sparse-bitmask":
            shape = _masked(stored, parts["bitmask"], implied(name), ledger)
            ledger.fault(_NOT_UNPACKED, stored)
        case _:
            shape = _bytes(stored, _FLOATS[form][0], ledger)
    dtype = stored.dtype if form.startswith("sparse") else None
    return PackedWeight(form, LogicalTensor(stored, name, shape, dtype or _inside(form, scheme)))


def packed_format(parts: Members, scheme: CompressedScheme) -> str | None:
    if {"compressed", "bitmask"} <= parts.keys():
        return "sparse-bitmask" if "row_offsets" in parts else "sparse-24-bitmask"
    packed = parts.get("weight_packed")
    if packed is None or packed.dtype not in {None, "I32", "U8"}:
        return None
    scale = parts.get("weight_scale")
    if packed.dtype == "I32" or (packed.dtype is None and {"weight_shape", "meta"} & parts.keys()):
        return "marlin-24" if "scale_packed" in parts else "pack-quantized"
    if "weight_global_scale" in parts or (scale is not None and scale.dtype == "F8_E4M3"):
        return "nvfp4-pack-quantized"
    six = scheme.bits == 6 or (scheme.bits is None and _ratio(packed, scale) == 24)  # noqa: PLR2004 - bits; 32 * 6 / 8
    return "mxfp6-pack-quantized" if six else "mxfp4-pack-quantized"


def _ratio(packed: StoredTensor, scale: StoredTensor | None) -> float:
    """Return how many packed elements share a scale; 0 if there is no scale."""
    return (packed.elements or 0) / (scale.elements or 1) if scale else 0


def _inside(form: str, scheme: CompressedScheme) -> str:
    return _INSIDE.get(form) or (f"INT{scheme.bits or 4}" if "sparse" not in form else "F16")


# --- pack-quantized ---------------------------------------------------------------------------


def fills_words(count: int, bits: int, words: int) -> bool:
    """Whether `count` numbers fill `words` words: densely, or padded as older versions pad."""
    dense = -(-count * bits // _WORD)
    return words == dense or (bits <= _WORD and words == -(-count // (_WORD // bits)))


def _words(
    packed: StoredTensor,
    parts: Members,
    scheme: CompressedScheme,
    model: Shape | None,
    ledger: PackingLedger,
) -> tuple[Shape, int]:
    """Return the weight's shape and bits, computed from its 32-bit words.

    The last word may be incomplete. So the number of inputs is the architecture's if that fits,
    else the number of groups times their size, else the most inputs that fit.
    """
    shape = packed.shape or ()
    *rows, words = shape
    columns = model[-1] if model and model[:-1] == tuple(rows) else None
    bits = scheme.bits or _bits(words, columns)
    most = words * _WORD // bits
    scale = parts.get("weight_scale")
    scales = scale.shape[-1] if scale is not None and scale.shape else None
    size = scheme.grain.inputs if scheme.grain else None
    for count in _counts(columns, scales, size, most):
        if fills_words(count, bits, words) and (
            not size or not scales or -(-count // size) == scales
        ):
            return (*rows, count), bits
    if size and scales:
        ledger.fault(
            f"weight_packed {shape} holds {words:,} x {_WORD} / {bits} = {most:,} inputs, but "
            f"weight_scale {scale.shape if scale else ()} is of {scales:,} groups of {size}",
            packed,
        )
    return (*rows, most), bits


def _counts(columns: int | None, scales: int | None, size: int | None, most: int) -> Iterator[int]:
    if columns is not None:
        yield columns
    if scales and size:
        yield scales * size
    yield most


def _bits(words: int, columns: int | None) -> int:
    if columns is None:
        return _BITS[0]
    return next((bits for bits in _BITS if fills_words(columns, bits, words)), _BITS[0])


def check_zeros(
    zeros: StoredTensor, scales: Shape, scheme: CompressedScheme, ledger: PackingLedger
) -> None:
    """Check zero points: I32 (ceil(out * b / 32), groups), or in the shape of the scales."""
    if zeros.shape is None or (zeros.dtype != "I32" and zeros.shape == scales):
        return
    bits = scheme.bits or _BITS[0]
    if zeros.dtype == "I32" and len(scales) >= _MATRIX and len(zeros.shape) == len(scales):
        *experts, rows, columns = scales
        has_grid = (*zeros.shape[:-2], zeros.shape[-1]) == (*experts, columns)
        if has_grid and fills_words(rows, bits, zeros.shape[-2]):
            return
    reason = f"weight_zero_point is {zeros.dtype} {zeros.shape}, which is not {bits} bits"
    ledger.fault(f"{reason} for each of the scales {scales}", zeros)


# --- the other formats ------------------------------------------------------------------------


def _bytes(packed: StoredTensor, bits: int, ledger: PackingLedger) -> Shape:
    *rows, count = packed.shape or ()
    if count * 8 % bits:
        ledger.fault(f"{packed.shape}: {count} bytes are not a whole number of {bits} bits", packed)
    return (*rows, count * 8 // bits)


def _marlin(
    packed: StoredTensor,
    parts: Members,
    scheme: CompressedScheme,
    model: Shape | None,
    ledger: PackingLedger,
) -> tuple[Shape, int]:
    """Return the shape and the bits of a weight packed as (in / 32, out * b / 2).

    A row packs a tile of 16 stored inputs. Report tensors whose shapes do not fit.
    """
    tiles, words = (packed.shape or (0, 0))[-2:]
    fitting_bits = [bits for bits in _BITS if model and model[0] * bits == 2 * words]
    bits = scheme.bits or (fitting_bits or _BITS)[0]
    shape = (2 * words // bits, 2 * _HALVES * tiles)
    if len(packed.shape or ()) != _MATRIX or 2 * words % bits:
        reason = f"weight_packed {packed.shape} cannot be tiles of 16 x 16 of {bits} bits"
        ledger.fault(reason, packed)
    meta, scale = parts.get("meta"), parts.get("scale_packed")
    if meta is not None and meta.shape not in {None, (tiles, 2 * shape[0])}:
        ledger.fault(f"meta is {meta.shape}, expected {(tiles, 2 * shape[0])} for {shape}", meta)
    if scale is not None and scale.shape is not None:
        size = (scheme.grain.inputs if scheme.grain else None) or 128
        # A group at least as long as the stored inputs contains all of them.
        counts = {1, -(-shape[1] // size)}
        if (
            len(scale.shape) != _MATRIX
            or scale.shape[0] not in counts
            or scale.shape[1] != shape[0]
        ):
            reason = f"scale_packed is {scale.shape}; {max(counts)} or 1 for {shape[0]:,} outputs"
            ledger.fault(f"{reason} is needed", scale)
    return shape, bits


def _masked(
    stored: StoredTensor, mask: StoredTensor, model: Shape | None, ledger: PackingLedger
) -> Shape:
    """Return the dense shape that a bitmask covers, eight columns to a byte.

    The last byte of a row may be padded, so the architecture's shape is used if it fits.
    """
    if mask.shape is None:  # only an index names the mask
        return model or stored.shape or ()
    if not mask.shape:
        ledger.fault(f"bitmask is {mask.shape}, which has no axes", mask)
        return stored.shape or ()
    *rows, count = mask.shape
    fits = model is not None and model[:-1] == tuple(rows) and -(-model[-1] // 8) == count
    shape = model if model is not None and fits else (*rows, 8 * count)
    capacity = prod(shape)
    if (stored.elements or 0) > capacity:
        ledger.fault(f"{stored.elements:,} numbers in a mask of {capacity:,} bits", stored, mask)
    return shape
