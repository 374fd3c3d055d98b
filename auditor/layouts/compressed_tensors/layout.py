"""compressed-tensors: recognise, unpack and check the formats that llm-compressor writes.

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

from collections.abc import Collection, Mapping

from auditor.layouts._scales import (
    CACHE,
    Grain,
    grain_of_shapes,
    note_kv_scales,
    require_one_element,
    scales_misfit,
)
from auditor.layouts._scheme import Scheme, report_contradictions, unlisted
from auditor.layouts.compressed_tensors import packs
from auditor.layouts.compressed_tensors.schemes import (
    UNSTATED,
    CompressedScheme,
    CompressedSchemes,
    flat_settings,
    read_schemes,
)
from auditor.layouts.compressed_tensors.written import writes
from auditor.layouts.packing import (
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    Members,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
    tensor_name,
)
from auditor.tensors import StoredTensor

_WEIGHTS = ("weight_packed", "compressed", "weight")
_OF_WEIGHT = frozenset({"weight_scale", "weight_zero_point", "weight_g_idx", "weight_global_scale"})
_OF_ACTIVATIONS = frozenset(
    f"{side}_{what}"
    for side in ("input", "output")
    for what in ("scale", "zero_point", "global_scale")
)
_OWN = _OF_WEIGHT | {"weight_packed", "weight_shape"}  # names that only this layout uses
_KNOWN = _OWN | _OF_ACTIVATIONS | CACHE | {"bitmask"}
_BYTES = frozenset({"F8_E4M3", "I8"})
_HEAD = "lm_head"
_STORES = {  # a format -> a description of its weights
    "pack-quantized": "weight_packed",
    "marlin-24": "weight_packed",
    "nvfp4-pack-quantized": "weight_packed",
    "mxfp4-pack-quantized": "weight_packed",
    "mxfp6-pack-quantized": "weight_packed",
    "mxfp8-quantized": "weight",
    "int-quantized": "weight",
    "float-quantized": "weight",
    "naive-quantized": "weight",
}


def recognises(stored: Stored) -> bool:
    """Whether a module stores weight_packed, a bit mask, or an 8-bit weight with weight_scale."""
    return any(
        "weight_packed" in parts
        or {"compressed", "bitmask"} <= parts.keys()
        or packs.keeps_shape(parts)
        for parts in stored.modules.values()
    )


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each weight to the name `X.weight`, whatever name its format uses."""
    ledger = PackingLedger()
    declared = flat_settings(declared)
    modules = stored.modules
    schemes = read_schemes(declared, modules, ledger)
    forms: set[str] = set()
    for module, parts in modules.items():
        if _KNOWN.isdisjoint(parts):
            continue
        scheme = schemes.of(module)
        form = _module(module, parts, scheme or UNSTATED, implied, ledger)
        if form is not None:
            forms.add(form)
            _check_format(parts, scheme or UNSTATED, ledger)
    _unscaled(stored, schemes, ledger)
    packed = [piece.name.removesuffix(".weight") for piece in ledger.tensors]
    if declared is not None and packed:
        config_scheme = _scheme(declared, stored, schemes, packed)
        report_contradictions(
            stored,
            packed,
            [piece.stored for piece in ledger.tensors],
            config_scheme,
            ledger,
            loads="its scales; add these modules to `ignore`",
        )
    _cache(stored, declared, ledger)
    return ledger.close(", ".join(("compressed-tensors", *sorted(forms))))


def _module(
    module: str, parts: Members, scheme: CompressedScheme, implied: Implied, ledger: PackingLedger
) -> str | None:
    """Record the tensors of one module; return its format, or None if its weight is not packed."""
    name = module if "row_offsets" in parts else tensor_name(module)
    note_kv_scales(parts, ledger)
    packed = packs.find_packed_weight(name, parts, scheme, implied, ledger) or _weight_in_own_shape(
        name, parts, scheme
    )
    if packed is None:
        _loose(parts, ledger)
        return None
    form, piece = packed
    ledger.tensors.append(piece)
    _obligatory(parts, scheme, form, ledger)
    _note(parts, form, ledger)
    _scales(parts, piece.shape, packs.fixed_grain(form) or scheme.grain, ledger)
    if piece.shape is not None:
        _check(parts, piece.shape, scheme, ledger)
    return form


def _weight_in_own_shape(
    name: str, parts: Members, scheme: CompressedScheme
) -> packs.PackedWeight | None:
    """Return a module's 8-bit weight in the model's shape; None if it has no such weight."""
    if not packs.keeps_shape(parts):
        return None
    weight, scale = parts["weight"], parts["weight_scale"]
    integers = weight.dtype == "I8" or (weight.dtype is None and scheme.kind == "int")
    if integers:
        return packs.PackedWeight("int-quantized", _piece(weight, name, f"INT{scheme.bits or 8}"))
    form = "mxfp8-quantized" if scale.dtype == "U8" else "float-quantized"
    return packs.PackedWeight(form, _piece(weight, name, "F8_E4M3"))


def _piece(weight: StoredTensor, name: str, dtype: str) -> LogicalTensor:
    return LogicalTensor(weight, name, weight.shape, dtype)


# --- quantization data ------------------------------------------------------------------------


def _scales(
    parts: Members, shape: Shape | None, grain: Grain | None, ledger: PackingLedger
) -> None:
    scale = parts.get("weight_scale")
    if scale is None:
        return
    if shape is not None and scale.shape is not None:
        grain = grain or grain_of_shapes(shape, scale.shape)
        if grain is None:
            ledger.fault(f"weight_scale is {scale.shape}, which does not divide {shape}", scale)
        elif (reason := scales_misfit("weight_scale", shape, grain, scale.shape)) is not None:
            ledger.fault(reason, scale)
    ledger.note(f"scales, {grain.words}" if grain else "scales of packed weights", scale)


def _check(parts: Members, shape: Shape, scheme: CompressedScheme, ledger: PackingLedger) -> None:
    """Check all companion tensors of a weight of this shape, except its weight_scale."""
    scale, zeros = parts.get("weight_scale"), parts.get("weight_zero_point")
    if zeros is not None and scale is not None and scale.shape is not None:
        packs.check_zeros(zeros, scale.shape, scheme, ledger)
    index = parts.get("weight_g_idx")
    if index is not None and index.shape not in {None, shape[-1:]}:
        reason = f"weight_g_idx is {index.shape}, expected {shape[-1:]}, one for each input"
        ledger.fault(reason, index)
    size = parts.get("weight_shape")
    if size is not None and size.shape not in {None, (len(shape),)}:
        reason = f"weight_shape is {size.shape}; it holds the {len(shape)} sides of {shape}"
        ledger.fault(reason, size)
    for key in ("weight_global_scale", "input_global_scale"):
        require_one_element(key, parts.get(key), ledger)
    inputs = parts.get("input_scale")
    if inputs is not None and inputs.elements is not None and not _divides(inputs.elements, shape):
        reason = "expected one number or one for each group of inputs, for a weight of"
        ledger.fault(f"input_scale is {inputs.shape}, {reason} {shape}", inputs)


def _divides(count: int, shape: Shape) -> bool:
    return count == 1 or (count > 0 and shape[-1:] != () and shape[-1] % count == 0)


def _obligatory(parts: Members, scheme: CompressedScheme, form: str, ledger: PackingLedger) -> None:
    needed = list(packs.NEEDED.get(form, ("weight_scale",)))
    packed = form == "pack-quantized"
    grouped = scheme.grain is not None and scheme.grain.outputs == 1
    if packed and scheme.symmetric is False and grouped:
        needed.append("weight_zero_point")
    if packed and scheme.ordered:
        needed.append("weight_g_idx")
    if scheme.static:
        needed.append("input_scale")
    if scheme.scaled:
        needed.append("input_global_scale")
    missing = [key for key in needed if key not in parts]
    if missing:
        weight = next(parts[key] for key in _WEIGHTS if key in parts)
        ledger.lack(f"{' and '.join(missing)} is in no file, expected with the weight", weight)


def _note(parts: Members, form: str, ledger: PackingLedger) -> None:
    for key, reason in packs.companion_kinds(form).items():
        if key in parts:
            ledger.note(reason, parts[key])
    _note_activations(parts, ledger)


def _note_activations(parts: Members, ledger: PackingLedger) -> None:
    scales = [parts[key] for key in sorted(_OF_ACTIVATIONS & parts.keys())]
    if scales:
        ledger.note("scales and zero points of activations", *scales)


def _loose(parts: Members, ledger: PackingLedger) -> None:
    """Record the quantization data of a module without a packed weight.

    Report the data that only a packed weight can have.
    """
    _note_activations(parts, ledger)
    lost = [parts[key] for key in sorted((_OWN | {"bitmask"}) & parts.keys())]
    if not lost:
        return
    weight = parts.get("weight")
    ledger.note("scales, zero points and shapes of weights that are not packed", *lost)
    if weight is None:
        ledger.lack("the weight that they belong to is not stored", *lost)
    else:
        reason = f"is stored with a plain weight of {weight.dtype}, which loading would scale"
        ledger.fault(reason, *lost)


def _cache(stored: Stored, declared: Declared | None, ledger: PackingLedger) -> None:
    """Report a config that declares stored scales of the KV cache if no module stores any."""
    scheme = declared.settings.get("kv_cache_scheme") if declared else None
    if declared is None or not isinstance(scheme, Mapping) or scheme.get("dynamic", False):
        return
    keys = CACHE | {"output_scale"}
    if not any(keys & parts.keys() for parts in stored.modules.values()):
        reason = "but no k_scale or v_scale is stored: loading would use scales of 1"
        ledger.lack(f"kv_cache_scheme of {declared.where} is not dynamic, {reason}")


# --- contradictions to the config -------------------------------------------------------------


def _check_format(parts: Members, scheme: CompressedScheme, ledger: PackingLedger) -> None:
    weight = next(parts[key] for key in _WEIGHTS if key in parts)
    stored = weight.name.rpartition(".")[2]
    if stored != "compressed" and _STORES.get(scheme.form or "", stored) != stored:
        reason = f"the config's format {scheme.form} stores {_STORES[scheme.form or '']}"
        ledger.fault(f"{reason}, the file {stored} of {weight.dtype}", weight)


def _unscaled(stored: Stored, schemes: CompressedSchemes, ledger: PackingLedger) -> None:
    """Record 8-bit weights that the config quantizes but that have no scales; report the lack.

    Do nothing if the checkpoint has no other packed weights.
    """
    if not ledger.tensors:
        return
    for module, parts in stored.modules.items():
        weight, scheme = parts.get("weight"), schemes.of(module)
        if weight is None or weight.dtype not in _BYTES or not _KNOWN.isdisjoint(parts):
            continue
        if scheme is not None and scheme.quantizes:
            dtype = "F8_E4M3" if weight.dtype == "F8_E4M3" else f"INT{scheme.bits or 8}"
            ledger.tensors.append(_piece(weight, weight.name, dtype))
            ledger.lack("weight_scale is in no file, expected with the weight", weight)


def _scheme(
    declared: Declared, stored: Stored, schemes: CompressedSchemes, packed: Collection[str]
) -> Scheme:
    """Return the scheme: the config's targets are packed, except the modules in `ignore`.

    An output layer is a linear in every class, so it is packed unless `ignore` names it.
    """
    ignored = declared.settings.get("ignore")
    listed = frozenset(map(str, ignored)) if isinstance(ignored, list) else frozenset[str]()
    # Expressions are evaluated; a plain name may come from another version of the class.
    is_unlisted = unlisted(frozenset(one for one in listed if not one.startswith("re:")))

    def packs(names: Collection[str]) -> list[str]:
        if not schemes.certain:
            return []
        return [one for one in is_unlisted(names) if (schemes.of(one) or UNSTATED).quantizes]

    heads = (
        module
        for module, parts in stored.modules.items()
        if _last(module) == _HEAD and parts.keys() == {"weight"} and packs((module,))
    )
    return Scheme(
        plain=frozenset(name for name in packed if schemes.of(name) is None),
        packs=packs,
        source=f"config_groups and `ignore` of {declared.where}",
        named=() if _HEAD in map(_last, listed) else tuple(heads),
        every_linear=True,
    )


def _last(module: str) -> str:
    return module.rpartition(".")[2]


LAYOUT = Layout(
    name="compressed-tensors",
    methods=("compressed-tensors",),
    recognises=recognises,
    unpack=unpack,
    writes=writes,
)
