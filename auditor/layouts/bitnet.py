"""BitNet, https://arxiv.org/abs/2402.17764: ternary weights, four to a byte.

transformers' integrations/bitnet.py saves `X.weight` U8 (out / 4, in), whose row r packs rows
r, r + out/4, r + 2*out/4 and r + 3*out/4 in two bits each, and `X.weight_scale` float (1,).
Weights for training (quantization_mode "online") are plain and have no scale; weights saved after
loading (linear_class "autobitlinear") are plain floats with a scale. With `use_rms_norm` each
of these linears has a norm of its inputs, `X.rms_norm.weight` (in,).
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from auditor.layouts._scheme import Scheme, skip_list_scheme
from auditor.layouts.engine import Bundle, LayoutTable, Packing, any_module, constant_settings
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

_PER_BYTE = 4
_ONE = WrittenTensor((1,), ("BF16", "F16", "F32"), others=((),))
_OTHER_LAYOUTS = frozenset({"input_scale", "weight_scale_2", "weight_zero_point", "weight_shape"})


def _is_bitnet(parts: Members) -> bool:
    """Whether a module has U8 or float weights, one weight_scale and no tensor of other layouts."""
    weight, scale = parts.get("weight"), parts.get("weight_scale")
    return (
        weight is not None
        and scale is not None
        and weight.dtype in {None, "U8", *FLOATS}
        and scale.dtype in {None, *FLOATS}
        and scale.shape in {None, (), (1,)}
        and _OTHER_LAYOUTS.isdisjoint(parts)
    )


class _Settings(NamedTuple):
    """The settings of the config; linears of another class may store their weights as floats."""

    linear_class: str = "bitlinear"
    has_norms: bool = False


def _settings(declared: Declared | None, _ledger: PackingLedger) -> _Settings:
    if declared is None:
        return _Settings()
    values = declared.settings
    has_norms = values.get("use_rms_norm") is True
    return _Settings(str(values.get("linear_class", "bitlinear")), has_norms)


def _bundles(
    stored: Stored, settings: Callable[[str], _Settings], *_context: object
) -> Iterator[Bundle]:
    for module, members in stored.modules.items():
        weight = members.get("weight")
        if "weight_scale" not in members and (weight is None or weight.dtype != "U8"):
            continue
        norm = stored.members(tensor_name(module, "rms_norm")).get("weight")
        has_norm = settings(module).has_norms and norm is not None and "weight_scale" in members
        parts = {**members, "rms_norm": norm} if has_norm and norm else members
        yield Bundle(module, tensor_name(module), parts)


def _by_shapes(
    parts: Members, _settings: _Settings, _expected: Shape | None
) -> list[Packing] | str:
    rows = parts["weight"].shape or ()
    if len(rows) != 2:  # noqa: PLR2004 - (out / 4, in)
        return "(out / 4, in)"
    return [_linear((_PER_BYTE * rows[0], rows[1]))]


def _by_config(_parts: Members, settings: _Settings, shape: Shape) -> Packing | None:
    if len(shape) != 2:  # noqa: PLR2004 - (out, in)
        return None
    packing = _linear(shape)
    tensors = dict(packing.tensors)
    if settings.linear_class != "bitlinear":
        del tensors["weight"]
    return Packing(shape=shape, dtype=packing.dtype, tensors=tensors)


def _linear(shape: Shape) -> Packing:
    tensors = {
        "weight": WrittenTensor((shape[0] // _PER_BYTE, shape[1]), ("U8",)),
        "weight_scale": _ONE,
        "rms_norm": WrittenTensor(shape[1:], ("BF16", "F16", "F32")),
    }
    return Packing(shape=shape, dtype="TERNARY", tensors=tensors)


def _scheme(declared: Declared, names: Collection[str], *_: object) -> Scheme:
    is_strict = declared.settings.get("linear_class", "bitlinear") == "bitlinear"
    return skip_list_scheme(
        "modules_to_not_convert",
        declared,
        names,
        packs_others=is_strict,
        whole_layers=True,
        has_defaults=False,
    )


LAYOUT = LayoutTable[_Settings](
    name="bitnet",
    recognises=any_module(_is_bitnet),
    packed="weight",
    dtypes=frozenset({"U8"}),
    dtype="TERNARY",
    companions={
        "weight_scale": "weight_scale, one for the whole weight",
        "rms_norm": "the norm that this layout puts before a linear",
    },
    needed=lambda *_: ["weight_scale"],
    settings=constant_settings(_settings),
    by_shapes=_by_shapes,
    by_config=_by_config,
    title=lambda *_: "bitnet, ternary",
    scheme=_scheme,
    bundles=_bundles,
    also_plain=frozenset(FLOATS),
    stores_plain=lambda declared: declared.settings.get("quantization_mode") == "online",
).layout()
