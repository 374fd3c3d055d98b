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

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from auditor.layouts._qweight import (
    GPTQ,
    MARLIN,
    Parts,
    Reading,
    gptq_tensors,
    lacks_headers,
    marlin,
    marlin_tensors,
    packed_linear,
    qweight_form,
    rows_packed,
    under_full_names,
)
from auditor.layouts._qweight_modules import (
    USUAL,
    ModuleReader,
    note_lacking,
    note_left_plain,
    note_orphans,
    settings_text,
    telling_modules,
)
from auditor.layouts.declared import integer_setting
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Implied,
    Layout,
    Members,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
    WrittenTensor,
    tensor_name,
)

_BITS = (4, 8, 3, 2, 5, 6, 7)  # the likeliest first: the order decides if shapes do not
_GROUPS = range(-1, 2**31)
_FORMATS = (GPTQ, "gptq_v2", "gptq_p", MARLIN)
_PARTS = ("g_idx", "qzeros", "scales")  # beside a qweight
_MARLIN = frozenset({"B", "s"})
_WORDS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}  # values of pack_dtype
_NOTES: Mapping[str, str] = {
    "qzeros": "zero points, packed as the weight is",
    "g_idx": "g_idx, the group of each input",
    "workspace": "workspace of the Marlin kernel",
    "g_idx_sort_indices": "g_idx_sort_indices, the order of the inputs",
}


def recognises(stored: Stored) -> bool:
    """Whether a qweight has GPTQ's shape or a g_idx, or a module stores B and s."""
    return any(map(_is_gptq, telling_modules(stored))) or any(
        map(_is_marlin, stored.modules.values())
    )


def _is_gptq(members: Members) -> bool:
    if lacks_headers(members):
        return "scales" in members
    return qweight_form(members) in {GPTQ, MARLIN}


def _is_marlin(members: Members) -> bool:
    return _MARLIN.issubset(members) and members["B"].dtype in {None, "I32"}


class _Settings(NamedTuple):
    bits: int | None
    group: int | None  # -1: all inputs together; None: only the scales show it
    act_order: bool
    uneven: bool  # some modules have settings of their own
    format: str
    where: str


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each `qweight` as `weight`, (out, in); a Conv1D of GPT-2 is (in, out)."""
    ledger = PackingLedger()
    settings = _settings(declared, ledger)
    reader = ModuleReader(partial(_readings, settings), implied, rows=True)
    packed: dict[str, Reading | None] = {}
    for module, members in stored.modules.items():
        if "qweight" in members or _MARLIN.issubset(members):
            packed[module] = _unpack(module, members, settings, reader, ledger)
        else:
            note_orphans(members, _PARTS, implied, ledger)
    if not settings.uneven:
        note_left_plain(stored, packed, lambda plain: plain.values(), ledger)
    return ledger.close(_title(settings, packed))


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return all modules except those with their own settings (GPTQModel's `dynamic`)."""
    settings, written = _settings(declared, PackingLedger()), dict[str, WrittenTensor]()
    word = _WORDS.get(str(declared.settings.get("pack_dtype", "int32")) if declared else "")
    if settings.uneven or word is None:
        return written
    for module, members in stored.modules.items():
        one = packed_linear(module, implied, settings.bits, settings.group, word)
        if one is None or not {"qweight", "B"} & members.keys():
            continue
        if "B" in members:
            written |= under_full_names(module, members, marlin_tensors(one, "B", "s"))
        elif settings.format == MARLIN:
            written |= under_full_names(module, members, marlin_tensors(one, "qweight", "scales"))
        else:
            # Some writers store a bias of zeros that the architecture does not have.
            has_own = implied(tensor_name(module, "bias"))
            zeros = {} if has_own else {"bias": WrittenTensor((one.outputs,), FLOATS)}
            written |= under_full_names(module, members, gptq_tensors(one) | zeros)
    return written


def _settings(declared: Declared | None, ledger: PackingLedger) -> _Settings:
    if declared is None:
        return _Settings(None, None, act_order=False, uneven=False, format=GPTQ, where="")
    values = declared.settings
    form = values.get("checkpoint_format", values.get("format"))
    marlin_format = values.get("is_marlin_format") is True or declared.method == MARLIN
    return _Settings(
        bits=integer_setting(declared, "bits", sorted(_BITS), ledger),
        group=integer_setting(declared, "group_size", _GROUPS, ledger),
        act_order=values.get("desc_act") is True,
        uneven=bool(values.get("dynamic")),
        format=MARLIN if marlin_format else form if form in _FORMATS else GPTQ,
        where=declared.where,
    )


def _title(settings: _Settings, packed: Mapping[str, Reading | None]) -> str:
    act_order = ["act-order"] if settings.act_order else []
    return ", ".join(
        (settings.format, *settings_text(packed, whole=settings.group == -1), *act_order)
    )


# --- one module -------------------------------------------------------------------------------


def _unpack(
    module: str,
    members: Members,
    settings: _Settings,
    reader: ModuleReader[bool],
    ledger: PackingLedger,
) -> Reading | None:
    names = USUAL if "qweight" in members else ("B", "s", "qzeros")
    weight, scales, zeros = names
    tiled = weight == "B"
    reading = reader.unpack(module, members, tiled, ledger, names=names, notes=_NOTES)
    tiled = tiled or (reading.form if reading else settings.format) == MARLIN
    note_lacking(members, weight, [scales] if tiled else [scales, zeros], ledger)
    if settings.act_order and not tiled and "g_idx" not in members:
        reason = "desc_act is declared, and no g_idx says which group an input is in"
        ledger.lack(reason, members[weight])
    return reading


def _readings(
    settings: _Settings,
    parts: Parts,
    tiled: bool,  # noqa: FBT001 - a B beside its s
    expected: Shape | None,
) -> Iterator[Reading]:
    """Yield a reading for each number of bits, the declared one first."""
    order = sorted(_BITS, key=lambda bits: bits != settings.bits)  # stable
    group = None if settings.uneven else settings.group
    rows = [rows_packed(parts, bits, group, expected) for bits in order]
    tiles = [marlin(parts, bits, group) for bits in order if bits in {4, 8}]
    for one in [*tiles, *rows] if tiled or settings.format == MARLIN else [*rows, *tiles]:
        yield one.beside(_doubts(one, settings))


def _doubts(reading: Reading, settings: _Settings) -> dict[str, object]:
    doubts: dict[str, object] = {}
    if settings.bits not in {None, reading.bits} and not settings.uneven:
        doubts[f"{settings.where} declares {settings.bits} bits"] = reading.bits
    if settings.where and (reading.form == MARLIN) != (settings.format == MARLIN):
        doubts[f"{settings.where} declares the format {settings.format}"] = reading.form
    return doubts


LAYOUT = Layout(
    name="gptq",
    methods=("gptq", "marlin"),
    recognises=recognises,
    unpack=unpack,
    writes=writes,
)
