"""modelopt: NVFP4, FP8 and others, as NVIDIA's Model Optimizer exports them.

Source: modelopt.torch.export (unified_export_hf.py, quant_utils.py) of 0.47. Dtypes show the kind:

    NVFP4  weight U8 (out, in / 2), weight_scale F8_E4M3 (out, in / 16), weight_scale_2 ()
    MXFP4  weight U8 (out, in / 2), weight_scale U8 (out, in / 32)
    INT4   weight U8 (out / 2, in), weight_scale (out, in / g); AWQ's pre_quant_scale (in,)
    FP8    weight F8_E4M3 (out, in), weight_scale () or (out,), or (out / b, 1, in / b, 1)
    MXFP8  weight F8_E4M3 (out, in), weight_scale U8 (out, in / 32)
    INT8   weight I8 (out, in), weight_scale (out,)

input_scale is () if activations are static. SVDQuant adds svdquant_lora_a (rank, in) and _b (out,
rank). Experts in one tensor are (E, ...) and prefix all names: `down_proj`,
`down_proj_weight_scale`; if the model has them as (E, in, out), they are packed as (E, in / 2,
out). `k_proj.k_scale` and `v_proj.v_scale` belong to the KV cache.
"""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from auditor.layouts._patterns import names_matching_globs
from auditor.layouts._scales import (
    CACHE,
    CHANNEL,
    Grain,
    grain_of_shapes,
    group_grain,
    note_kv_scales,
    scales_misfit,
)
from auditor.layouts._scheme import plain_among_packed
from auditor.layouts.fused import AXES
from auditor.layouts.modelopt.settings import (
    ModelOptSettings,
    read_modelopt_settings,
    tensors_of_weight,
)
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
from auditor.tensors import StoredTensor

_PACKED = frozenset({"U8", "I8", "F8_E4M3"})
_BESIDE = {  # a tensor that a weight may have -> its description
    "weight_scale_2": "scales of scales, one for the tensor",
    "input_scale": "scales of activations",
    "output_scale": "scales of activations",
    "pre_quant_scale": "what inputs are multiplied by, one for each",
    "svdquant_lora_a": "low-rank part that SVDQuant keeps beside the weight",
    "svdquant_lora_b": "low-rank part that SVDQuant keeps beside the weight",
}
_NUMBERS = ("weight_scale_2", "input_scale", "output_scale")
_MATRIX = 2
_WIDE = 32  # inputs of a group


class _Weight(NamedTuple):
    """A weight, its scales, and the start of their names."""

    module: str
    stem: str  # weight, down_proj
    stored: StoredTensor
    scale: StoredTensor
    parts: Members

    def beside(self, key: str) -> StoredTensor | None:
        return self.parts.get(key if self.stem == "weight" else f"{self.stem}_{key}")

    @property
    def name(self) -> str:
        return tensor_name(self.module, self.stem)


def recognises(stored: Stored) -> bool:
    """Whether a module stores weight_scale_2, or an 8-bit weight with modelopt's weight_scale."""
    return any(
        _marked(weight)
        for module, parts in stored.modules.items()
        for weight in _weights(module, parts)
    )


def _marked(weight: _Weight) -> bool:
    """Whether a weight is modelopt's: bytes with a single scale are BitNet's."""
    bytewise = weight.stored.dtype == "U8" and len(weight.scale.shape or ()) < _MATRIX
    return weight.beside("weight_scale_2") is not None or not bytewise


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack weights under their stored names."""
    ledger = PackingLedger()
    settings = read_modelopt_settings(declared, ledger)
    kinds: set[str] = set()
    packed: dict[str, StoredTensor] = {}
    for module, parts in stored.modules.items():
        note_kv_scales(parts, ledger)
        weights = _weights(module, parts)
        for weight in weights:
            kinds.add(_book(weight, settings, implied, ledger))
            packed[module] = weight.stored
        if not weights:
            _loose(parts, ledger)
    _excluded(stored, packed, settings, ledger)
    return ledger.close(", ".join(("modelopt", *sorted(kinds))))


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return the tensors of weights whose algorithm is in the config, without low-rank parts."""
    settings, written = (
        read_modelopt_settings(declared, PackingLedger()),
        dict[str, WrittenTensor](),
    )
    for module, parts in stored.modules.items():
        for weight in _weights(module, parts):
            shape = implied(weight.name)
            if shape is None or len(shape) < _MATRIX:
                continue
            for key, one in tensors_of_weight(settings.of(module), shape).items():
                tensor = weight.beside(key) if key else weight.stored
                if tensor is not None:
                    written[tensor.name] = one
        for key in CACHE & parts.keys():
            written[parts[key].name] = WrittenTensor((), ("F32", "BF16", "F16"))
    return written


def _weights(module: str, parts: Members) -> list[_Weight]:
    """The packed weights of a module that have a scale; an index alone shows no dtypes."""
    weights = []
    for key, scale in parts.items():
        if key.endswith("weight_scale"):
            stem = "weight" if key == "weight_scale" else key.removesuffix("_weight_scale")
            weight = parts.get(stem)
            if weight is not None and (weight.dtype is None or weight.dtype in _PACKED):
                weights.append(_Weight(module, stem, weight, scale, parts))
    return weights


# --- one weight -------------------------------------------------------------------------------


def _book(
    weight: _Weight, settings: ModelOptSettings, implied: Implied, ledger: PackingLedger
) -> str:
    """Record a weight with all its tensors; return its kind in words."""
    declared = settings.of(weight.module)
    kind = _kind(weight) or declared.kind or ("NVFP4" if weight.stored.dtype == "U8" else "FP8")
    if declared.kind not in {None, kind}:
        what = f"{weight.stored.dtype} {weight.stored.shape}"
        reason = f"stored as {kind} ({what}), but {settings.where} says {declared.algorithm}"
        ledger.fault(reason, weight.stored)
    shape, turned = _shape(weight, kind, implied)
    inside = "F8_E4M3" if kind in {"FP8", "MXFP8"} else kind
    ledger.tensors.append(LogicalTensor(weight.stored, weight.name, shape, inside))
    grain = None if shape is None else _grain(weight.scale, kind, declared.group, shape)
    ledger.note(f"scales, {grain.words}" if grain else "scales of weights", weight.scale)
    if shape is not None:
        _scales(weight.scale, shape, grain, ledger, turned=turned)
        _sizes(weight, shape, ledger)
    for key, reason in _BESIDE.items():
        if (tensor := weight.beside(key)) is not None:
            ledger.note(reason, tensor)
    missing = [key for key in declared.needs if weight.beside(key) is None]
    if missing:
        reason = f"{' and '.join(missing)} should stand beside it, and no file has it"
        ledger.lack(reason, weight.stored)
    return kind


def _kind(weight: _Weight) -> str | None:
    """Return the kind that the dtypes of a weight and its scale show; None without dtypes."""
    match weight.stored.dtype:
        case "U8" | "F8_E4M3" if weight.scale.dtype is None:
            return None
        case "U8":
            return {"F8_E4M3": "NVFP4", "U8": "MXFP4"}.get(weight.scale.dtype or "", "INT4")
        case "F8_E4M3":
            return "MXFP8" if weight.scale.dtype == "U8" else "FP8"
        case "I8":
            return "INT8"
    return None


def _shape(weight: _Weight, kind: str, implied: Implied) -> tuple[Shape | None, bool]:
    """Return the model's shape, and whether its inputs come before its outputs."""
    shape = weight.stored.shape
    if shape is None or len(shape) < _MATRIX or kind in {"FP8", "MXFP8", "INT8"}:
        return shape, False
    *experts, rows, columns = shape
    along, across = (*experts, rows, 2 * columns), (*experts, 2 * rows, columns)
    if kind == "INT4":
        return across, False
    turned = bool(experts) and implied(weight.name) == across != along
    return (across if turned else along), turned


def _grain(scale: StoredTensor, kind: str, group: int | None, shape: Shape) -> Grain | None:
    match kind:
        case "NVFP4":
            return group_grain(group) if group else _small_groups(shape, scale.shape)
        case "MXFP4" | "MXFP8":
            return group_grain(32)
        case "INT8":
            return CHANNEL
        case "INT4" if group:
            return group_grain(group)
    if scale.shape is None:
        return None
    return grain_of_shapes(shape, _squeezed(scale.shape))


def _small_groups(shape: Shape, scales: Shape | None) -> Grain:
    """The grain of groups of 16, or of 32 with 8-bit activations, if the config omits it."""
    wide = scales is not None and 0 not in shape and prod(shape) == _WIDE * prod(scales)
    return group_grain(_WIDE if wide else 16)


def _squeezed(scales: Shape) -> Shape:
    """Remove the axes of one from scales of blocks, (out / b, 1, in / b, 1)."""
    if len(scales) == 2 * _MATRIX and scales[1::2] == (1, 1):
        return scales[::2]
    return scales


def _scales(
    scale: StoredTensor, shape: Shape, grain: Grain | None, ledger: PackingLedger, *, turned: bool
) -> None:
    if scale.shape is None:
        return
    scales = _squeezed(scale.shape)
    if turned and len(scales) == len(shape):
        shape, scales = (*shape[:-2], *shape[:-3:-1]), (*scales[:-2], *scales[:-3:-1])
    if grain is None:
        ledger.fault(f"weight_scale {scale.shape} fits no part of a weight of {shape}", scale)
    elif (reason := scales_misfit("weight_scale", shape, grain, scales)) is not None:
        ledger.fault(reason, scale)


def _sizes(weight: _Weight, shape: Shape, ledger: PackingLedger) -> None:
    """Check the tensors that apply to all of a weight, and to each of its inputs."""
    each = {1, shape[0]} if len(shape) == AXES else {1}
    for key in _NUMBERS:
        tensor = weight.beside(key)
        if tensor is not None and tensor.elements is not None and tensor.elements not in each:
            ledger.fault(f"{key} is {tensor.shape}; one number is needed", tensor)
    inputs = weight.beside("pre_quant_scale")
    if inputs is not None and inputs.shape not in {None, shape[-1:]}:
        reason = f"pre_quant_scale is {inputs.shape}; one for each input makes {shape[-1:]}"
        ledger.fault(reason, inputs)
    low, high = weight.beside("svdquant_lora_a"), weight.beside("svdquant_lora_b")
    if low and high and low.shape and high.shape and len(shape) == _MATRIX:
        rank = low.shape[0]
        if (low.shape, high.shape) != ((rank, shape[1]), (shape[0], rank)):
            reason = f"{high.shape} times {low.shape} is not the low-rank part of {shape}"
            ledger.fault(reason, low, high)


# --- beside the weights -----------------------------------------------------------------------


def _loose(parts: Members, ledger: PackingLedger) -> None:
    """Report quantization data without a packed weight, and packed weights without a scale."""
    weight = parts.get("weight")
    lost = [parts[key] for key in ("weight_scale", "weight_scale_2") if key in parts]
    others = [parts[key] for key in _BESIDE if key in parts and key != "weight_scale_2"]
    if lost:
        ledger.note("scales of weights that are not packed", *lost)
        book = ledger.lack if weight is None else ledger.fault
        book(_why(weight), *lost)
    if others:
        ledger.note("scales of activations", *others)
    if weight is not None and weight.dtype in _PACKED:
        ledger.lack(f"{weight.dtype} without a weight_scale: its numbers mean nothing", weight)


def _why(weight: StoredTensor | None) -> str:
    if weight is None:
        return "the weight that they belong to is not stored"
    return f"beside a weight of {weight.dtype}, which needs none"


def _excluded(
    stored: Stored,
    packed: Mapping[str, StoredTensor],
    settings: ModelOptSettings,
    ledger: PackingLedger,
) -> None:
    """Report packed modules that the config excludes, and plain ones that it does not."""
    patterns = settings.excluded
    if patterns is not None:
        wrong = [packed[name] for name in names_matching_globs(patterns, packed) or ()]
        if wrong:
            reason = f"packed, but {settings.where} lists it among the modules that are not"
            ledger.fault(reason, *wrong)
    plain = plain_among_packed(stored, packed)
    if settings.default is None:
        named = [weight for module, weight in plain.items() if module in settings.named]
    elif patterns is None or not settings.default.kind:
        return
    else:
        listed = names_matching_globs(patterns, plain, below=True)
        named = [] if listed is None else [plain[name] for name in plain if name not in listed]
    if named:
        ledger.fault(f"plain, but {settings.where} says that it is packed", *named)


LAYOUT = Layout(
    name="modelopt",
    methods=("modelopt",),
    recognises=recognises,
    unpack=unpack,
    writes=writes,
)
