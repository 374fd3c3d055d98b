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

from collections.abc import Callable, Collection, Iterator
from math import prod

from auditor.layouts._modelopt_settings import (
    ModuleSettings,
    read_modelopt_settings,
    tensors_of_weight,
)
from auditor.layouts._patterns import names_matching_globs
from auditor.layouts._scales import (
    CHANNEL,
    Grain,
    grain_of_shapes,
    group_grain,
    scales_fit,
    scales_shape,
)
from auditor.layouts._scheme import Scheme
from auditor.layouts.engine import Bundle, LayoutTable, Packing
from auditor.layouts.fused import AXES
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

_ACTIVATIONS = dict.fromkeys(("input_scale", "output_scale"), "scales of activations")
_COMPANIONS = {
    "weight_scale": "scales of weights",
    "weight_scale_2": "scales of scales, one for the tensor",
    **_ACTIVATIONS,
    "pre_quant_scale": "what inputs are multiplied by, one for each",
    **dict.fromkeys(
        ("svdquant_lora_a", "svdquant_lora_b"),
        "low-rank part that SVDQuant keeps beside the weight",
    ),
}
_OF_WEIGHT = ("weight_scale", "weight_scale_2")
_NUMBERS = ("weight_scale_2", "input_scale", "output_scale")
_PACKED = frozenset({"U8", "I8", "F8_E4M3"})
_MATRIX = 2
_WIDE = 32  # inputs of a group


def _recognises(stored: Stored) -> bool:
    """Whether a module stores weight_scale_2, or an 8-bit weight with modelopt's weight_scale."""
    return any(
        {"weight", "weight_scale"} <= bundle.parts.keys()
        and bundle.parts["weight"].dtype in {None, *_PACKED}
        and ("weight_scale_2" in bundle.parts or not _is_bitnet(bundle.parts))
        for bundle in _bundles(stored)
    )


def _is_bitnet(parts: Members) -> bool:
    """Whether a weight of bytes has a single scale, which is BitNet's."""
    return parts["weight"].dtype == "U8" and len(parts["weight_scale"].shape or ()) < _MATRIX


def _bundles(stored: Stored, _declared: Declared | None = None) -> Iterator[Bundle]:
    """Yield weights with their scales, whose names start with the weight's, and loose scales."""
    for module, members in stored.modules.items():
        stems = {""}
        for key in members:
            stem = key.removesuffix("_weight_scale")
            if stem != key and stem in members and members[stem].dtype in {None, *_PACKED}:
                stems.add(stem)
        for stem in sorted(stems):
            before = f"{stem}_" if stem else ""
            parts = {key: members[before + key] for key in _COMPANIONS if before + key in members}
            weight = members.get(stem or "weight")
            is_packed = weight is not None and weight.dtype in _PACKED
            if weight is not None and (is_packed or not parts.keys().isdisjoint(_OF_WEIGHT)):
                parts["weight"] = weight
            if parts:
                yield Bundle(module, tensor_name(module, stem or "weight"), parts)


def _settings(
    declared: Declared | None, _stored: Stored, ledger: PackingLedger
) -> Callable[[str], ModuleSettings]:
    return read_modelopt_settings(declared, ledger).of


# --- one weight -------------------------------------------------------------------------------


def _kind(parts: Members, declared: ModuleSettings) -> str:
    """Return the kind that the dtypes of a weight and its scale show, or else the config."""
    weight = parts["weight"].dtype
    scale = parts["weight_scale"].dtype if "weight_scale" in parts else None
    match weight:
        case "U8" | "F8_E4M3" if scale is None:
            return declared.kind or ("NVFP4" if weight == "U8" else "FP8")
        case "U8":
            return {"F8_E4M3": "NVFP4", "U8": "MXFP4"}.get(scale or "", "INT4")
        case "F8_E4M3":
            return "MXFP8" if scale == "U8" else "FP8"
        case "I8":
            return "INT8"
    return declared.kind or "FP8"


def _inside(kind: str) -> str:
    return "F8_E4M3" if kind in {"FP8", "MXFP8"} else kind


def _by_shapes(
    parts: Members, declared: ModuleSettings, expected: Shape | None
) -> list[Packing] | str:
    weight = parts["weight"]
    kind, stored = _kind(parts, declared), weight.shape or ()
    doubts: tuple[str, ...] = ()
    if declared.kind not in {None, kind}:
        doubts = (f"quant_algo of {declared.where} is {declared.algorithm}, stored is {kind}",)
    if len(stored) < _MATRIX and kind not in {"FP8", "MXFP8", "INT8"}:
        return "two axes or more"
    shape, is_turned = _shape(stored, kind, expected)
    tensors = {"weight": WrittenTensor(stored, (weight.dtype or "",))}
    each = {1, shape[0]} if len(shape) == AXES else {1}
    for key in _NUMBERS:
        number = parts[key].shape if key in parts else None
        is_number = number is not None and prod(number) in each
        tensors[key] = WrittenTensor(number if is_number and number is not None else (), FLOATS)
    tensors["pre_quant_scale"] = WrittenTensor(shape[-1:], FLOATS)
    low = parts["svdquant_lora_a"].shape if "svdquant_lora_a" in parts else None
    if low and len(shape) == _MATRIX:
        tensors["svdquant_lora_a"] = WrittenTensor((low[0], shape[1]), FLOATS)
        tensors["svdquant_lora_b"] = WrittenTensor((shape[0], low[0]), FLOATS)
    tensors |= _scales(parts, kind, declared.group, shape, is_turned=is_turned)
    words = f"{kind} in groups of {declared.group}" if declared.group else kind
    return [
        Packing(
            shape=shape,
            dtype=_inside(kind),
            tensors=tensors,
            words=words,
            form=kind,
            doubts=doubts,
        )
    ]


def _shape(stored: Shape, kind: str, expected: Shape | None) -> tuple[Shape, bool]:
    """Return the model's shape, and whether its inputs come before its outputs."""
    if kind in {"FP8", "MXFP8", "INT8"}:
        return stored, False
    *experts, rows, columns = stored
    along, across = (*experts, rows, 2 * columns), (*experts, 2 * rows, columns)
    if kind == "INT4":
        return across, False
    is_turned = bool(experts) and expected == across != along
    return (across if is_turned else along), is_turned


def _scales(
    parts: Members, kind: str, group: int | None, shape: Shape, *, is_turned: bool
) -> dict[str, WrittenTensor]:
    """The scales of a weight, which may be written in several shapes; {} without a header."""
    stored = parts["weight_scale"].shape if "weight_scale" in parts else None
    if stored is None:
        return {}
    scales = _squeezed(stored)
    if is_turned and len(scales) == len(shape):
        shape, scales = (*shape[:-2], *shape[:-3:-1]), (*scales[:-2], *scales[:-3:-1])
    grain = _grain(kind, group, shape, scales)
    dtypes = (parts["weight_scale"].dtype or "",)
    if grain is not None and scales_fit(shape, grain, scales):
        return {"weight_scale": WrittenTensor(stored, dtypes)}
    is_matrix = len(shape) >= _MATRIX
    return {
        "weight_scale": WrittenTensor(
            scales_shape(shape, grain or CHANNEL) if is_matrix else (), dtypes
        )
    }


def _grain(kind: str, group: int | None, shape: Shape, scales: Shape) -> Grain | None:
    match kind:
        case "NVFP4" if group is None:
            # Groups of 16, or of 32 with 8-bit activations.
            wide = 0 not in shape and prod(shape) == _WIDE * prod(scales)
            return group_grain(_WIDE if wide else 16)
        case "MXFP4" | "MXFP8":
            return group_grain(_WIDE)
        case "INT8":
            return CHANNEL
        case "NVFP4" | "INT4" if group:
            return group_grain(group)
    return grain_of_shapes(shape, scales)


def _squeezed(scales: Shape) -> Shape:
    """Remove the axes of one from scales of blocks, (out / b, 1, in / b, 1)."""
    if len(scales) == 2 * _MATRIX and scales[1::2] == (1, 1):
        return scales[::2]
    return scales


def _by_config(_parts: Members, settings: ModuleSettings, shape: Shape) -> Packing | None:
    """Return the tensors of weights whose algorithm is in the config, without low-rank parts."""
    if len(shape) < _MATRIX:
        return None
    return Packing(shape=shape, dtype="", tensors=tensors_of_weight(settings, shape))


def _scheme(
    declared: Declared, names: Collection[str], _settings: Callable[[str], ModuleSettings]
) -> Scheme:
    """The modules that the config packs: all but excluded ones, or those that it names."""
    settings = read_modelopt_settings(declared, PackingLedger())
    patterns = settings.excluded

    def packs(plain: Collection[str]) -> Collection[str]:
        if settings.default is None:
            return [name for name in plain if name in settings.named]
        if patterns is None or not settings.default.kind:
            return ()
        listed = names_matching_globs(patterns, plain, below=True)
        return () if listed is None else [name for name in plain if name not in listed]

    return Scheme(
        plain=() if patterns is None else names_matching_globs(patterns, names) or (),
        packs=packs,
        source=declared.where,
        every_linear=True,
    )


def _title(_declared: Declared | None, packings: Collection[Packing]) -> str:
    return ", ".join(("modelopt", *sorted({one.form for one in packings})))


LAYOUT = LayoutTable[ModuleSettings](
    name="modelopt",
    methods=("modelopt",),
    recognises=_recognises,
    packed="weight",
    dtypes=_PACKED,
    dtype="NVFP4",
    companions=_COMPANIONS,
    needed=lambda _parts, settings, _packing: settings.needs,
    settings=_settings,
    by_shapes=_by_shapes,
    by_config=_by_config,
    title=_title,
    scheme=_scheme,
    bundles=_bundles,
    may_be_alone=dict.fromkeys(_ACTIVATIONS, None) | {"pre_quant_scale": None},
    unseen_dtype=lambda parts, settings: _inside(_kind(parts, settings)),
    has_caches=True,
    loads="its weight_scale",
).layout()
