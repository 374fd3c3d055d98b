"""What fp8 stores under each name: see layout.py."""

from auditor.layouts._scales import TENSOR, Grain, scales_shape
from auditor.layouts.fused import AXES, stacked_experts
from auditor.layouts.packing import Implied, Shape, WrittenTensor
from auditor.tensors import StoredTensor

FOUR_GROUP = 32  # inputs that share a scale, of numbers of 4 bits
# As transformers and DeepSeek write them, as Qwen does, and exponents alone.
_SCALES = ("F32", "BF16", "F16", "F8_E8M0", "U8")
_MATRIX = 2


def weight_and_scale(
    name: str, scale: StoredTensor, grain: Grain, implied: Implied, *, fours: bool
) -> dict[str, WrittenTensor]:
    """Those of one weight, whose scales are of that grain; {} where the architecture has none."""
    shape = shape_of(name, implied)
    if shape is None or len(shape) < _MATRIX:
        return {}
    if fours:
        *rows, inputs = shape
        return {
            name: WrittenTensor((*rows, inputs // 2), ("I8",)),
            scale.name: WrittenTensor((*rows, inputs // FOUR_GROUP), ("F8_E8M0", "U8", "F32")),
        }
    grains = _grains(shape, grain)
    return {name: WrittenTensor(shape, ("F8_E4M3",)), scale.name: WrittenTensor(grains, _SCALES)}


def of_activations(tensor: StoredTensor, implied: Implied) -> dict[str, WrittenTensor]:
    """A scale of activations: a single number, or one for each of the experts it is named by."""
    stem = tensor.name.removesuffix("_activation_scale").removesuffix("_input_scale")
    shape = shape_of(stem, implied)
    return {tensor.name: WrittenTensor(shape[:1] if shape else (), ("F32", "BF16", "F16"))}


def shape_of(name: str, implied: Implied) -> Shape | None:
    """The architecture's, of stacked experts too."""
    own = implied(name)
    if own is not None:
        return own
    experts = stacked_experts(name, implied)
    return experts.shape if experts else None


def _grains(shape: Shape, grain: Grain) -> Shape:
    """One for the tensor is (); of experts in one tensor, one for each."""
    if grain == TENSOR:
        return (shape[0], 1, 1) if len(shape) == AXES else ()
    return scales_shape(shape, grain)
