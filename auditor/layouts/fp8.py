"""fp8: weights stored as 8-bit floats in the model's own shape, each with scales.

Sources: transformers' finegrained_fp8 and fbgemm_fp8 integrations (5.23), DeepSeek-V3's files:

    weight            F8_E4M3 (out, in)
    weight_scale_inv  F32, or F8_E8M0 or U8 exponents: (ceil(out / 128), ceil(in / 128)), for the
                      weight_block_size of the config; () if that is null
    weight_scale      () or (1,); (out, 1) from fbgemm. DeepSeek-V4 names weight_scale_inv
                      `scale`, Mistral `qscale_weight`
    activation_scale, input_scale     one number, if activations are static
    input_scale_ub                    fbgemm's bound for the scales of activations

Experts in one tensor (E, out, in) have `gate_up_proj_scale_inv` and similar names beside
`gate_up_proj`. Experts of DeepSeek-V4 have 4 bits: I8 (out, in / 2), scales (out, in / 32).
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from auditor.layouts._scales import (
    CHANNEL,
    TENSOR,
    Grain,
    grain_of_shapes,
    group_grain,
    scales,
)
from auditor.layouts._scheme import Scheme, skip_list_scheme
from auditor.layouts.declared import block_sides, string_list
from auditor.layouts.engine import Bundle, LayoutTable, Packing, if_elements
from auditor.layouts.fused import AXES
from auditor.layouts.packing import (
    ANOTHER_SCALE,
    Declared,
    Members,
    PackingLedger,
    Shape,
    StatedSettings,
    Stored,
    WrittenTensor,
    tensor_name,
)
from auditor.messages import described
from auditor.tensors import StoredTensor

# Dtype names: as in transformers and DeepSeek, as in Qwen, and of exponents.
_SCALE_DTYPES = ("F32", "BF16", "F16", "F8_E8M0", "U8")
_EXPONENTS = ("F8_E8M0", "U8", "F32")
_EIGHTS = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
_FOURS = frozenset({"I8", "F4"})
_FOUR_GROUP = 32  # inputs that share a scale in 4-bit weights
_INVERSE = "_scale_inv"
# Scales of `weight`. Other layouts and plain modules use the last two names too, and for scales of
# other parts than blocks.
_SCALES = ("weight_scale_inv", "qscale_weight", "scale", "weight_scale")
_SHARED = ("scale", "weight_scale")
_OWN = ("weight_scale", "qscale_weight")
_ACTIVATIONS = ("input_scale", "activation_scale", "input_scale_ub", "output_scale")
_OF_EXPERTS = ("_activation_scale", "_input_scale")  # after gate_up_proj and similar names
_LISTS = ("modules_to_not_convert", "ignored_layers")


class _Settings(NamedTuple):
    """The settings of one module."""

    block: Grain | None = None  # None if the config declares no block
    is_static: bool = False  # whether activations need a scale
    expert_dtype: str | None = None  # None for modules outside the experts
    has_rows: bool = False  # fbgemm writes one scale for each output


def _settings(
    declared: Declared | None, stored: Stored, ledger: PackingLedger
) -> Callable[[str], _Settings]:
    if declared is None:
        return lambda _module: _Settings()
    values = declared.settings
    is_static = values.get("activation_scheme") == "static"
    common = _Settings(_block(declared, ledger), is_static, None, declared.method == "fbgemm_fp8")
    dtype = values.get("expert_dtype")
    of_experts = common._replace(expert_dtype=dtype if isinstance(dtype, str) else None)
    if not is_static and of_experts == common:
        return lambda _module: common
    # Experts may share the scales of their activations.
    sharing = {
        module
        for module, parts in stored.modules.items()
        if is_static and any(key.endswith(_OF_EXPERTS) for key in parts)
    }

    def of(module: str) -> _Settings:
        settings = of_experts if ".experts." in f".{module}." else common
        if sharing.isdisjoint({module, module.rsplit(".", 2)[0]}):
            return settings
        return settings._replace(is_static=False)

    return of


def _block(declared: Declared, ledger: PackingLedger) -> Grain | None:
    value = declared.settings.get("weight_block_size", ())
    if value is None:
        return TENSOR
    if (block := block_sides(value)) is not None:
        return Grain(*block)
    if value != ():
        what = f"weight_block_size of {declared.where} is {described(value)}"
        ledger.fault(f"{what}; two sides above 0 are needed")
    return None


def _scheme(declared: Declared, names: Collection[str], *_: object) -> Scheme:
    """Return the scheme: all linears that no list names are packed, including the output layer."""
    lists = [key for key in _LISTS if string_list(declared, key)]
    scheme = skip_list_scheme((*lists, *_LISTS)[0], declared, names, has_defaults=False)
    return scheme._replace(spares_routers=True)


# --- bundles --------------------------------------------------------------------------------------


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    """Yield weights with their scales, weights without scales, and scales without a weight."""
    for module, members in stored.modules.items():
        alone = {key for key in members if _is_of_activations(key)}
        for stem, keys in _scales_by_weight(members).items():
            parts = {f"scale{at or ''}": members[key] for at, key in enumerate(keys)}
            before = "" if stem == "weight" else f"{stem}_"
            if stem in members:
                parts["weight"] = members[stem]
                own = [part for part in _ACTIVATIONS if before + part in members]
                parts |= {part: members[before + part] for part in own}
                alone -= {before + part for part in own}
            faults = (ANOTHER_SCALE,) if len(keys) > 1 else ()
            yield Bundle(module, tensor_name(module, stem), parts, faults=faults)
        for key in sorted(alone):
            part = next(part for part in _ACTIVATIONS if key.endswith(part))
            stem = "weight" if key == part else key.removesuffix(f"_{part}")
            yield Bundle(module, tensor_name(module, stem), {part: members[key]})


def _is_of_activations(key: str) -> bool:
    return key in _ACTIVATIONS or key.endswith(_OF_EXPERTS)


def _scales_by_weight(members: Members) -> dict[str, list[str]]:
    """Map names of weights to names of their scales, block scales first."""
    keys_by_stem: dict[str, list[str]] = {}
    for key in sorted(members, key=lambda key: (key in _SHARED, key)):
        if _is_of_activations(key):
            continue
        is_inverse = key.endswith(_INVERSE)
        if key in _SCALES:
            stem = "weight"
        elif is_inverse or key.endswith("_scale"):
            stem = key.removesuffix(_INVERSE if is_inverse else "_scale")
        else:
            if members[key].dtype in _EIGHTS:
                keys_by_stem.setdefault(key, [])
            continue
        if is_inverse or key in _OWN or (stem in members and _is_packed(members[stem])):
            keys_by_stem.setdefault(stem, []).append(key)
    return keys_by_stem


def _is_packed(weight: StoredTensor) -> bool:
    return weight.dtype is None or weight.dtype in _EIGHTS or weight.dtype in _FOURS


def _is_of_others(parts: Members) -> bool:
    """Whether integers have a scale in the way of compressed-tensors and modelopt."""
    return parts["weight"].dtype == "I8" and parts["scale"].name.endswith("weight_scale")


def _recognises(stored: Stored) -> bool:
    """Whether a module stores a scale_inv, or an 8-bit float with a scale."""
    if any(key.endswith(_INVERSE) for members in stored.modules.values() for key in members):
        return True
    return any(
        {"weight", "scale"} <= bundle.parts.keys()
        and _is_packed(bundle.parts["weight"])
        and not _is_of_others(bundle.parts)
        for bundle in _bundles(stored)
    )


# --- one weight -----------------------------------------------------------------------------------


def _needed(parts: Members, settings: _Settings, _packing: Packing | None) -> Iterator[str]:
    yield "scale"
    if settings.is_static and parts.keys().isdisjoint({"input_scale", "activation_scale"}):
        yield "input_scale"


def _by_shapes(parts: Members, settings: _Settings, _expected: object) -> list[Packing] | str:
    weight, scale = parts["weight"], parts.get("scale")
    if scale is not None and _is_of_others(parts):
        return "floats of 8 bits"
    is_four, stored = weight.dtype in _FOURS, weight.shape or ()
    shape = stored
    if weight.dtype == "I8" and stored:  # a byte holds two 4-bit numbers, an F4 element only one
        shape = (*stored[:-1], 2 * stored[-1])
    is_shared = scale is not None and scale.name.endswith(tuple(f".{one}" for one in _SHARED))
    grain = None if is_shared and not settings.has_rows else _declared_grain(settings)
    if is_four:
        grain = group_grain(_FOUR_GROUP)
    elif grain is None and scale is not None and scale.shape is not None:
        grain = grain_of_shapes(shape, scale.shape) or CHANNEL
    doubts: tuple[str, ...] = ()
    # Loading builds the experts' shapes from expert_dtype.
    if settings.expert_dtype is not None and is_four != (settings.expert_dtype == "fp4"):
        declared = described(settings.expert_dtype)
        doubts = (f"expert_dtype is {declared}, stored is {weight.dtype} {stored}",)
    dtype = "FP4" if is_four else weight.dtype or ""
    return [_packing(parts, settings, shape, grain, dtype, doubts)]


def _by_config(parts: Members, settings: _Settings, shape: Shape) -> Packing | None:
    if len(shape) < 2:  # noqa: PLR2004 - (out, in)
        return None
    if settings.expert_dtype == "fp4":
        return _packing(parts, settings, shape, group_grain(_FOUR_GROUP), "FP4")
    return _packing(parts, settings, shape, _declared_grain(settings) or TENSOR, "F8_E4M3")


def _declared_grain(settings: _Settings) -> Grain | None:
    return CHANNEL if settings.has_rows else settings.block


def _packing(  # noqa: PLR0913, PLR0917 - one interpretation of a weight
    parts: Members,
    settings: _Settings,
    shape: Shape,
    grain: Grain | None,
    dtype: str,
    doubts: tuple[str, ...] = (),
) -> Packing:
    stored, count = WrittenTensor(shape, (dtype,)), 1
    if dtype == "FP4":
        halved = (*shape[:-1], shape[-1] // 2) if shape else ()
        stored = WrittenTensor(halved, ("I8", "F4"), others=(shape,))
    scale = scales(shape, grain or TENSOR, _EXPONENTS if dtype == "FP4" else _SCALE_DTYPES)
    if len(shape) == AXES:
        count = shape[0]
        if settings.has_rows:  # of experts (E, in, out)
            rows = ((count, 1, shape[2]), (count, shape[2], 1))
            scale = scale._replace(others=(*scale.others, *rows))
    usual = (count,) if len(shape) == AXES else ()
    activations = {
        part: if_elements(parts, part, {1, count}.__contains__, usual) for part in _ACTIVATIONS
    }
    return Packing(
        shape=shape,
        dtype=dtype,
        tensors={"weight": stored, "scale": scale, **activations},
        words=grain.words if grain else "",
        grain=grain,
        doubts=doubts,
        descriptions={"scale": f"scales, {grain.words}"} if grain else {},
    )


def _stated(parts: Members, packing: Packing) -> StatedSettings | None:
    block = packing.grain
    if block is None or None in block or not parts["scale"].name.endswith("weight_scale_inv"):
        return None
    return {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [*block],
    }


LAYOUT = LayoutTable[_Settings](
    name="fp8",
    methods=("fp8", "fbgemm_fp8"),
    recognises=_recognises,
    packed="weight",
    dtypes=_EIGHTS | _FOURS,
    dtype="F8_E4M3",
    companions={
        **dict.fromkeys(("scale", "scale1", "scale2", "scale3"), "scales of weights"),
        **dict.fromkeys(_ACTIVATIONS, "scales of activations"),
    },
    needed=_needed,
    settings=_settings,
    by_shapes=_by_shapes,
    by_config=_by_config,
    stated=_stated,
    title=lambda _, packings: "; ".join(
        ("fp8", *sorted({packing.words for packing in packings} - {""}))
    ),
    scheme=_scheme,
    bundles=_bundles,
    may_be_alone=dict.fromkeys(_ACTIVATIONS, None),
    has_caches=True,
    is_local=True,
    loads="its scale",
    plain_by_name=False,
).layout()
