"""fp8: weights stored as 8-bit floats in the model's own shape, each with scales.

Sources: transformers' finegrained_fp8 and fbgemm_fp8 integrations (5.23), DeepSeek-V3's files:

    weight            F8_E4M3 (out, in)
    weight_scale_inv  F32, or F8_E8M0 or U8 exponents: (ceil(out / 128), ceil(in / 128)), for the
                      weight_block_size of the config; () if that is null
    weight_scale      () or (1,); (out, 1) from fbgemm. DeepSeek-V4 names weight_scale_inv
                      `scale`, Mistral `qscale_weight`
    activation_scale, input_scale     one number, if activations are static
    input_scale_ub                    fbgemm's bound for the scales of activations

Experts in one tensor (E, out, in) have `gate_up_proj_scale_inv` and similar names beside
`gate_up_proj`. Experts of DeepSeek-V4 have 4 bits: I8 (out, in / 2), scales (out, in / 32).
"""

from collections.abc import Collection
from typing import NamedTuple

from auditor.layouts._scales import (
    CHANNEL,
    TENSOR,
    Grain,
    grain_of_shapes,
    group_grain,
    note_kv_scales,
    scales_misfit,
    scales_shape,
)
from auditor.layouts._scheme import Scheme, report_contradictions, skip_list_scheme
from auditor.layouts.declared import block_sides, string_list
from auditor.layouts.fused import AXES, stacked_experts
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
    WrittenTensor,
    tensor_name,
)
from auditor.messages import described
from auditor.tensors import StoredTensor

# Dtype names: as in transformers and DeepSeek, as in Qwen, and of exponents.
_SCALE_DTYPES = ("F32", "BF16", "F16", "F8_E8M0", "U8")
_MATRIX = 2
FLOATS = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
_FOURS = frozenset({"I8", "F4"})
_INVERSE = "_scale_inv"
_SCALES = ("weight_scale_inv", "weight_scale", "qscale_weight", "scale")  # scales of `weight`
_SHARED = frozenset({"scale", "weight_scale"})  # names that other layouts and plain modules use too
_ACTIVATIONS = frozenset({"input_scale", "activation_scale", "input_scale_ub", "output_scale"})
_OF_EXPERTS = ("_activation_scale", "_input_scale")  # after gate_up_proj and similar names
_LISTS = ("modules_to_not_convert", "ignored_layers")
_FOUR_GROUP = 32  # inputs that share a scale in 4-bit weights
_FOUR_GRAIN = group_grain(_FOUR_GROUP)
_METHODS = ("fp8", "fbgemm_fp8")


class _Weight(NamedTuple):
    """A weight, its scale, and the prefix of the names of its companions."""

    module: str
    stem: str  # weight, gate_up_proj
    weight: StoredTensor
    scale: StoredTensor
    shared: bool  # whether the scale's name is also used for scales of other parts than blocks


class _Settings(NamedTuple):
    """The settings that this layout reads from the config."""

    block: Grain | None  # None if the config declares no block
    static: bool
    experts: str | None
    rows: bool  # fbgemm writes one scale for each output


def recognises(stored: Stored) -> bool:
    """Whether a module stores a scale_inv, or an 8-bit float with a scale."""
    return any(
        _weights(module, parts) or any(key.endswith(_INVERSE) for key in parts)
        for module, parts in stored.modules.items()
    )


def unpack(stored: Stored, declared: Declared | None, _implied: Implied) -> Unpacked:
    """Unpack weights under their stored names and, except for 4 bits, in their stored shapes."""
    ledger = PackingLedger()
    settings = _read(declared, ledger)
    words: set[str | None] = set()

    def book(module: str, parts: Members, ledger: PackingLedger) -> None:
        note_kv_scales(parts, ledger)
        weights = _one_scale_each(_weights(module, parts), ledger)
        words.update(_book(weight, settings, ledger) for weight in weights)
        _activations(parts, ledger)
        _loose(parts, weights, ledger)

    ledger.book_alike(stored, book, _is_expert if settings.experts else None)
    if declared is not None:
        weights = [*ledger.unchanged, *(one.stored for one in ledger.tensors)]
        modules = [one[0].removesuffix(".weight") for one in weights]
        scheme = _scheme(declared, modules)
        report_contradictions(
            stored, modules, weights, scheme, ledger, loads="its scale", by_name=False
        )
    if settings.static:
        _without_activations(stored, ledger)
    return ledger.close("; ".join(("fp8", *sorted(filter(None, words)))))


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return the expected weights, weight scales and activation scales, by stored name."""
    settings, written = _read(declared, PackingLedger()), dict[str, WrittenTensor]()
    usual = CHANNEL if settings.rows else settings.block or TENSOR
    for module, parts in stored.modules.items():
        for weight in _one_scale_each(_weights(module, parts), PackingLedger()):
            fours = settings.experts == "fp4" and _is_expert(module)
            name = tensor_name(module, weight.stem)
            written |= _weight_and_scale(name, weight.scale, usual, implied, fours=fours)
        for key, tensor in parts.items():
            if key in _ACTIVATIONS or key.endswith(_OF_EXPERTS):
                written |= _of_activations(tensor, implied)
    return written


def _weights(module: str, parts: Members) -> list[_Weight]:
    """Return the 8-bit and 4-bit weights of a module that have scales."""
    weights: list[_Weight] = []
    for key, scale in parts.items():
        if key in _SCALES:
            stem = "weight"
        elif key.endswith(_INVERSE):
            stem = key.removesuffix(_INVERSE)
        elif key.endswith("_scale"):
            stem = key.removesuffix("_scale")
        else:
            continue
        weight = parts.get(stem)
        if weight is None:
            continue
        plain = weight.dtype == "I8" and key == "weight_scale"  # compressed-tensors, modelopt
        if weight.dtype is None or weight.dtype in FLOATS or (weight.dtype in _FOURS and not plain):
            weights.append(_Weight(module, stem, weight, scale, key in _SHARED))
    return weights


def _one_scale_each(weights: list[_Weight], ledger: PackingLedger) -> list[_Weight]:
    """Keep one fp8 scale for each weight, and report any further scales of the weight."""
    by_stem: dict[str, _Weight] = {}
    for weight in sorted(weights, key=lambda one: (one.shared, one.scale.name)):
        if by_stem.setdefault(weight.stem, weight) is not weight:
            ledger.note("scales of weights", weight.scale)
            ledger.fault("the weight has another scale", weight.scale)
    return list(by_stem.values())


# --- settings ---------------------------------------------------------------------------------


def _read(declared: Declared | None, ledger: PackingLedger) -> _Settings:
    settings = declared.settings if declared else {}
    experts = settings.get("expert_dtype")
    return _Settings(
        block=_block(declared, ledger),
        static=settings.get("activation_scheme") == "static",
        experts=experts if isinstance(experts, str) else None,
        rows=declared is not None and declared.method == "fbgemm_fp8",
    )


def _block(declared: Declared | None, ledger: PackingLedger) -> Grain | None:
    if declared is None or "weight_block_size" not in declared.settings:
        return None
    value = declared.settings["weight_block_size"]
    if value is None:
        return TENSOR
    if (block := block_sides(value)) is not None:
        return Grain(*block)
    what = described(value)
    ledger.fault(f"weight_block_size of {declared.where} is {what}; two sides above 0 are needed")
    return None


# --- one weight -------------------------------------------------------------------------------


def _book(packed: _Weight, settings: _Settings, ledger: PackingLedger) -> str | None:
    """Record a weight and its scales; return a description of the scales."""
    weight, scale = packed.weight, packed.scale
    name = tensor_name(packed.module, packed.stem)
    fours = weight.dtype in _FOURS
    shape = _unpacked(weight)
    dtype = "FP4" if fours else weight.dtype or "F8_E4M3"
    ledger.tensors.append(LogicalTensor(weight, name, shape, dtype))
    _expert(packed, fours=fours, settings=settings, ledger=ledger)
    if shape is None or scale.shape is None:
        ledger.note("scales of weights", scale)
        return None
    grain = _FOUR_GRAIN if fours else _grain(packed, shape, scale.shape, settings)
    ledger.note(f"scales, {grain.words}" if grain else "scales of weights", scale)
    if grain is None:
        ledger.fault(f"a scale is {scale.shape}, which does not divide a weight of {shape}", scale)
        return None
    if not (settings.rows and _rows_of_experts(shape, scale.shape)):
        misfitting = scales_misfit("its scale", shape, grain, scale.shape)
        if misfitting is not None:
            ledger.fault(misfitting, scale)
    return grain.words


def _unpacked(weight: StoredTensor) -> Shape | None:
    """Return the unpacked shape: an I8 byte holds two 4-bit numbers, an F4 element only one."""
    if weight.dtype != "I8" or not weight.shape:
        return weight.shape
    return (*weight.shape[:-1], 2 * weight.shape[-1])


def _grain(packed: _Weight, shape: Shape, scales: Shape, settings: _Settings) -> Grain | None:
    if settings.rows:
        return CHANNEL
    if settings.block is not None and not packed.shared:
        return settings.block
    return grain_of_shapes(shape, scales)


def _rows_of_experts(weight: Shape, scales: Shape) -> bool:
    """Whether scales are fbgemm's for experts (E, in, out): (E, 1, out) or (E, out, 1)."""
    if len(weight) != AXES:
        return False
    experts, _, outputs = weight
    return scales in {(experts, 1, outputs), (experts, outputs, 1)}


def _expert(packed: _Weight, *, fours: bool, settings: _Settings, ledger: PackingLedger) -> None:
    """Report experts with other bits than expert_dtype, from which loading builds their shapes."""
    if settings.experts is None or packed.weight.dtype is None or not _is_expert(packed.module):
        return
    if fours != (settings.experts == "fp4"):
        what = f"{packed.weight.dtype} {packed.weight.shape}"
        ledger.fault(
            f"expert_dtype is {described(settings.experts)}, stored is {what}", packed.weight
        )


def _is_expert(module: str) -> bool:
    return ".experts." in f".{module}."


# --- scales of activations, and scales without weights ----------------------------------------


def _activations(parts: Members, ledger: PackingLedger) -> None:
    for key, tensor in parts.items():
        experts = key.endswith(_OF_EXPERTS)
        if not experts and key not in _ACTIVATIONS:
            continue
        ledger.note("scales of activations", tensor)
        is_per_expert = experts and tensor.shape is not None and len(tensor.shape) == 1
        if tensor.elements not in {None, 1} and not is_per_expert:
            ledger.fault(f"a scale of activations is {tensor.shape}; one number is needed", tensor)


def _without_activations(stored: Stored, ledger: PackingLedger) -> None:
    """Report weights whose static activations have no scale: neither their own nor the experts'."""
    scaled = {
        module
        for module, parts in stored.modules.items()
        if any(key in _ACTIVATIONS or key.endswith(_OF_EXPERTS) for key in parts)
    }
    bare = [
        piece.stored
        for piece in ledger.booked
        if scaled.isdisjoint({piece.name.rpartition(".")[0], ".".join(piece.name.split(".")[:-3])})
    ]
    if bare:
        reason = "activation_scheme is static, expected an input_scale or activation_scale"
        ledger.lack(reason, *bare)


def _loose(parts: Members, weights: list[_Weight], ledger: PackingLedger) -> None:
    """Report scales without a weight, and weights without the scale that they need."""
    scaled = {weight.stem for weight in weights}
    for key, tensor in parts.items():
        stem = "weight" if key in _SCALES else key.removesuffix(_INVERSE)
        ours = key.endswith(_INVERSE) or key in {"weight_scale", "qscale_weight"}
        if ours and stem not in scaled:
            _orphan(tensor, parts.get(stem), ledger)
        elif tensor.dtype in FLOATS and key not in scaled:
            ledger.lack(f"{tensor.dtype} without a scale: loading would initialize one", tensor)


def _orphan(scale: StoredTensor, weight: StoredTensor | None, ledger: PackingLedger) -> None:
    ledger.note("scales of weights", scale)
    if weight is None:
        ledger.lack("the weight that this scale belongs to is not stored", scale)
    else:
        ledger.fault(f"a scale of a weight of {weight.dtype}, which is not scaled", scale)


def _scheme(declared: Declared, names: Collection[str]) -> Scheme:
    """Return the scheme: all linears that no list names are packed, including the output layer."""
    lists = [key for key in _LISTS if string_list(declared, key)]
    return skip_list_scheme((*lists, *_LISTS)[0], declared, names, has_defaults=False)


# --- what is stored under each name ---------------------------------------------------------------


def _weight_and_scale(
    name: str, scale: StoredTensor, grain: Grain, implied: Implied, *, fours: bool
) -> dict[str, WrittenTensor]:
    """Return the tensors of one weight and its scales; {} if the architecture lacks the weight."""
    shape = _shape_of(name, implied)
    if shape is None or len(shape) < _MATRIX:
        return {}
    if fours:
        *rows, inputs = shape
        return {
            name: WrittenTensor((*rows, inputs // 2), ("I8",)),
            scale.name: WrittenTensor((*rows, inputs // _FOUR_GROUP), ("F8_E8M0", "U8", "F32")),
        }
    per_expert = (shape[0], 1, 1) if len(shape) == AXES else ()  # a scale per expert
    grains = per_expert if grain == TENSOR else scales_shape(shape, grain)
    return {
        name: WrittenTensor(shape, ("F8_E4M3",)),
        scale.name: WrittenTensor(grains, _SCALE_DTYPES),
    }


def _of_activations(tensor: StoredTensor, implied: Implied) -> dict[str, WrittenTensor]:
    """Return the expected activation scale, by name: one number, or one for each stacked expert."""
    stem = tensor.name.removesuffix("_activation_scale").removesuffix("_input_scale")
    shape = _shape_of(stem, implied)
    return {tensor.name: WrittenTensor(shape[:1] if shape else (), ("F32", "BF16", "F16"))}


def _shape_of(name: str, implied: Implied) -> Shape | None:
    """Return the expected shape of a tensor, which may be stacked experts; None if unknown."""
    experts = stacked_experts(name, implied)
    return experts.shape if experts else implied(name)


LAYOUT = Layout(name="fp8", methods=_METHODS, recognises=recognises, unpack=unpack, writes=writes)
