"""What modelopt stores under each name: see layout.py."""

from auditor.layouts._experts import AXES
from auditor.layouts._scales import CHANNEL, Grain, group_grain, scales_shape
from auditor.layouts.modelopt.settings import ModuleSettings
from auditor.layouts.packing import FLOATS, Shape, WrittenTensor

_BLOCK = 128  # sides of a block of FP8_PB_WO
_SMALL = 16  # inputs of a group of NVFP4; 32 of the MX formats
_MX = 32
_NUMBERS = ("F32", "BF16", "F16")


def tensors_of_weight(said: ModuleSettings, shape: Shape) -> dict[str, WrittenTensor]:
    """By what they are to a weight, "" the weight itself; {} where the config does not say."""
    *experts, rows, inputs = shape
    number = WrittenTensor((shape[0],) if len(shape) == AXES else (), _NUMBERS)
    beside = {
        **dict.fromkeys(("weight_scale_2", "input_scale", "output_scale"), number),
        "pre_quant_scale": WrittenTensor(shape[-1:], FLOATS),
    }
    match said.kind:
        case "NVFP4":
            weight = WrittenTensor((*experts, rows, inputs // 2), ("U8",))
            scale = WrittenTensor(
                scales_shape(shape, group_grain(said.group or _SMALL)), ("F8_E4M3",)
            )
        case "MXFP4":
            weight = WrittenTensor((*experts, rows, inputs // 2), ("U8",))
            scale = WrittenTensor(scales_shape(shape, group_grain(_MX)), ("U8",))
        case "INT4" if said.group:
            weight = WrittenTensor((*experts, rows // 2, inputs), ("U8",))
            scale = WrittenTensor(scales_shape(shape, group_grain(said.group)), FLOATS)
        case "MXFP8":
            weight = WrittenTensor(shape, ("F8_E4M3",))
            scale = WrittenTensor(scales_shape(shape, group_grain(_MX)), ("U8",))
        case "INT8":
            weight, scale = WrittenTensor(shape, ("I8",)), _of_outputs(shape)
        case "FP8":
            weight, scale = WrittenTensor(shape, ("F8_E4M3",)), _of_fp8(said, shape, number)
        case _:
            return {}
    return {**beside, "": weight, "weight_scale": scale}


def _of_fp8(said: ModuleSettings, shape: Shape, number: WrittenTensor) -> WrittenTensor:
    match said.algorithm:
        case "FP8_PER_CHANNEL_PER_TOKEN":
            return _of_outputs(shape)
        case "FP8_PB_WO":
            return WrittenTensor(scales_shape(shape, Grain(_BLOCK, _BLOCK)), _NUMBERS)
    return number


def _of_outputs(shape: Shape) -> WrittenTensor:
    return WrittenTensor(scales_shape(shape, CHANNEL)[:-1], _NUMBERS)
