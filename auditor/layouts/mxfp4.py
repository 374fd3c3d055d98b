"""MXFP4 as gpt-oss stores it: experts in blocks of 32 numbers of 4 bits.

Sources: transformers' integrations/mxfp4.py (5.23) and the OCP microscaling formats 1.0:

    X_blocks  U8 (E, out, in / 32, 16)  16 bytes are 32 numbers
    X_scales  U8 (E, out, in / 32)      an exponent for each block
    X         (E, in, out) unpacked, the transpose that gpt-oss uses for its experts

X is `gate_up_proj` or `down_proj` of a layer's experts. Their biases are plain.
"""

from collections.abc import Iterator
from typing import NamedTuple

from auditor.layouts._patterns import names_in_skip_lists
from auditor.layouts.declared import string_list
from auditor.layouts.fused import AXES
from auditor.layouts.packing import (
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
    WrittenTensor,
    tensor_name,
)
from auditor.tensors import StoredTensor

_BLOCKS = "_blocks"
_SCALES = "_scales"
_BYTES = 16  # of a block
_NUMBERS = 32
_AXES = 4  # experts, outputs, blocks, bytes


class _Packed(NamedTuple):
    """The blocks and scales of one tensor of experts; at least one of the two is stored."""

    module: str
    name: str
    blocks: StoredTensor | None
    scales: StoredTensor | None


def recognises(stored: Stored) -> bool:
    """Whether a module stores a pair of X_blocks and X_scales."""
    return any(packed.blocks and packed.scales for packed in _packed(stored))


def unpack(stored: Stored, declared: Declared | None, _implied: Implied) -> Unpacked:
    """Unpack each X_blocks as X."""
    ledger = PackingLedger()
    modules = {packed.module: packed.blocks for packed in _packed(stored) if _book(packed, ledger)}
    alone = names_in_skip_lists(string_list(declared, "modules_to_not_convert"), modules)
    wrong = [blocks for module in alone or () if (blocks := modules[module]) is not None]
    if wrong:
        reason = "stored in blocks, but modules_to_not_convert lists it: loading would not find it"
        ledger.fault(reason, *wrong)
    return ledger.close("mxfp4, blocks of 32")


def writes(
    stored: Stored, _declared: Declared | None, implied: Implied
) -> dict[str, WrittenTensor]:
    """Return dtype and shape of the blocks and of their scales, in bytes."""
    written: dict[str, WrittenTensor] = {}
    for packed in _packed(stored):
        shape = implied(packed.name)
        if shape is None or len(shape) != AXES:
            continue
        experts, inputs, outputs = shape
        scales = (experts, outputs, inputs // _NUMBERS)
        if packed.blocks:
            written[packed.blocks.name] = WrittenTensor((*scales, _BYTES), ("U8",))
        if packed.scales:
            written[packed.scales.name] = WrittenTensor(scales, ("U8",))
    return written


def _packed(stored: Stored) -> Iterator[_Packed]:
    for module, parts in stored.modules.items():
        for key, tensor in parts.items():
            if tensor.dtype not in {None, "U8"}:
                continue
            stem = key.removesuffix(_BLOCKS).removesuffix(_SCALES)
            name = tensor_name(module, stem)
            if key.endswith(_BLOCKS):
                yield _Packed(module, name, tensor, parts.get(stem + _SCALES))
            elif key.endswith(_SCALES) and stem + _BLOCKS not in parts:
                yield _Packed(module, name, None, tensor)


def _book(packed: _Packed, ledger: PackingLedger) -> bool:
    """Record one tensor of experts; return whether it has a piece."""
    blocks, scales = packed.blocks, packed.scales
    if scales is not None:
        ledger.note("scales, one exponent for each block of 32 inputs", scales)
    if blocks is None:
        if scales is not None:
            ledger.lack("the blocks that these scales belong to are not stored", scales)
        return False
    shape = blocks.shape
    if shape is not None and (len(shape) != _AXES or shape[-1] != _BYTES):
        reason = f"{shape} is not (experts, outputs, inputs / {_NUMBERS}, {_BYTES})"
        ledger.fault(f"{reason}: no blocks of {_BYTES} bytes", blocks)
        return False
    if scales is None:
        ledger.lack(f"its {_SCALES} should stand beside it, and no file has them", blocks)
    elif shape is not None and scales.shape not in {None, shape[:-1]}:
        reason = f"scales are {scales.shape}; one for each block of {shape} makes {shape[:-1]}"
        ledger.fault(reason, scales)
    ledger.tensors.append(LogicalTensor(blocks, packed.name, _transposed(shape), "MXFP4"))
    return True


def _transposed(blocks: Shape | None) -> Shape | None:
    """Turn (E, out, in / 32, 16) into (E, in, out)."""
    if blocks is None:
        return None
    experts, outputs, count, _ = blocks
    return (experts, count * _NUMBERS, outputs)


LAYOUT = Layout(
    name="mxfp4", methods=("mxfp4",), recognises=recognises, unpack=unpack, writes=writes
)
