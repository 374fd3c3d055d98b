"""What bitsandbytes stores under each name: see layout.py."""

from collections.abc import Mapping
from math import prod

from auditor.layouts._qweight import CONV1D
from auditor.layouts.packing import Declared, Implied, Shape, Stored, WrittenTensor, tensor_name

_BLOCK = 64  # numbers that share an absmax: the default of quantize_4bit
_NESTED = 256
_CODES = 16
_STORAGE = {
    "uint8": ("U8", 1),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
}
# Bytes of the JSON of a quant_state: its keys alone take 62, and 165 where it is nested.
_LEAST, _MOST = 62, 320
_STATE = ".quant_state"


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """All of int8; of 4 bits all but the length of the JSON, which is within bounds."""
    found: dict[str, WrittenTensor] = {}
    storage = declared.settings.get("bnb_4bit_quant_storage") if declared else None
    for module, members in stored.modules.items():
        if {"SCB", "weight"} <= members.keys() and (shape := implied(tensor_name(module))):
            parts = _eight(shape[::-1] if module.rpartition(".")[2] in CONV1D else shape)
            found |= {members[last].name: parts[last] for last in parts if last in members}
        holder, _, last = module.rpartition(".")
        weight = stored.members(holder).get(last)
        if weight is not None and "absmax" in members and (shape := implied(module)):
            parts = _four(shape, nested="nested_absmax" in members)
            found |= {members[key].name: parts[key] for key in parts if key in members}
            found |= {weight.name: _column(shape, storage)}
            for tensor in stored.members(module + _STATE).values():
                found[tensor.name] = WrittenTensor((_MOST,), ("U8",), fewer=_MOST - _LEAST)
    return found


def _eight(shape: Shape) -> Mapping[str, WrittenTensor]:
    return {
        "weight": WrittenTensor(shape, ("I8",)),
        "SCB": WrittenTensor(shape[:1], ("F32",)),
        "weight_format": WrittenTensor((), ("U8",)),
    }


def _four(shape: Shape, *, nested: bool) -> Mapping[str, WrittenTensor]:
    blocks = -(-prod(shape) // _BLOCK)
    return {
        "absmax": WrittenTensor((blocks,), ("U8",) if nested else ("F32",)),
        "quant_map": WrittenTensor((_CODES,), ("F32",)),
        "nested_absmax": WrittenTensor((-(-blocks // _NESTED),), ("F32",)),
        "nested_quant_map": WrittenTensor((256,), ("F32",)),
    }


def _column(shape: Shape, storage: object) -> WrittenTensor:
    """Two numbers to a byte, in a column of the storage's dtype."""
    dtype, width = _STORAGE.get(str(storage or "uint8"), _STORAGE["uint8"])
    return WrittenTensor(((prod(shape) + 1) // (2 * width), 1), (dtype,))
