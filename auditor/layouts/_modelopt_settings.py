"""The settings of each module in a modelopt config.

`quant_algo` names one algorithm for all modules except those in `exclude_modules` (of
hf_quant_config.json) or `ignore` (of config.json), whose names may contain stars. If it is
MIXED_PRECISION, `quantized_layers` lists the algorithm of each module by name. The algorithm
determines the tensors beside a weight.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from auditor.layouts._scales import CHANNEL, Grain, group_grain, scales_shape
from auditor.layouts.declared import integer_setting, object_or_empty, string_list
from auditor.layouts.fused import AXES
from auditor.layouts.packing import FLOATS, Declared, PackingLedger, Shape, WrittenTensor
from auditor.messages import described

_SIZES = range(1, 1 << 24)  # of groups
_KINDS = {  # an algorithm -> the kind of its weights
    "FP8": "FP8",
    "FP8_PER_CHANNEL_PER_TOKEN": "FP8",
    "FP8_PB_WO": "FP8",
    "NVFP4": "NVFP4",
    "NVFP4_AWQ": "NVFP4",
    "NVFP4_SVD": "NVFP4",
    "W4A16_NVFP4": "NVFP4",
    "W4A8_NVFP4_FP8": "NVFP4",
    "MXFP4": "MXFP4",
    "W4A8_MXFP4_FP8": "MXFP4",
    "MXFP8": "MXFP8",
    "W4A16_AWQ": "INT4",
    "W4A8_AWQ": "INT4",
    "W8A16": "INT8",
    "W8A8_SQ_PER_CHANNEL": "INT8",
}
_STATIC = frozenset({"FP8", "NVFP4", "NVFP4_AWQ", "NVFP4_SVD"})  # their activations have a scale
_TWICE = frozenset({"NVFP4", "NVFP4_AWQ", "NVFP4_SVD", "W4A16_NVFP4", "W4A8_NVFP4_FP8", "W4A8_AWQ"})


class ModuleSettings(NamedTuple):
    """The settings of one module; all are None if the config cannot be read."""

    algorithm: str | None = None
    kind: str | None = None
    group: int | None = None
    needs: tuple[str, ...] = ("weight_scale",)  # the tensors that a weight needs
    where: str = ""


_NOTHING = ModuleSettings()


class ModelOptSettings(NamedTuple):
    """The settings of all modules."""

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
    if not isinstance(algorithm, str) or algorithm.upper() not in _KINDS:
        if algorithm is not None:
            ledger.fault(
                f"quant_algo of {declared.where} is {described(algorithm)}, which is not known here"
            )
        return _NOTHING
    algorithm = algorithm.upper()
    needs = ["weight_scale"]
    if algorithm in _TWICE:
        needs.append("weight_scale_2")
    if algorithm in _STATIC and settings.get("activation_scheme") != "dynamic":
        needs.append("input_scale")
    group = (
        integer_setting(declared, "group_size", _SIZES, ledger)
        if settings.get("group_size")
        else None
    )
    return ModuleSettings(algorithm, _KINDS[algorithm], group, tuple(needs), declared.where)


def _inner_group(settings: Mapping[str, Any]) -> int | None:
    """Return the group size in config.json, which has the form of compressed-tensors."""
    value: object = settings
    for key in ("config_groups", "group_0", "weights", "group_size"):
        value = object_or_empty(value).get(key)
    return value if type(value) is int and value in _SIZES else None


_BLOCK = 128  # sides of a block of FP8_PB_WO
_SMALL = 16  # inputs of a group of NVFP4; 32 of the MX formats
_MX = 32
_NUMBERS = ("F32", "BF16", "F16")


def tensors_of_weight(settings: ModuleSettings, shape: Shape) -> dict[str, WrittenTensor]:
    """The tensors of a weight by the last part of their names; {} without settings."""
    *experts, rows, inputs = shape
    number = WrittenTensor((shape[0],) if len(shape) == AXES else (), _NUMBERS)
    companions = {
        **dict.fromkeys(("weight_scale_2", "input_scale", "output_scale"), number),
        "pre_quant_scale": WrittenTensor(shape[-1:], FLOATS),
    }
    match settings.kind:
        case "NVFP4":
            weight = WrittenTensor((*experts, rows, inputs // 2), ("U8",))
            scale = WrittenTensor(
                scales_shape(shape, group_grain(settings.group or _SMALL)), ("F8_E4M3",)
            )
        case "MXFP4":
            weight = WrittenTensor((*experts, rows, inputs // 2), ("U8",))
            scale = WrittenTensor(scales_shape(shape, group_grain(_MX)), ("U8",))
        case "INT4" if settings.group:
            weight = WrittenTensor((*experts, rows // 2, inputs), ("U8",))
            scale = WrittenTensor(scales_shape(shape, group_grain(settings.group)), FLOATS)
        case "MXFP8":
            weight = WrittenTensor(shape, ("F8_E4M3",))
            scale = WrittenTensor(scales_shape(shape, group_grain(_MX)), ("U8",))
        case "INT8":
            weight, scale = WrittenTensor(shape, ("I8",)), _of_outputs(shape)
        case "FP8":
            weight, scale = WrittenTensor(shape, ("F8_E4M3",)), _of_fp8(settings, shape, number)
        case _:
            return {}
    return {**companions, "weight": weight, "weight_scale": scale}


def _of_fp8(settings: ModuleSettings, shape: Shape, number: WrittenTensor) -> WrittenTensor:
    match settings.algorithm:
        case "FP8_PER_CHANNEL_PER_TOKEN":
            return _of_outputs(shape)
        case "FP8_PB_WO":
            return WrittenTensor(scales_shape(shape, Grain(_BLOCK, _BLOCK)), _NUMBERS)
    return number


def _of_outputs(shape: Shape) -> WrittenTensor:
    return WrittenTensor(scales_shape(shape, CHANNEL)[:-1], _NUMBERS)
