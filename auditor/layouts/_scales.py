"""The scales of a quantized weight: their expected shapes, and checks of their stored shapes.

A scale applies to a part of a weight (..., out, in), called its grain: the complete weight, an
output, a group of g inputs of an output, or a block of b x c. The scales' shape is the weight's
shape divided by the grain and rounded up: (1, 1), (out, 1), (out, ceil(in / g)),
(ceil(out / b), ceil(in / c)). Axes before the last two, the experts of a fused weight, stay. A
single scale is stored as (), (1,) or (1, 1), and (out, 1) also as (out,).

The scales of a KV cache are one number, or one for each head.
"""

from typing import NamedTuple

from auditor.layouts.packing import FLOATS, Members, PackingLedger, Shape, WrittenTensor

_MATRIX = 2  # axes of one expert's weight: (out, in)
_BLOCK = 128  # sides of a block of fp8 if the config does not declare them


class Grain(NamedTuple):
    """The numbers of outputs and inputs that share one scale; None stands for all of them."""

    outputs: int | None
    inputs: int | None

    @property
    def words(self) -> str:
        match self:
            case (None, None):
                return "one for the tensor"
            case (1, None):
                return "one for each output"
            case (1, inputs):
                return f"one for each {inputs} inputs of an output"
            case (outputs, inputs):
                across = "all" if inputs is None else inputs
                return f"one for each block of {outputs} x {across}"


TENSOR = Grain(None, None)
CHANNEL = Grain(1, None)


def group_grain(size: int) -> Grain:
    return Grain(1, size)


def scales(weight: Shape, grain: Grain, dtypes: tuple[str, ...]) -> WrittenTensor:
    """Return the scales of a weight in their usual shape, with the other shapes that occur."""
    if len(weight) < _MATRIX:
        return WrittenTensor((1,), dtypes, others=((), (1, 1)))
    *experts, rows, columns = weight
    shape = (*experts, _parts(rows, grain.outputs), _parts(columns, grain.inputs))
    if grain == TENSOR:
        if len(weight) == _MATRIX:
            return WrittenTensor((1,), dtypes, others=((), shape))
        return WrittenTensor(shape, dtypes, others=(shape[:-1], shape[:-2]))
    return WrittenTensor(shape, dtypes, others=(shape[:-1],) if grain.inputs is None else ())


def _parts(size: int, step: int | None) -> int:
    return 1 if step is None else -(-size // step)


def grain_of_shapes(weight: Shape, stored: Shape) -> Grain | None:
    """Return the grain that fits the shape of the scales, without a config; None if none fits."""
    grains = [TENSOR, CHANNEL, Grain(_BLOCK, _BLOCK)]
    if len(weight) >= _MATRIX and len(stored) == len(weight) and 0 not in stored:
        grains.append(Grain(-(-weight[-2] // stored[-2]), -(-weight[-1] // stored[-1])))
    for grain in grains:
        written = scales(weight, grain, FLOATS)
        if 0 not in grain and stored in {written.shape, *written.others}:
            return grain
    return None


# Names below an attention module, or below its k_proj and v_proj.
CACHE = frozenset(
    {"kv_scale", "k_scale", "v_scale", "q_scale", "k_zero_point", "v_zero_point", "q_zero_point"}
    | {"k_global_scale", "v_global_scale", "q_global_scale"}
)


def note_kv_scales(parts: Members, ledger: PackingLedger) -> None:
    """Record the scales of queries, keys and values; each must be one number or (heads, 1, 1)."""
    scales = [parts[key] for key in sorted(CACHE & parts.keys())]
    if not scales:
        return
    ledger.note("scales of the KV cache", *scales)
    for tensor in scales:
        if tensor.shape is not None and tensor.elements != 1 and tensor.shape[1:] != (1, 1):
            reason = (
                f"a scale of the KV cache is {tensor.shape}, expected one number, or one a head"
            )
            ledger.fault(reason, tensor)
