"""MXFP4 as gpt-oss stores it: experts' weights in blocks of 32 four-bit numbers.

Sources: transformers' integrations/mxfp4.py (5.23) and the OCP microscaling formats 1.0:

    X_blocks  U8 (E, out, in / 32, 16)  16 bytes are 32 numbers
    X_scales  U8 (E, out, in / 32)      an exponent for each block
    X         (E, in, out) after unpacking: transposed, as gpt-oss has its experts

X is `gate_up_proj` or `down_proj` of a layer's experts. Their biases are plain.
"""

from collections.abc import Iterator
from functools import partial

from auditor.layouts._scheme import skip_list_scheme
from auditor.layouts.engine import Bundle, LayoutTable, Packing, constant_settings
from auditor.layouts.packing import Members, Shape, Stored, WrittenTensor, tensor_name

_BLOCKS, _SCALES = "_blocks", "_scales"
_BYTES = 16  # numbers in a block
_NUMBERS = 32


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    for module, members in stored.modules.items():
        for key, tensor in members.items():
            if tensor.dtype not in {None, "U8"} or not key.endswith((_BLOCKS, _SCALES)):
                continue
            stem = key.removesuffix(_BLOCKS).removesuffix(_SCALES)
            if key.endswith(_BLOCKS):
                scales = members.get(stem + _SCALES)
                parts = {"blocks": tensor} | ({"scales": scales} if scales else {})
                yield Bundle(module, tensor_name(module, stem), parts)
            elif stem + _BLOCKS not in members:
                yield Bundle(module, tensor_name(module, stem), {"scales": tensor})


def _by_shapes(parts: Members, settings: None, _expected: Shape | None) -> list[Packing] | str:
    shape = parts["blocks"].shape or ()
    if len(shape) != 4 or shape[-1] != _BYTES:  # noqa: PLR2004 - (E, out, in / 32, 16)
        return f"(experts, outputs, inputs / {_NUMBERS}, {_BYTES})"
    packing = _experts(parts, settings, (shape[0], shape[2] * _NUMBERS, shape[1]))
    return [packing] if packing else ""


def _experts(_parts: Members, _settings: None, shape: Shape) -> Packing | None:
    if len(shape) != 3:  # noqa: PLR2004 - (E, in, out)
        return None
    experts, inputs, outputs = shape
    scales = (experts, outputs, inputs // _NUMBERS)
    tensors = {
        "blocks": WrittenTensor((*scales, _BYTES), ("U8",)),
        "scales": WrittenTensor(scales, ("U8",)),
    }
    return Packing(shape=shape, dtype="MXFP4", tensors=tensors)


LAYOUT = LayoutTable[None](
    name="mxfp4",
    recognises=lambda stored: any(len(bundle.parts) > 1 for bundle in _bundles(stored)),
    packed="blocks",
    dtypes=frozenset({"U8"}),
    dtype="MXFP4",
    companions={"scales": "scales, one exponent for each block of 32 inputs"},
    needed=lambda *_: ["scales"],
    settings=constant_settings(lambda *_: None),
    by_shapes=_by_shapes,
    by_config=_experts,
    stated=lambda *_: {"quant_method": "mxfp4"},
    title=lambda *_: "mxfp4, blocks of 32",
    scheme=partial(skip_list_scheme, "modules_to_not_convert", packs_others=False),
    bundles=_bundles,
).layout()
