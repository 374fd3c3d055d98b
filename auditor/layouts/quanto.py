"""Quanto, https://github.com/huggingface/optimum-quanto: weights in 8, 4 and 2 bits.

`save_pretrained` of optimum-quanto writes a linear of (out, in) as:

    X.weight._data        I8 or F8 (out, in): 8 bits
    X.weight._scale       float (out, 1), one for each output

    X.weight._data._data  U8 (ceil(R * b/8), C): b = 4 or 2 bits of a matrix (R, C), packed along R
    X.weight._scale       float (R, 1), X.weight._shift likewise

and X.input_scale and X.output_scale, float (), for activations. (R, C) is (out * in/g, g); g is
the first of 128, 96, 64 and 32 that divides the inputs; up to 128 inputs are one group: (out, in).
The stored shapes do not show in and g; the architecture does. The config declares nothing, and
quanto_qmap.json lists the packed modules. Sources: quanto/tensor and quanto/nn/qmodule.py of
optimum-quanto 0.2.7.
"""

from collections.abc import Iterator
from math import prod

from auditor.layouts.engine import (
    Bundle,
    LayoutTable,
    Packing,
    constant_settings,
    shape_of_numbers,
)
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Members,
    PackingLedger,
    Shape,
    Stored,
    WrittenTensor,
    tensor_name,
)

_BYTES = {"I8": "INT8", "F8_E4M3": "F8_E4M3", "F8_E5M2": "F8_E5M2", "F8_E4M3FNUZ": "F8_E4M3FNUZ"}
_BITS = (4, 2)
_DATA, _INNER = "_data", "_data._data"
_ACTIVATIONS = ("input_scale", "output_scale")
_COMPANIONS = {
    "_scale": "scales, one for each group of numbers",
    "_shift": "shifts, one for each group of numbers",
    **dict.fromkeys(
        _ACTIVATIONS, "scales of activations, which stay 1 where only weights are packed"
    ),
}


def _bits(declared: Declared | None, _ledger: PackingLedger) -> int | None:
    """Return the bits that "int4" or similar in transformers' QuantoConfig declares, else None."""
    value = declared.settings.get("weights") if declared else None
    bits_by_name = {"int2": 2, "int4": 4, "int8": 8, "float8": 8}
    return bits_by_name.get(value) if isinstance(value, str) else None


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    """Yield packed weights with the tensors below their names, and scales of activations."""
    for module, members in stored.modules.items():
        parts = {last: members[last] for last in (_DATA, "_scale", "_shift") if last in members}
        inner = stored.members(tensor_name(module, _DATA)).get(_DATA)
        if inner is not None and "_scale" in parts:
            parts |= {_DATA: inner, _INNER: inner}
        head, _, last = module.rpartition(".")
        if last == _DATA and "_scale" in stored.members(head):
            parts = parts if "_scale" in parts else {}  # a part of the weight above it
        activations = {last: members[last] for last in _ACTIVATIONS if last in members}
        if parts:
            yield Bundle(head, module, parts)
        if activations:
            yield Bundle(module, tensor_name(module), activations)


def _by_shapes(
    parts: Members, declared: int | None, expected: Shape | None
) -> Iterator[Packing] | str:
    data = parts[_DATA]
    if _INNER not in parts:
        return iter([_bytes(data.dtype or "", data.shape or ())])
    if data.dtype != "U8" or not data.elements or len(data.shape or ()) < 2:  # noqa: PLR2004
        return "a matrix of bytes"
    return _readings(parts, declared, expected)


def _bytes(dtype: str, shape: Shape) -> Packing:
    """Return the packing of an 8-bit weight, whose stored shape is the model's shape."""
    scale = (*shape[:1], *(1 for _ in shape[1:]))
    tensors = {
        _DATA: WrittenTensor(shape, tuple(_BYTES)),
        "_scale": WrittenTensor(scale, FLOATS, others=((),)),
    }
    return Packing(shape=shape, dtype=_BYTES.get(dtype, "INT8"), tensors=tensors)


def _readings(parts: Members, declared: int | None, expected: Shape | None) -> Iterator[Packing]:
    """Yield the possible packings: one in 4 bits and one in 2 bits.

    R is the number of scales, or follows from the architecture; without both, the packed rows are
    taken to be full.
    """
    rows, *columns = parts[_DATA].shape or ()
    width = prod(columns)
    shown = (parts[last].shape for last in ("_scale", "_shift") if last in parts)
    scale = next((shape for shape in shown if shape is not None), None)
    for bits in sorted(_BITS, key=lambda bits: bits != declared):
        count = rows * 8 // bits
        needed = prod(expected) // width if expected else 0
        if scale:
            count = scale[0]
        elif -(-needed * bits // 8) == rows:
            count = needed
        what = f"_data {parts[_DATA].shape} in {bits} bits"
        shape, doubts = shape_of_numbers(count * width, what, expected)
        if declared not in {None, bits}:
            doubts = (*doubts, f"weights of the config have {declared} bits, stored are {bits}")
        grouped = WrittenTensor((count, *(1 for _ in columns)), FLOATS)
        tensors = {
            _DATA: WrittenTensor((-(-count * bits // 8), *columns), ("U8",)),
            "_scale": grouped,
            "_shift": grouped,
        }
        yield Packing(shape=shape, dtype=f"INT{bits}", tensors=tensors, doubts=doubts)


LAYOUT = LayoutTable[int | None](
    name="quanto",
    recognises=lambda stored: any(
        {_DATA, "_scale"} <= bundle.parts.keys() for bundle in _bundles(stored)
    ),
    packed=_DATA,
    dtypes=frozenset({"U8", *_BYTES}),
    dtype="INT8",
    companions=_COMPANIONS,
    needed=lambda parts, *_: ["_scale", "_shift"] if _INNER in parts else ["_scale"],
    settings=constant_settings(_bits),
    by_shapes=_by_shapes,
    bundles=_bundles,
    may_be_alone=dict.fromkeys(_ACTIVATIONS, WrittenTensor((), FLOATS)),
    declares=False,
).layout()
