"""EETQ, https://github.com/NetEase-FuXi/EETQ: int8, laid out for its kernel.

transformers' integrations/eetq.py saves a linear of (out, in) as:

    X.weight         I8 (in, out), the transpose of a plain checkpoint's weight
    X.weight_scales  F16 (out,), one for each output
"""

from auditor.layouts._patterns import names_in_skip_lists
from auditor.layouts.declared import string_list
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    PackingLedger,
    Stored,
    Unpacked,
    WrittenTensor,
)
from auditor.tensors import StoredTensor


def recognises(stored: Stored) -> bool:
    """Whether a module stores a weight_scales and a weight of int8."""
    return any(
        "weight_scales" in members
        and "weight" in members
        and members["weight"].dtype in {None, "I8"}
        for members in stored.modules.values()
    )


def unpack(stored: Stored, declared: Declared | None, _implied: Implied) -> Unpacked:
    """Unpack each `X.weight` under its stored name."""
    ledger, packed = PackingLedger(), dict[str, StoredTensor]()
    for module, members in stored.modules.items():
        weight, scales = members.get("weight"), members.get("weight_scales")
        if scales is not None:
            _book_scales(scales, weight, ledger)
        if weight is None or weight.dtype not in {None, "I8"}:
            continue
        if weight.dtype is None and scales is None:
            continue
        _unpack(weight, scales, ledger)
        packed[module] = weight
    wrong = sorted(
        names_in_skip_lists(string_list(declared, "modules_to_not_convert"), packed) or ()
    )
    if wrong:
        reason = "packed, though modules_to_not_convert lists it: loading expects floats"
        ledger.fault(reason, *(packed[module] for module in wrong))
    return ledger.close("eetq, int8")


def writes(
    stored: Stored, _declared: Declared | None, implied: Implied
) -> dict[str, WrittenTensor]:
    """Return dtype and shape of both tensors of each linear."""
    written: dict[str, WrittenTensor] = {}
    for members in stored.modules.values():
        weight, scales = members.get("weight"), members.get("weight_scales")
        shape = implied(weight.name) if weight is not None else None
        if weight is None or scales is None or shape is None or len(shape) != 2:  # noqa: PLR2004
            continue
        written[weight.name] = WrittenTensor(shape[::-1], ("I8",))
        written[scales.name] = WrittenTensor(shape[:1], FLOATS)
    return written


def _book_scales(scales: StoredTensor, weight: StoredTensor | None, ledger: PackingLedger) -> None:
    ledger.note("weight_scales, one for each output", scales)
    if weight is None:
        ledger.lack("weight_scales whose weight is not stored", scales)
    elif weight.dtype not in {None, "I8"}:
        ledger.fault(f"weight_scales beside a weight of {weight.dtype}, I8 is needed", scales)


def _unpack(weight: StoredTensor, scales: StoredTensor | None, ledger: PackingLedger) -> None:
    if scales is None:
        ledger.lack("int8 without its weight_scales", weight)
    if weight.shape is None:
        ledger.tensors.append(LogicalTensor(weight, weight.name, None, "INT8"))
        return
    if len(weight.shape) != 2:  # noqa: PLR2004 - (in, out)
        ledger.fault(f"stored as {weight.shape}, (in, out) is needed", weight)
        return
    inputs, outputs = weight.shape
    ledger.tensors.append(LogicalTensor(weight, weight.name, (outputs, inputs), "INT8"))
    if scales is not None and scales.shape not in {None, (outputs,)}:
        observed = f"weight {weight.shape} is (in, out)"
        ledger.fault(
            f"weight_scales are {scales.shape}, {observed}: ({outputs:,},) is needed", scales
        )


LAYOUT = Layout(name="eetq", methods=("eetq",), recognises=recognises, unpack=unpack, writes=writes)
