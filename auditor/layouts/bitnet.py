"""BitNet, https://arxiv.org/abs/2402.17764: ternary weights, four to a byte.

transformers' integrations/bitnet.py saves `X.weight` U8 (out / 4, in) with rows r, r + out/4,
r + 2*out/4 and r + 3*out/4 in two bits each, and `X.weight_scale` float (1,) for the tensor.
Weights for training (quantization_mode "online") are plain and have no scale; saved after loading
(linear_class "autobitlinear") they are plain floats beside their scale. With `use_rms_norm` each
of these linears has a norm of its inputs, `X.rms_norm.weight` (in,).
"""

from auditor.layouts._left_plain import plain_among_packed, unlisted
from auditor.layouts._patterns import at_or_below
from auditor.layouts.declared import string_list
from auditor.layouts.packing import (
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    Members,
    PackingLedger,
    Stored,
    Unpacked,
    WrittenTensor,
    tensor_name,
)
from auditor.tensors import StoredTensor

_PER_BYTE = 4
_MATRIX = 2
_ONE = frozenset({None, (), (1,)})
_SCALES = frozenset({None, "F16", "BF16", "F32"})
_OTHERS = frozenset({"input_scale", "weight_scale_2", "weight_zero_point", "weight_shape"})
_WEIGHTS = frozenset({None, "U8", "F16", "BF16", "F32"})


def recognises(stored: Stored) -> bool:
    """Whether a module stores bytes with a single weight_scale and no mark of other layouts."""
    return any(_is_bitnet(members) for members in stored.modules.values())


def _is_bitnet(members: Members) -> bool:
    weight, scale = members.get("weight"), members.get("weight_scale")
    return (
        weight is not None
        and scale is not None
        and weight.dtype in _WEIGHTS
        and scale.dtype in _SCALES
        and scale.shape in _ONE
        and _OTHERS.isdisjoint(members)
    )


def unpack(stored: Stored, declared: Declared | None, _implied: Implied) -> Unpacked:
    """Unpack each `X.weight` under its stored name."""
    ledger = PackingLedger()
    normed = declared is not None and declared.settings.get("use_rms_norm") is True
    for module, members in stored.modules.items():
        weight, scale = members.get("weight"), members.get("weight_scale")
        if scale is not None:
            _check_scale(scale, weight, ledger)
        if weight is not None and weight.dtype == "U8":
            _unpack(weight, scale, ledger)
        elif weight is not None and weight.dtype is None and scale is not None:
            ledger.tensors.append(LogicalTensor(weight, weight.name, None, "TERNARY"))
        norm = stored.members(tensor_name(module, "rms_norm")).get("weight") if normed else None
        if norm is not None and scale is not None:
            ledger.note("the norm that this layout puts before a linear", norm)
    _contradictions(stored, declared, ledger)
    return ledger.close("bitnet, ternary")


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return those of the class bitlinear; autobitlinear may save weights as floats."""
    written: dict[str, WrittenTensor] = {}
    settings = declared.settings if declared else {}
    for module, members in stored.modules.items():
        shape = implied(tensor_name(module))
        scale, weight = members.get("weight_scale"), members.get("weight")
        if scale is None or weight is None or shape is None or len(shape) != _MATRIX:
            continue
        written[scale.name] = WrittenTensor((1,), ("BF16", "F16", "F32"))
        if settings.get("linear_class", "bitlinear") == "bitlinear":
            written[weight.name] = WrittenTensor((shape[0] // _PER_BYTE, shape[1]), ("U8",))
        norm = stored.members(tensor_name(module, "rms_norm")).get("weight")
        if norm is not None and settings.get("use_rms_norm") is True:
            written[norm.name] = WrittenTensor(shape[1:], ("BF16", "F16", "F32"))
    return written


def _check_scale(scale: StoredTensor, weight: StoredTensor | None, ledger: PackingLedger) -> None:
    ledger.note("weight_scale, one for the whole weight", scale)
    if weight is None:
        ledger.lack("the ternary weight that this belongs to is not stored", scale)
    elif scale.shape not in _ONE:
        ledger.fault(f"weight_scale is {scale.shape}, (1,) is needed", scale)


def _unpack(weight: StoredTensor, scale: StoredTensor | None, ledger: PackingLedger) -> None:
    shape = weight.shape or ()
    if len(shape) != 2:  # noqa: PLR2004 - (out / 4, in)
        ledger.fault(f"ternary bytes are stored as {shape}, (out / 4, in) is needed", weight)
        return
    if scale is None:
        ledger.lack("packed in ternary without its weight_scale", weight)
    rows, columns = shape
    ledger.tensors.append(
        LogicalTensor(weight, weight.name, (_PER_BYTE * rows, columns), "TERNARY")
    )


def _contradictions(stored: Stored, declared: Declared | None, ledger: PackingLedger) -> None:
    """Report modules that contradict the config, by which loading builds ternary modules.

    Modules of the class autobitlinear also accept plain weights.
    """
    if declared is None:
        return
    skipped = string_list(declared, "modules_to_not_convert")
    packed = {piece.name.rpartition(".")[0]: piece.stored for piece in ledger.tensors}
    wrong = [packed[module] for module in packed if at_or_below(module, skipped)]
    if wrong:
        reason = f"modules_to_not_convert of {declared.where} says that these are plain"
        ledger.fault(f"{reason}, and they are packed", *wrong)
    odd = unlisted(plain_among_packed(stored, packed, whole_layers=True), skipped)
    if odd and declared.settings.get("linear_class", "bitlinear") == "bitlinear":
        reason = "stored plain, packed in other layers, and not in modules_to_not_convert"
        ledger.fault(reason, *odd)


LAYOUT = Layout(
    name="bitnet",
    methods=("bitnet",),
    recognises=recognises,
    unpack=unpack,
    writes=writes,
    stores_plain=lambda declared: declared.settings.get("quantization_mode") == "online",
)
