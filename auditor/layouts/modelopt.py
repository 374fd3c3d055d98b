"""modelopt: the formats that NVIDIA's Model Optimizer exports, such as NVFP4 and FP8.

Source: modelopt.torch.export (unified_export_hf.py, quant_utils.py) of 0.47. Dtypes show the
format:

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

`quant_algo` names one algorithm for all modules except those in `exclude_modules` (of
hf_quant_config.json) or `ignore` (of config.json), whose names may contain stars. If it is
MIXED_PRECISION, `quantized_layers` lists the algorithm of each module by name. The algorithm
determines the tensors beside a weight.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from auditor.layouts._scales import (
    CHANNEL,
    TENSOR,
    Grain,
    grain_of_shapes,
    group_grain,
    scales,
)
from auditor.layouts._scheme import Scheme, names_matching_globs, unlisted
from auditor.layouts.declared import integer_setting, object_or_empty, string_list
from auditor.layouts.engine import Bundle, LayoutTable, Packing, if_elements
from auditor.layouts.fused import AXES
from auditor.layouts.packing import (
    FLOATS,
    WIDE_FLOATS,
    Declared,
    Members,
    PackingLedger,
    Shape,
    Stored,
    WrittenTensor,
    tensor_name,
)
from auditor.messages import described

_SIZES = range(1, 1 << 24)  # possible group sizes
_ALGORITHMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    # An algorithm -> the format of its weights, and the tensors beside a weight_scale; activations
    # have no input_scale if they are dynamic.
    "FP8": ("FP8", ("input_scale",)),
    "FP8_PER_CHANNEL_PER_TOKEN": ("FP8", ()),
    "FP8_PB_WO": ("FP8", ()),
    "NVFP4": ("NVFP4", ("weight_scale_2", "input_scale")),
    "NVFP4_AWQ": ("NVFP4", ("weight_scale_2", "input_scale")),
    "NVFP4_SVD": ("NVFP4", ("weight_scale_2", "input_scale")),
    "W4A16_NVFP4": ("NVFP4", ("weight_scale_2",)),
    "W4A8_NVFP4_FP8": ("NVFP4", ("weight_scale_2",)),
    "MXFP4": ("MXFP4", ()),
    "W4A8_MXFP4_FP8": ("MXFP4", ()),
    "MXFP8": ("MXFP8", ()),
    "W4A16_AWQ": ("INT4", ()),
    "W4A8_AWQ": ("INT4", ("weight_scale_2",)),
    "W8A16": ("INT8", ()),
    "W8A8_SQ_PER_CHANNEL": ("INT8", ()),
}


class ModuleSettings(NamedTuple):
    """The quantization settings of one module; all are None if the config cannot be read."""

    algorithm: str | None = None
    kind: str | None = None
    group: int | None = None
    needs: tuple[str, ...] = ("weight_scale",)  # the tensors that a weight needs
    where: str = ""


_NOTHING = ModuleSettings()


class ModelOptSettings(NamedTuple):
    """The quantization settings of all modules."""

    default: ModuleSettings | None  # None if modules without a name here stay plain
    named: Mapping[str, ModuleSettings]
    excluded: frozenset[str] | None  # patterns; None if the config has no list

    def of(self, module: str) -> ModuleSettings:
        return self.named.get(module) or self.default or _NOTHING


def read_modelopt_settings(declared: Declared | None, ledger: PackingLedger) -> ModelOptSettings:
    """Read the settings of a config, and report impossible ones."""
    if declared is None:
        return ModelOptSettings(_NOTHING, {}, None)
    settings = declared.settings
    lists = [key for key in ("exclude_modules", "ignore") if isinstance(settings.get(key), list)]
    excluded = (
        frozenset[str]().union(*(string_list(declared, key) for key in lists)) if lists else None
    )
    algorithm = settings.get("quant_algo")
    if algorithm == "MIXED_PRECISION":
        layers = settings.get("quantized_layers")
        named = _layers(declared, layers, ledger)
        return ModelOptSettings(None if named else _NOTHING, named, excluded)
    default = _module_settings(declared, ledger)
    if default.group is None:
        default = default._replace(group=_inner_group(settings))
    return ModelOptSettings(default, {}, excluded)


def _layers(
    declared: Declared, layers: object, ledger: PackingLedger
) -> Mapping[str, ModuleSettings]:
    if not isinstance(layers, Mapping):
        reason = f"quantized_layers of {declared.where} is {described(layers)}"
        ledger.fault(f"{reason}; an object is needed for MIXED_PRECISION")
        return {}
    settings_by_module: dict[str, ModuleSettings] = {}
    for module, settings in layers.items():
        if isinstance(settings, Mapping):
            where = f"quantized_layers of {declared.where}"
            inner = Declared(method=declared.method, settings=settings, where=where)
            settings_by_module[module] = _module_settings(inner, ledger)
    return settings_by_module


def _module_settings(declared: Declared, ledger: PackingLedger) -> ModuleSettings:
    settings = declared.settings
    algorithm = settings.get("quant_algo")
    if not isinstance(algorithm, str) or algorithm.upper() not in _ALGORITHMS:
        if algorithm is not None:
            observed = f"quant_algo of {declared.where} is {described(algorithm)}"
            ledger.fault(f"{observed}, which is not known here")
        return _NOTHING
    algorithm = algorithm.upper()
    kind, beside = _ALGORITHMS[algorithm]
    if settings.get("activation_scheme") == "dynamic":
        beside = tuple(part for part in beside if part != "input_scale")
    group = None
    if settings.get("group_size"):
        group = integer_setting(declared, "group_size", _SIZES, ledger)
    return ModuleSettings(algorithm, kind, group, ("weight_scale", *beside), declared.where)


def _inner_group(settings: Mapping[str, Any]) -> int | None:
    """Return the group size that config.json states in the form of compressed-tensors."""
    value: object = settings
    for key in ("config_groups", "group_0", "weights", "group_size"):
        value = object_or_empty(value).get(key)
    return value if type(value) is int and value in _SIZES else None


# --- packed tensors ------------------------------------------------------------------------------

_ACTIVATIONS = dict.fromkeys(("input_scale", "output_scale"), "scales of activations")
_COMPANIONS = {
    "weight_scale": "scales of weights",
    "weight_scale_2": "scales of scales, one for the tensor",
    **_ACTIVATIONS,
    "pre_quant_scale": "factors of the inputs, one for each input",
    **dict.fromkeys(
        ("svdquant_lora_a", "svdquant_lora_b"),
        "low-rank factors of SVDQuant, stored with the weight",
    ),
}
_OF_WEIGHT = ("weight_scale", "weight_scale_2")
_PACKED = frozenset({"U8", "I8", "F8_E4M3"})
_MATRIX = 2
# A format -> dtype of the weight, the axis on which a byte has two numbers (0: none), and dtypes of
# its scales.
_FORMS: Mapping[str, tuple[str, int, tuple[str, ...]]] = {
    "NVFP4": ("U8", -1, ("F8_E4M3",)),
    "MXFP4": ("U8", -1, ("U8",)),
    "INT4": ("U8", -2, FLOATS),
    "FP8": ("F8_E4M3", 0, WIDE_FLOATS),
    "MXFP8": ("F8_E4M3", 0, ("U8",)),
    "INT8": ("I8", 0, WIDE_FLOATS),
}
_SMALL, _WIDE = 16, 32  # inputs of a group of NVFP4; 32 if activations have 8 bits, and in MX
_BLOCK = Grain(128, 128)  # of FP8_PB_WO


def _recognises(stored: Stored) -> bool:
    """Whether a module stores weight_scale_2, or an 8-bit weight with modelopt's weight_scale."""
    return any(
        {"weight", "weight_scale"} <= bundle.parts.keys()
        and bundle.parts["weight"].dtype in {None, *_PACKED}
        and ("weight_scale_2" in bundle.parts or not _is_bitnet(bundle.parts))
        for bundle in _bundles(stored)
    )


def _is_bitnet(parts: Members) -> bool:
    """Whether the weight is U8 and has a single scale, as BitNet writes it."""
    shape = parts["weight_scale"].shape
    return parts["weight"].dtype == "U8" and shape is not None and len(shape) < _MATRIX


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    """Yield the weights with their scales, and the scales whose weight is not stored."""
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
    """Return the format, such as NVFP4, by the dtypes of weight and scale, else by the config."""
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
    kind, stored = _kind(parts, declared), parts["weight"].shape or ()
    axis = _FORMS[kind][1]
    if axis and len(stored) < _MATRIX:
        return "two axes or more"
    shape = _doubled(stored, axis)
    is_transposed = False
    if axis == -1 and len(stored) > _MATRIX:
        across = _doubled(stored, -2)
        is_transposed = expected == across != shape
        shape = across if is_transposed else shape
    doubts: tuple[str, ...] = ()
    if declared.kind not in {None, kind}:
        doubts = (f"quant_algo of {declared.where} is {declared.algorithm}, stored is {kind}",)
    return [_packing(parts, kind, declared, shape, is_transposed=is_transposed, doubts=doubts)]


def _doubled(shape: Shape, axis: int) -> Shape:
    return tuple(2 * side if at - len(shape) == axis else side for at, side in enumerate(shape))


def _by_config(_parts: Members, settings: ModuleSettings, shape: Shape) -> Packing | None:
    """Return the packing by the config's algorithm, without SVDQuant's low-rank tensors."""
    is_unknown = settings.kind is None or (settings.kind == "INT4" and settings.group is None)
    if settings.kind is None or is_unknown or len(shape) < _MATRIX:
        return None
    return _packing({}, settings.kind, settings, shape)


def _packing(  # noqa: PLR0913 - one interpretation of a weight
    parts: Members,
    kind: str,
    settings: ModuleSettings,
    shape: Shape,
    *,
    is_transposed: bool = False,
    doubts: tuple[str, ...] = (),
) -> Packing:
    """Return the packing of a weight (..., out, in), or (E, in, out) if it is transposed."""
    dtype, axis, scale_dtypes = _FORMS[kind]
    axis = -2 if is_transposed else axis
    weight = tuple(side // 2 if at - len(shape) == axis else side for at, side in enumerate(shape))

    def turn(axes: Shape) -> Shape:
        return (*axes[:-2], *axes[:-3:-1]) if is_transposed else axes

    stored = parts["weight_scale"].shape if "weight_scale" in parts else None
    rows = turn(shape)
    grain = _grain(kind, settings, rows, None if stored is None else turn(stored))
    scale = scales(rows, grain, scale_dtypes)
    blocks = [(one[0], 1, one[1], 1) for one in (scale.shape,) if len(one) == _MATRIX]
    count = shape[0] if len(shape) == AXES else 1
    usual = (count,) if len(shape) == AXES else ()
    tensors = {
        "weight": WrittenTensor(weight, (dtype,)),
        "weight_scale": WrittenTensor(
            turn(scale.shape), scale_dtypes, others=(*map(turn, scale.others), *blocks)
        ),
        "pre_quant_scale": WrittenTensor(shape[-1:], FLOATS),
        **{
            key: if_elements(parts, key, {1, count}.__contains__, usual)
            for key in ("weight_scale_2", "input_scale", "output_scale")
        },
    }
    low = parts["svdquant_lora_a"].shape if "svdquant_lora_a" in parts else None
    if low and len(shape) == _MATRIX:
        tensors["svdquant_lora_a"] = WrittenTensor((low[0], shape[1]), FLOATS)
        tensors["svdquant_lora_b"] = WrittenTensor((shape[0], low[0]), FLOATS)
    words = f"{kind} in groups of {settings.group}" if settings.group else kind
    return Packing(
        shape=shape, dtype=_inside(kind), tensors=tensors, words=words, form=kind, doubts=doubts
    )


def _grain(kind: str, settings: ModuleSettings, shape: Shape, stored: Shape | None) -> Grain:
    """Return the grain that the format or the config fixes, else that of the stored scales."""
    match kind:
        case "NVFP4" | "INT4" if settings.group:
            return group_grain(settings.group)
        case "NVFP4":
            is_wide = stored is not None and prod(shape) == _WIDE * prod(stored) > 0
            return group_grain(_WIDE if is_wide else _SMALL)
        case "MXFP4" | "MXFP8":
            return group_grain(_WIDE)
        case "INT8":
            return CHANNEL
    if stored is not None:
        # Blocks may be stored as (out / b, 1, in / b, 1).
        is_squeezable = len(stored) == 2 * _MATRIX and stored[1::2] == (1, 1)
        return grain_of_shapes(shape, stored[::2] if is_squeezable else stored) or CHANNEL
    by_algorithm = {"FP8_PER_CHANNEL_PER_TOKEN": CHANNEL, "FP8_PB_WO": _BLOCK}
    return by_algorithm.get(settings.algorithm or "", TENSOR)


def _scheme(declared: Declared, names: Collection[str], *_: object) -> Scheme:
    """Return the scheme: all modules except excluded ones, or only those that the config names."""
    settings = read_modelopt_settings(declared, PackingLedger())
    patterns = settings.excluded

    def packs(plain: Collection[str]) -> Collection[str]:
        if settings.default is None:
            return [name for name in plain if name in settings.named]
        if patterns is None or not settings.default.kind:
            return ()
        listed = names_matching_globs(patterns, plain, below=True)
        return () if listed is None else [name for name in plain if name not in listed]

    excluded = () if patterns is None else names_matching_globs(patterns, names) or ()
    unnamed = unlisted(frozenset(settings.named))(names) if settings.default is None else ()
    return Scheme(
        plain=(*excluded, *unnamed),
        packs=packs,
        source=declared.where,
        every_linear=True,
        spares_routers=True,
    )


LAYOUT = LayoutTable[ModuleSettings](
    name="modelopt",
    recognises=_recognises,
    packed="weight",
    dtypes=_PACKED,
    dtype="NVFP4",
    companions=_COMPANIONS,
    needed=lambda _parts, settings, _packing: settings.needs,
    settings=_settings,
    by_shapes=_by_shapes,
    by_config=_by_config,
    title=lambda _, packings: ", ".join(("modelopt", *sorted({one.form for one in packings}))),
    scheme=_scheme,
    bundles=_bundles,
    may_be_alone=dict.fromkeys(_ACTIVATIONS, None) | {"pre_quant_scale": None},
    unseen_dtype=lambda parts, settings: _inside(_kind(parts, settings)),
    has_caches=True,
    loads="its weight_scale",
).layout()
