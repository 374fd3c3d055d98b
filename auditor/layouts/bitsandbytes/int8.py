"""LLM.int8(): weights of bytes with a scale for each output; see layout.py."""

from collections.abc import Collection

from auditor.layouts.bitsandbytes.nf4 import shape_and_dtype
from auditor.layouts.packing import Implied, LogicalTensor, Members, PackingLedger
from auditor.tensors import StoredTensor

_BESIDE = frozenset({"SCB", "weight_format"})


def is_int8(members: Members) -> bool:
    """Whether a module stores a tensor of int8, with its weight or without."""
    return not _BESIDE.isdisjoint(members)


def unpack_int8(
    members: Members, done: Collection[StoredTensor], implied: Implied, ledger: PackingLedger
) -> None:
    """Unpack the weight with its scales; `done` are the tensors that are packed in 4 bits."""
    weight, scales = members.get("weight"), members.get("SCB")
    layout = members.get("weight_format")
    if scales is not None:
        ledger.note("SCB, the largest absolute value of each output", scales)
    if layout is not None:
        ledger.note("weight_format, which says that rows come first", layout)
        if layout.elements not in {None, 1}:
            ledger.fault(f"weight_format is {layout.shape}, one number is needed", layout)
    beside = tuple(tensor for tensor in (scales, layout) if tensor is not None)
    if weight is None:
        ledger.lack("the int8 weight that these belong to is not stored", *beside)
        return
    if scales is None:
        ledger.lack("weight_format without the SCB of an int8 weight", *beside)
    if weight in done:
        ledger.fault("packed in 4 bits, and yet with an SCB or a weight_format of int8", weight)
        return
    if weight.dtype not in {None, "I8"}:
        ledger.fault(f"stored as {weight.dtype} beside the SCB of an int8 weight", weight)
        return
    _piece(weight, implied, ledger)
    if scales is not None and weight.shape and scales.shape not in {None, weight.shape[:1]}:
        reason = f"SCB is {scales.shape}, a weight of {weight.shape} needs {weight.shape[:1]}"
        ledger.fault(reason, scales)


def unpack_bare_int8(weight: StoredTensor, implied: Implied, ledger: PackingLedger) -> None:
    """Unpack a weight of bytes whose scales are missing, and report it."""
    ledger.lack("int8 without its SCB: nothing says the scale of its outputs", weight)
    _piece(weight, implied, ledger)


def _piece(weight: StoredTensor, implied: Implied, ledger: PackingLedger) -> None:
    shape = weight.shape
    if shape is not None and len(shape) == 2:  # noqa: PLR2004 - (out, in)
        expected = implied(weight.name)
        if expected is not None and expected != shape and expected == shape[::-1]:
            shape = expected  # a Conv1D
    elif shape is not None:
        ledger.fault(f"int8 is stored as {shape_and_dtype(weight)}, (out, in) is needed", weight)
    ledger.tensors.append(LogicalTensor(weight, weight.name, shape, "INT8"))
