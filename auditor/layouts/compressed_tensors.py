"""compressed-tensors: the dozen weight formats that llm-compressor writes.

Source: compressed_tensors.compressors of 0.9 to 0.20. A weight (..., out, in) of b bits is:

    pack-quantized        weight_packed I32 (out, ceil(in * b / 32)), in older versions
                          ceil(in / (32 // b)); weight_shape (2,): out and in, as values.
                          Asymmetric: weight_zero_point I32 (ceil(out * b / 32), groups).
                          Ordered by activation: weight_g_idx (in,)
    nvfp4-pack-quantized  weight_packed U8 (out, in / 2), weight_scale F8_E4M3 (out, in / 16),
                          weight_global_scale (1,)
    mxfp4-, mxfp6-        weight_packed U8 (out, in * b / 8), weight_scale U8 (out, in / 32)
    mxfp8-quantized       weight F8_E4M3, weight_scale U8 (out, in / 32)
    int-, float-, naive-  weight I8 or F8_E4M3 in the model's shape
    marlin-24             weight_packed I32 (in / 32, out * b / 2), meta I16 (in / 32, 2 * out),
                          scale_packed (groups, out): half the inputs are zero and not stored
    sparse-24-bitmask     compressed (out, in / 2), bitmask U8 (out, ceil(in / 8)), shape (2, 1)
    sparse-bitmask        compressed (nonzero,), bitmask, shape (2,), row_offsets (out,), below
                          the name `X.weight` itself

_scales.py describes weight_scale. Whether weights are packed or not, activations may have
input_scale, input_global_scale and similar tensors, and attention k_scale and v_scale.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from math import prod

from auditor.layouts._compressed_schemes import (
    CompressedScheme,
    flat_settings,
    read_schemes,
)
from auditor.layouts._scales import CACHE, CHANNEL, Grain, grain_of_shapes, group_grain, scales
from auditor.layouts._scheme import Scheme, unlisted
from auditor.layouts.declared import string_list
from auditor.layouts.engine import Bundle, LayoutTable, Packing, any_module, if_elements
from auditor.layouts.packing import (
    FLOATS,
    WIDE_FLOATS,
    Declared,
    Members,
    PackingLedger,
    Shape,
    StatedSettings,
    Stored,
    WrittenTensor,
    tensor_name,
)

_WORD = 32
_BITS = (4, 8, 2, 3, 5, 6, 7, 1)  # tried in this order if no config declares them
_BYTES = frozenset({"I8", "F8_E4M3"})  # dtypes of weights stored in the model's shape
_PACKED, _MARLIN = "pack-quantized", "marlin-24"
_HALVED, _SPARSE = "sparse-24-bitmask", "sparse-bitmask"
# A format -> bits of a number, inputs that share a scale, and the dtype of the scales.
_FLOATS = {
    "nvfp4-pack-quantized": (4, 16, "F8_E4M3"),
    "mxfp4-pack-quantized": (4, 32, "U8"),
    "mxfp6-pack-quantized": (6, 32, "U8"),
    "mxfp8-quantized": (8, 32, "U8"),
}
_STORES = {
    **dict.fromkeys((_PACKED, _MARLIN, *_FLOATS), "weight_packed"),
    **dict.fromkeys(
        ("mxfp8-quantized", "int-quantized", "float-quantized", "naive-quantized"), "weight"
    ),
}
_NEEDED = {  # a format -> the tensors that its weights need
    _PACKED: ("weight_scale", "weight_shape"),
    "nvfp4-pack-quantized": ("weight_scale", "weight_global_scale"),
    _MARLIN: ("scale_packed", "meta"),
    _HALVED: ("shape",),
    _SPARSE: ("shape",),
}
_NOT_UNPACKED = (
    "compressed-tensors 0.20 no longer unpacks sparse-bitmask: transformers would load random "
    "weights; save it dense, with disable_sparse_compression=True"
)
_OF_WEIGHT = {
    "weight_scale": "scales of packed weights",
    "weight_zero_point": "zero points, one for each scale",
    "weight_g_idx": "g_idx: the group of each input, which were sorted by activation",
    "weight_shape": "the shape of the unpacked weight",
    "weight_global_scale": "the scale of a weight's scales",
}
_OF_SPARSE = {
    "bitmask": "bit masks: where the numbers of a sparse weight stand",
    "shape": "the shape of the unpacked weight",
    "row_offsets": "where the rows of a sparse weight begin",
}
_OF_MARLIN = {
    "meta": "which two of four inputs a 2:4 sparse weight keeps",
    "scale_packed": "scales, permuted for the Marlin kernel",
}
_OF_ACTIVATIONS = dict.fromkeys(
    (
        f"{side}_{what}"
        for side in ("input", "output")
        for what in ("scale", "zero_point", "global_scale")
    ),
    "scales and zero points of activations",
)
_COMMON = _OF_WEIGHT | _OF_ACTIVATIONS
_SCALED = frozenset({"weight", "weight_scale"})
_HEAD = "lm_head"


def _bundles(
    stored: Stored, settings: Callable[[str], CompressedScheme], *_context: object
) -> Iterator[Bundle]:
    """Yield each weight, whatever name its format uses, with the companions of that format."""
    for module, members in stored.modules.items():
        own = _OF_MARLIN if "weight_packed" in members else {}
        own = _OF_SPARSE if "bitmask" in members else own
        parts = {part: one for part, one in members.items() if part in _COMMON or part in own}
        weight = members.get("weight_packed")
        if weight is None and "bitmask" in parts:
            weight = members.get("compressed")
        if weight is None and "weight" in members:
            is_bare = members["weight"].dtype in _BYTES and settings(module).quantizes
            if is_bare or not _OF_WEIGHT.keys().isdisjoint(parts):
                weight = members["weight"]
        if weight is not None:
            parts["weight"] = weight
        if parts:
            name = module if "row_offsets" in parts else tensor_name(module)
            yield Bundle(name.removesuffix(".weight"), name, parts)


# --- settings -------------------------------------------------------------------------------------


def _settings(
    declared: Declared | None, stored: Stored, ledger: PackingLedger
) -> Callable[[str], CompressedScheme]:
    """Read each module's scheme; report a lack of the scales that a static KV cache needs."""
    declared = flat_settings(declared)
    scheme = declared.settings.get("kv_cache_scheme") if declared else None
    is_static = isinstance(scheme, Mapping) and not scheme.get("dynamic", False)
    if declared is not None and is_static:
        keys = CACHE | {"output_scale"}
        if not any(keys & parts.keys() for parts in stored.modules.values()):
            reason = "but no k_scale or v_scale is stored: loading would use scales of 1"
            ledger.lack(f"kv_cache_scheme of {declared.where} is not dynamic, {reason}")
    return read_schemes(declared, stored.modules, ledger)


def _needed(parts: Members, scheme: CompressedScheme, _packing: Packing | None) -> Iterator[str]:
    form = _format(parts, scheme) or ""
    yield from _NEEDED.get(form, ("weight_scale",))
    is_grouped = scheme.grain is not None and scheme.grain.outputs == 1
    if form == _PACKED and scheme.symmetric is False and is_grouped:
        yield "weight_zero_point"
    if form == _PACKED and scheme.ordered:
        yield "weight_g_idx"
    if scheme.static:
        yield "input_scale"
    if scheme.scaled:
        yield "input_global_scale"


def _scheme(
    declared: Declared,
    names: Collection[str],
    settings: Callable[[str], CompressedScheme],
    stored: Stored,
) -> Scheme:
    """Return the scheme: the config's targets are packed, except the modules in `ignore`.

    An output layer is a linear in every class, so it is packed unless `ignore` names it.
    """
    listed = string_list(flat_settings(declared), "ignore")
    # Expressions are evaluated; a plain name may come from another version of the class.
    is_unlisted = unlisted(frozenset(one for one in listed if not one.startswith("re:")))

    def packs(modules: Collection[str]) -> list[str]:
        return [one for one in is_unlisted(modules) if settings(one).quantizes]

    heads = (
        module
        for module, parts in stored.modules.items()
        if _last(module) == _HEAD and parts.keys() == {"weight"} and packs((module,))
    )
    return Scheme(
        plain=frozenset(name for name in names if settings(name).is_plain),
        packs=packs,
        source=f"config_groups and `ignore` of {declared.where}",
        named=() if _HEAD in map(_last, listed) else tuple(heads),
        every_linear=True,
        spares_routers=True,
    )


def _last(module: str) -> str:
    return module.rpartition(".")[2]


# --- formats --------------------------------------------------------------------------------------


def _format(parts: Members, scheme: CompressedScheme) -> str | None:
    """Return the format of a weight by its companions and dtypes; None if it is not packed."""
    weight, scale = parts["weight"], parts.get("weight_scale")
    if "bitmask" in parts:
        return _SPARSE if "row_offsets" in parts else _HALVED
    if weight.name.endswith("weight_packed"):
        return _packed_format(parts, scheme)
    if weight.dtype not in {None, *_BYTES}:
        return None
    if weight.dtype == "I8" or (weight.dtype is None and scheme.kind == "int"):
        return "int-quantized"
    is_mx = scale is not None and (scale.dtype == "U8" or scheme.form == "mxfp8-quantized")
    return "mxfp8-quantized" if is_mx else "float-quantized"


def _packed_format(parts: Members, scheme: CompressedScheme) -> str | None:
    packed, scale = parts["weight"], parts.get("weight_scale")
    if packed.dtype == "I32" or (packed.dtype is None and {"weight_shape", "meta"} & parts.keys()):
        return _MARLIN if "scale_packed" in parts else _PACKED
    if packed.dtype not in {None, "U8"}:
        return None
    if "weight_global_scale" in parts or (scale is not None and scale.dtype == "F8_E4M3"):
        return "nvfp4-pack-quantized"
    per_scale = (packed.elements or 0) / (scale.elements or 1) if scale else 0
    is_six = scheme.bits == 6 or (scheme.bits is None and per_scale == 24)  # noqa: PLR2004 - 32 * 6 / 8
    return "mxfp6-pack-quantized" if is_six else "mxfp4-pack-quantized"


def _dtype(parts: Members, scheme: CompressedScheme, bits: int | None = None) -> str:
    """Return the dtype of a packed number."""
    form = _format(parts, scheme) or ""
    if form in {_HALVED, _SPARSE}:
        return parts["weight"].dtype or "F16"
    if form in {"float-quantized", "mxfp8-quantized"}:
        return "F8_E4M3"
    if form in _FLOATS:
        return form.partition("-")[0].upper()
    return f"INT{bits or scheme.bits or (8 if form == 'int-quantized' else 4)}"


def _by_shapes(
    parts: Members, scheme: CompressedScheme, expected: Shape | None
) -> list[Packing] | str:
    form, stored = _format(parts, scheme), parts["weight"].shape or ()
    if form is None:
        return "integers, or floats of 8 bits"
    is_flat = len(stored) < (1 if form in {_SPARSE, "int-quantized", "float-quantized"} else 2)
    if is_flat or (form == _MARLIN and len(stored) != 2):  # noqa: PLR2004 - a matrix of tiles
        return f"rows and columns to unpack as {form}"
    name = _last(parts["weight"].name)
    doubts = (_NOT_UNPACKED,) if form == _SPARSE else ()
    if name != "compressed" and _STORES.get(scheme.form or "", name) != name:
        reason = f"the config's format {scheme.form} stores {_STORES[scheme.form or '']}"
        doubts = (f"{reason}, the file {name} of {parts['weight'].dtype}",)
    return [
        _packing(parts, form, scheme, shape, bits, doubts)
        for shape, bits in _unpacked(parts, form, scheme, expected)
    ] or f"words of a whole number of {scheme.bits} bits"


def _packing(  # noqa: PLR0913, PLR0917 - one interpretation of a weight
    parts: Members,
    form: str,
    scheme: CompressedScheme,
    shape: Shape,
    bits: int,
    doubts: tuple[str, ...] = (),
) -> Packing:
    """Return the packing; scales that the config does not describe are read by their shape."""
    stored = parts["weight_scale"].shape if "weight_scale" in parts else None
    grain = group_grain(_FLOATS[form][1]) if form in _FLOATS else scheme.grain
    if grain is None and stored is not None:
        grain = grain_of_shapes(shape, stored)
    return Packing(
        shape=shape,
        dtype=_dtype(parts, scheme, bits),
        tensors=_tensors(parts, form, scheme, shape, bits, grain),
        words=grain.words if grain else "",
        form=form,
        bits=bits,
        grain=grain,
        doubts=doubts,
        descriptions={"weight_scale": f"scales, {grain.words}"} if grain else {},
    )


def _unpacked(
    parts: Members, form: str, scheme: CompressedScheme, expected: Shape | None
) -> Iterator[tuple[Shape, int]]:
    """Yield the possible shapes of the unpacked weight, the likeliest first, and their bits."""
    stored = parts["weight"].shape or ()
    *rows, columns = stored
    match form:
        case "pack-quantized":
            for bits in [scheme.bits] if scheme.bits else _BITS:
                for inputs in _inputs(parts, scheme, bits, expected):
                    yield (*rows, inputs), bits
        case "marlin-24":
            for bits in [scheme.bits] if scheme.bits else _BITS:
                if 2 * columns % bits == 0:
                    yield (2 * columns // bits, _WORD * rows[0]), bits
        case "sparse-24-bitmask":
            yield (*rows, 2 * columns), 0
        case "sparse-bitmask":
            yield _masked(parts, expected), 0
        case "int-quantized" | "float-quantized" | "mxfp8-quantized":
            yield stored, scheme.bits or 8
        case _:
            bits = _FLOATS[form][0]
            yield (*rows, columns * 8 // bits), bits


def _inputs(
    parts: Members, scheme: CompressedScheme, bits: int, expected: Shape | None
) -> Iterator[int]:
    """Yield the possible numbers of inputs in rows of 32-bit words, whose last may be incomplete.

    First the architecture's, then the number of groups times their size, then the most that fit.
    """
    *rows, words = parts["weight"].shape or ()
    if expected and expected[:-1] == tuple(rows):
        yield expected[-1]
    scale = parts["weight_scale"].shape if "weight_scale" in parts else None
    if scale and scheme.grain and scheme.grain.inputs:
        yield scale[-1] * scheme.grain.inputs
    yield words * _WORD // bits


def _masked(parts: Members, expected: Shape | None) -> Shape:
    """Return the dense shape that a bitmask covers, eight columns to a byte.

    The last byte of a row may be padded, so the architecture's shape is used if it fits.
    """
    mask = parts["bitmask"].shape
    if not mask:
        return expected or parts["weight"].shape or ()
    *rows, count = mask
    fits = expected is not None and expected[:-1] == tuple(rows) and -(-expected[-1] // 8) == count
    return expected if expected is not None and fits else (*rows, 8 * count)


# --- the tensors of a weight ----------------------------------------------------------------------


def _tensors(  # noqa: PLR0913, PLR0917 - one interpretation of a weight
    parts: Members,
    form: str,
    scheme: CompressedScheme,
    shape: Shape,
    bits: int,
    grain: Grain | None,
) -> dict[str, WrittenTensor]:
    """Return the tensors of a weight (..., out, in) and its companions."""
    *rows, inputs = shape
    one = WrittenTensor((1,), WIDE_FLOATS, others=((), (1, 1)))
    tensors = {
        **dict.fromkeys(("output_scale", "output_global_scale", "input_global_scale"), one),
        "input_scale": if_elements(
            parts, "input_scale", lambda count: count == 1 or (count > 0 and inputs % count == 0)
        ),
        "weight_global_scale": one,
        "weight_g_idx": WrittenTensor((inputs,), ("I32",)),
        "weight_shape": WrittenTensor((len(shape),), ("I64", "I32")),
    }
    if form == _MARLIN:
        outputs, tiles = shape[0], inputs // _WORD
        size = (scheme.grain.inputs if scheme.grain else None) or 128
        # A group at least as long as the stored inputs contains all of them.
        return tensors | {
            "weight": WrittenTensor((tiles, outputs * bits // 2), ("I32",)),
            "meta": WrittenTensor((tiles, 2 * outputs), ("I16",)),
            "scale_packed": WrittenTensor(
                (-(-inputs // size), outputs), FLOATS, others=((1, outputs),)
            ),
        }
    if form in {_HALVED, _SPARSE}:
        sides = (len(shape),)
        tensors["shape"] = WrittenTensor(sides, ("I64", "I32"), others=((*sides, 1),))
        tensors["bitmask"] = WrittenTensor((*rows, -(-inputs // 8)), ("U8",))
        if form == _SPARSE:
            return tensors | {"row_offsets": WrittenTensor(shape[:1], ("I64", "I32"))}
        return tensors | {"weight": WrittenTensor((*rows, inputs // 2), FLOATS)}
    kind = {_PACKED: "I32", "int-quantized": "I8"}.get(form, "F8_E4M3")
    if form == _PACKED:
        tensors["weight"] = _words(tuple(rows), inputs, (), bits)
    elif form in _FLOATS and form != "mxfp8-quantized":
        tensors["weight"] = WrittenTensor((*rows, inputs * bits // 8), ("U8",))
    else:
        tensors["weight"] = WrittenTensor(shape, (kind,))
    scale_dtypes = (_FLOATS[form][2],) if form in _FLOATS else FLOATS
    tensors["weight_scale"] = scales(shape, grain or CHANNEL, scale_dtypes)
    return tensors | _zero_points(parts, tensors["weight_scale"].shape, bits, kind)


def _words(before: Shape, count: int, after: Shape, bits: int) -> WrittenTensor:
    """Return the words of `count` numbers: dense, or padded as in older versions.

    Older versions use more words if `bits` does not divide 32.
    """
    padded, dense = -(-count // (_WORD // bits)), -(-count * bits // _WORD)
    return WrittenTensor(
        (*before, padded, *after),
        ("I32",),
        fewer=prod(before) * prod(after) * (padded - dense),
        others=((*before, dense, *after),),
    )


def _zero_points(parts: Members, grid: Shape, bits: int, dtype: str) -> dict[str, WrittenTensor]:
    """Return the zero points of scales: I32 (ceil(out * b / 32), groups), or in their shape."""
    zeros = parts.get("weight_zero_point")
    stored = zeros.dtype if zeros is not None else None
    if (stored or dtype) == "I32" and len(grid) > 1:
        *experts, outputs, columns = grid
        return {"weight_zero_point": _words(tuple(experts), outputs, (columns,), bits)}
    return {"weight_zero_point": WrittenTensor(grid, (stored or dtype,))}


def _by_config(parts: Members, scheme: CompressedScheme, shape: Shape) -> Packing | None:
    """Return the packing by the config, except for sparse and marlin-24 weights."""
    form = _format(parts, scheme) if "weight" in parts else None
    is_known = form not in {None, _MARLIN, _HALVED, _SPARSE} and scheme.quantizes
    if form is None or not is_known or len(shape) < 2:  # noqa: PLR2004 - (out, in)
        return None
    if form not in _FLOATS and scheme.grain is None:
        return None
    return _packing(parts, form, scheme, shape, scheme.bits or 4)


def _stated(parts: Members, packing: Packing) -> StatedSettings | None:
    if packing.form not in {_PACKED, "int-quantized", "float-quantized"} or packing.grain is None:
        return None
    outputs, inputs = packing.grain
    if outputs not in {None, 1}:
        return None
    strategy = "tensor" if outputs is None else "channel" if inputs is None else "group"
    weights = {
        "num_bits": packing.bits,
        "type": "float" if packing.form == "float-quantized" else "int",
        "strategy": strategy,
        "group_size": inputs,
        "symmetric": packing.form != _PACKED or "weight_zero_point" not in parts,
        "dynamic": False,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": packing.form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


def _title(declared: Declared | None, packings: Collection[Packing]) -> str:
    forms = sorted({packing.form for packing in packings})
    declared = flat_settings(declared)
    stated = declared.settings.get("format") if declared else None
    if not forms and isinstance(stated, str) and stated in _STORES:
        forms = [stated]
    return ", ".join(("compressed-tensors", *forms))


LAYOUT = LayoutTable[CompressedScheme](
    name="compressed-tensors",
    recognises=any_module(
        lambda parts: (
            "weight_packed" in parts
            or {"compressed", "bitmask"} <= parts.keys()
            or (parts.keys() >= _SCALED and parts["weight"].dtype in {None, *_BYTES})
        )
    ),
    packed="weight",
    dtypes=frozenset({"I32", "U8", *_BYTES, *FLOATS, "F64"}),
    dtype="INT4",
    unseen_dtype=_dtype,
    companions={**_OF_SPARSE, **_OF_MARLIN, **_COMMON},
    needed=_needed,
    settings=_settings,
    by_shapes=_by_shapes,
    by_config=_by_config,
    stated=_stated,
    title=_title,
    scheme=_scheme,
    bundles=_bundles,
    may_be_alone=dict.fromkeys(_OF_ACTIVATIONS, None),
    has_caches=True,
    loads="its scales; add these modules to `ignore`",
).layout()
