"""EETQ, https://github.com/NetEase-FuXi/EETQ: int8 weights, transposed for its kernel.

transformers' integrations/eetq.py saves a linear of (out, in) as:

    X.weight         I8 (in, out), the transpose of a plain checkpoint's weight
    X.weight_scales  F16 (out,), one for each output
"""

from functools import partial

from auditor.layouts._scheme import skip_list_scheme
from auditor.layouts.engine import LayoutTable, Packing, any_module, constant_settings
from auditor.layouts.packing import FLOATS, Members, Shape, WrittenTensor


def _linear(_parts: Members, _settings: None, shape: Shape) -> Packing | None:
    if len(shape) != 2:  # noqa: PLR2004 - (out, in)
        return None
    tensors = {
        "weight": WrittenTensor(shape[::-1], ("I8",)),
        "weight_scales": WrittenTensor(shape[:1], FLOATS),
    }
    return Packing(shape=shape, dtype="INT8", tensors=tensors)


def _by_shapes(parts: Members, settings: None, _expected: Shape | None) -> list[Packing] | str:
    packing = _linear(parts, settings, (parts["weight"].shape or ())[::-1])
    return [packing] if packing else "(in, out)"


LAYOUT = LayoutTable[None](
    name="eetq",
    recognises=any_module(
        lambda parts: (
            "weight_scales" in parts and "weight" in parts and parts["weight"].dtype in {None, "I8"}
        )
    ),
    packed="weight",
    dtypes=frozenset({"I8"}),
    dtype="INT8",
    companions={"weight_scales": "weight_scales, one for each output"},
    needed=lambda *_: ["weight_scales"],
    settings=constant_settings(lambda *_: None),
    by_shapes=_by_shapes,
    by_config=_linear,
    title=lambda *_: "eetq, int8",
    scheme=partial(
        skip_list_scheme, "modules_to_not_convert", whole_layers=True, has_defaults=False
    ),
    loads="its weight_scales",
).layout()
