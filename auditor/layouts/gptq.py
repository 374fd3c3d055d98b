"""GPTQ, https://arxiv.org/abs/2210.17323, as AutoGPTQ and GPTQModel store it.

A linear of (out, in) in b bits, packed into words of w bits (usually 32), in groups of g inputs:

    X.qweight  I32 (ceil(in * b/w), out)      at 4 bits eight inputs to a word, at 3 bits 32 in 3
    X.qzeros   I32 (ceil(in/g), ceil(out * b/w))
    X.scales   F16 (ceil(in/g), out)
    X.g_idx    I32 (in,)                      the group of each input; not needed without act-order

Versions 1 and 2 (checkpoint_format gptq, gptq_v2) and the bit planes of gptq_p have these shapes
and other values. Marlin, for its kernel, repacks 4 or 8 bits in tiles of 16 inputs:

    X.B, X.qweight  I32 (in/16, out * 16 * b/32)    X.s, X.scales  F16 (in/g, out)

Some writers store a bias of zeros beside every qweight; if the architecture has no bias, it stays
plain and is reported as unexpected. Sources: gptqmodel/nn_modules/qlinear of GPTQModel 7.7.0 and
qlinear_marlin.py of AutoGPTQ 0.7.1.
"""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from auditor.layouts._qweight import (
    GPTQ,
    GROUPS,
    MARLIN,
    QWEIGHT,
    WORDS,
    QweightSettings,
    any_qweight,
    packing_of_config,
    readings,
    stated_group,
    title_of,
)
from auditor.layouts._scheme import Scheme
from auditor.layouts.declared import integer_setting
from auditor.layouts.engine import Bundle, LayoutTable, Packing, any_module, constant_settings
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Members,
    PackingLedger,
    Shape,
    StatedSettings,
    Stored,
    WrittenTensor,
    tensor_name,
)

_BITS = (4, 8, 3, 2, 5, 6, 7)  # the likeliest first: the order decides if shapes fit several
_FORMATS = (GPTQ, "gptq_v2", "gptq_p", MARLIN)
_WORD_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}  # by pack_dtype
_COMPANIONS = {
    **QWEIGHT,
    "g_idx": "g_idx, the group of each input",
    "workspace": "workspace of the Marlin kernel",
    "g_idx_sort_indices": "g_idx_sort_indices, the order of the inputs",
}
_ORPHANS = frozenset({"g_idx", "qzeros", "scales"})


def _format(declared: Declared) -> str:
    values = declared.settings
    form = values.get("checkpoint_format", values.get("format"))
    if values.get("is_marlin_format") is True or declared.method == MARLIN:
        return MARLIN
    return form if form in _FORMATS else GPTQ


def _settings(declared: Declared | None, ledger: PackingLedger) -> QweightSettings:
    """Read the settings; bits and group are not known if modules have their own, by `dynamic`."""
    if declared is None:
        return QweightSettings()
    values, form = declared.settings, _format(declared)
    bits = integer_setting(declared, "bits", sorted(_BITS), ledger)
    group = integer_setting(declared, "group_size", GROUPS, ledger)
    has_own = bool(values.get("dynamic"))
    return QweightSettings(
        form=MARLIN if form == MARLIN else GPTQ,
        bits=None if has_own else bits,
        group=None if has_own else group,
        where=declared.where,
        form_source=f"checkpoint_format of {declared.where} is {form}",
        word=_WORD_BITS.get(str(values.get("pack_dtype", "int32"))),
        act_order=values.get("desc_act") is True,
    )


def _is_tiled(members: Members) -> bool:
    """Whether a module stores Marlin's B and s."""
    return "B" in members and "s" in members and members["B"].dtype in {None, "I32"}


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    for module, members in stored.modules.items():
        if "qweight" in members:
            yield Bundle(module, tensor_name(module), members)
        elif "B" in members and "s" in members:
            parts = {**members, "qweight": members["B"], "scales": members["s"]}
            yield Bundle(module, tensor_name(module), parts)
        elif not _ORPHANS.isdisjoint(members):
            orphans = {part: one for part, one in members.items() if part in _ORPHANS}
            yield Bundle(module, tensor_name(module), orphans)


def _needed(parts: Members, settings: QweightSettings, packing: Packing | None) -> list[str]:
    is_marlin = (packing.form if packing else settings.form) == MARLIN
    if "B" in parts or is_marlin:
        return ["scales"]
    return ["scales", "qzeros", *(["g_idx"] if settings.act_order else [])]


def _by_shapes(
    parts: Members, settings: QweightSettings, expected: Shape | None
) -> list[Packing] | str:
    forms = (MARLIN, GPTQ) if "B" in parts else (GPTQ, MARLIN)
    return readings(parts, settings, expected, forms=forms, bits=_BITS)


def _by_config(parts: Members, settings: QweightSettings, shape: Shape) -> Packing | None:
    form = MARLIN if "B" in parts or settings.form == MARLIN else GPTQ
    bits = None if settings.word is None else settings.bits
    packing = packing_of_config(form, shape, bits, settings.group, settings.word or 32)
    if packing is None or form == MARLIN:
        return packing
    # Some writers store a bias of zeros that the architecture does not have.
    bias = {"bias": WrittenTensor(packing.shape[:1], FLOATS)}
    return replace(packing, tensors={**packing.tensors, **bias})


def _stated(_parts: Members, packing: Packing) -> StatedSettings | None:
    if packing.form != GPTQ:
        return None
    sizes = {"bits": packing.bits, "group_size": stated_group(packing)}
    return {"quant_method": "gptq", **sizes, "desc_act": False}


def _title(declared: Declared | None, packings: Collection[Packing]) -> str:
    settings = _settings(declared, PackingLedger())
    title = title_of(_format(declared) if declared else GPTQ, packings, settings.group)
    return f"{title}, act-order" if settings.act_order else title


def _scheme(declared: Declared, names: Collection[str], *_: object) -> Scheme:
    """Return a scheme that packs all linears, or those that `modules_in_block_to_quantize` names.

    If some modules have their own settings, the packed modules are not known. The router of a
    block of experts, its `gate`, is a plain parameter in every class.
    """
    blocks = declared.settings.get("modules_in_block_to_quantize")
    ends = tuple(_strings(blocks))
    certain = not declared.settings.get("dynamic") and (ends or blocks is None)
    experts = {name.partition(".experts.")[0] for name in names if ".experts." in name}
    return Scheme(
        plain=frozenset({f"{block}.gate" for block in experts}.intersection(names)),
        packs=lambda plain: [one for one in plain if certain and one.endswith(ends or "")],
        source=declared.where,
        plain_source="the model's class, whose router is not a linear layer",
        every_linear=True,
    )


def _strings(value: object) -> Iterator[str]:
    """Yield the strings in nested lists: the names of a block's linears, in groups."""
    if isinstance(value, str):
        yield value
    for item in value if isinstance(value, list) else ():
        yield from _strings(item)


LAYOUT = LayoutTable[QweightSettings](
    name="gptq",
    methods=("gptq", "marlin"),
    recognises=lambda stored: any_qweight((GPTQ, MARLIN))(stored) or any_module(_is_tiled)(stored),
    packed="qweight",
    dtypes=WORDS,
    dtype="INT4",
    companions=_COMPANIONS,
    needed=_needed,
    settings=constant_settings(_settings),
    by_shapes=_by_shapes,
    by_config=_by_config,
    stated=_stated,
    title=_title,
    scheme=_scheme,
    bundles=_bundles,
    conv1d=True,
).layout()
