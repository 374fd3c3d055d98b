"""Quanto, https://github.com/huggingface/optimum-quanto: 8, 4 and 2 bits.

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

_BYTES = {"I8": "INT8", "F8_E4M3": "F8_E4M3", "F8_E5M2": "F8_E5M2", "F8_E4M3FNUZ": "F8_E4M3FNUZ"}
_BITS = (4, 2)
_DATA = "_data"
_SCALES = ("_scale", "_shift")
_ACTIVATIONS = ("input_scale", "output_scale")


def recognises(stored: Stored) -> bool:
    """Whether a weight stores a `_data` and a `_scale`."""
    return any(True for _ in _packed(stored))


class _Parts(NamedTuple):
    """The stored tensors of one weight."""

    name: str
    data: StoredTensor
    bytes: bool  # whether an element is one number
    members: Members


def _packed(stored: Stored) -> Iterator[_Parts]:
    for module, members in stored.modules.items():
        if "_scale" not in members:
            continue
        inner = stored.members(tensor_name(module, _DATA)).get(_DATA)
        if inner is not None:
            yield _Parts(module, inner, bytes=False, members=members)
        elif _DATA in members:
            yield _Parts(module, members[_DATA], bytes=True, members=members)


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each `weight._data` as `weight`."""
    ledger, kinds = PackingLedger(), set()
    done = set()
    for parts in _packed(stored):
        done.add(parts.name)
        _note(parts, ledger)
        kind = _unpack(parts, _declared(declared), implied, ledger)
        kinds.add(kind)
    for module, members in stored.modules.items():
        _activations(members, implied, ledger)
        _orphans(module, members, done, ledger)
    return ledger.close(", ".join(("quanto", *sorted(kind for kind in kinds if kind))))


def _declared(declared: Declared | None) -> int | None:
    """The bits of "int4" and similar weights, which only transformers' QuantoConfig declares."""
    value = declared.settings.get("weights") if declared else None
    known = {"int2": 2, "int4": 4, "int8": 8, "float8": 8}
    return known.get(value) if isinstance(value, str) else None


def _note(parts: _Parts, ledger: PackingLedger) -> None:
    for last in _SCALES:
        if last in parts.members:
            what = "scales" if last == "_scale" else "shifts"
            ledger.note(f"{what}, one for each group of numbers", parts.members[last])
    if not parts.bytes and "_shift" not in parts.members:
        ledger.lack("packed without its _shift", parts.data)


def _activations(members: Members, implied: Implied, ledger: PackingLedger) -> None:
    for last in _ACTIVATIONS:
        tensor = members.get(last)
        if tensor is None or implied(tensor.name) is not None:
            continue
        ledger.note("scales of activations, which stay 1 where only weights are packed", tensor)
        if tensor.shape not in {None, ()}:
            ledger.fault(f"{last} is {tensor.shape}, one number is needed", tensor)


def _orphans(module: str, members: Members, done: set[str], ledger: PackingLedger) -> None:
    """Report a _scale without _data, and _data without a _scale."""
    if module in done or module.removesuffix(f".{_DATA}") in done:
        return
    for last in (_DATA, *_SCALES):
        if last in members:
            need = "_scale" if last == _DATA else "_data"
            ledger.note(f"{last} of no whole weight", members[last])
            ledger.lack(f"{last} without its {need}", members[last])


# --- one weight -------------------------------------------------------------------------------


def _unpack(parts: _Parts, bits: int | None, implied: Implied, ledger: PackingLedger) -> str:
    data = parts.data
    if parts.bytes:
        return _unpack_bytes(parts, ledger)
    if data.shape is None:
        ledger.tensors.append(LogicalTensor(data, parts.name, None, f"INT{bits or 4}"))
        return ""
    if data.dtype != "U8" or not data.elements or len(data.shape) < 2:  # noqa: PLR2004 - (R, C)
        ledger.fault(f"_data is {data.dtype} {data.shape}; a matrix of bytes is needed", data)
        return ""
    expected = implied(parts.name)
    packed_rows = _rows(parts, bits, expected, ledger)
    label = f"INT{packed_rows.bits}"
    if bits not in {None, packed_rows.bits}:
        ledger.fault(
            f"the config declares {bits} bits, the shapes are those of {packed_rows.bits}", data
        )
    ledger.tensors.append(
        LogicalTensor(data, parts.name, _shape(data, packed_rows, expected, ledger), label)
    )
    return label.lower()


def _unpack_bytes(parts: _Parts, ledger: PackingLedger) -> str:
    """Unpack a weight with one number in an element, whose shape is the stored one."""
    data = parts.data
    label = "INT8" if data.dtype is None else _BYTES.get(data.dtype)
    if label is None:
        ledger.fault(f"_data is {data.dtype}; {' or '.join(_BYTES)} is needed", data)
        return ""
    ledger.tensors.append(LogicalTensor(data, parts.name, data.shape, label))
    scale = parts.members["_scale"]
    if data.shape is not None and scale.shape is not None:
        needed = (*data.shape[:1], *(1 for _ in data.shape[1:]))
        if scale.shape not in {needed, ()}:
            ledger.fault(f"_scale is {scale.shape}, {needed} is needed for {data.shape}", scale)
    return label.lower()


class _Rows(NamedTuple):
    bits: int
    shape: Shape  # (R, C)


def _rows(parts: _Parts, bits: int | None, expected: Shape | None, ledger: PackingLedger) -> _Rows:
    """Return R, the number of scales, and the bits of a number, which the packed rows show."""
    stored = parts.data.shape or ()
    scale, shift = (parts.members.get(last) for last in _SCALES)
    with_shapes = [one for one in (scale, shift) if one is not None and one.shape is not None]
    if len({one.shape for one in with_shapes}) > 1:
        ledger.fault(
            f"_scale is {with_shapes[0].shape} and _shift is {with_shapes[1].shape}", *with_shapes
        )
    order = sorted(_BITS, key=lambda one: one != bits)
    if not with_shapes:
        return _unscaled(stored, order, expected)
    scale = with_shapes[0]
    rows = scale.shape[0] if scale.shape else 1
    fitting = [_Rows(one, (rows, *stored[1:])) for one in order if -(-rows * one // 8) == stored[0]]
    if set((scale.shape or ())[1:]) - {1} or not fitting:
        counts = f"_data {stored} packs {stored[0] * 2:,} rows of 4 bits or {stored[0] * 4:,} of 2"
        ledger.fault(f"_scale is {scale.shape}: {counts}, each has a scale", scale)
        return _Rows(order[0], (stored[0] * 8 // order[0], *stored[1:]))
    wanted = None if expected is None else prod(expected)
    return next((one for one in fitting if prod(one.shape) == wanted), fitting[0])


def _unscaled(stored: Shape, order: list[int], expected: Shape | None) -> _Rows:
    """Return the rows without a header for the scales: those of the architecture, else the most."""
    width = prod(stored[1:])
    for bits in order:
        rows = prod(expected) // width if expected is not None and width else 0
        if -(-rows * bits // 8) == stored[0]:
            return _Rows(bits, (rows, *stored[1:]))
    return _Rows(order[0], (stored[0] * 8 // order[0], *stored[1:]))


def _shape(
    data: StoredTensor, packed_rows: _Rows, expected: Shape | None, ledger: PackingLedger
) -> Shape:
    numbers = prod(packed_rows.shape)
    if expected is not None and prod(expected) == numbers:
        return expected
    if expected is not None:
        holds = f"_data {data.shape} holds {numbers:,} numbers of {packed_rows.bits} bits"
        ledger.fault(f"{holds}, the architecture has {expected} = {prod(expected):,}", data)
    return (numbers,)


LAYOUT = Layout(
    name="quanto", methods=("quanto",), recognises=recognises, unpack=unpack, declares=False
)
