"""GPTQ, https://arxiv.org/abs/2210.17323, as AutoGPTQ and GPTQModel store it.

A linear of (out, in) in b bits, packed into words of w bits (32 as a rule), groups of g inputs:

    X.qweight  I32 (ceil(in * b/w), out)      at 4 bits eight inputs to a word, at 3 bits 32 in 3
    X.qzeros   I32 (ceil(in/g), ceil(out * b/w))
    X.scales   F16 (ceil(in/g), out)
    X.g_idx    I32 (in,)                      the group of each input; not needed without act-order

Versions 1 and 2 (checkpoint_format gptq, gptq_v2) and the bit planes of gptq_p have these shapes
and other values. Marlin, for its kernel, repacks 4 or 8 bits in tiles of 16 inputs:

    X.B, X.qweight  I32 (in/16, out * 16 * b/32)    X.s, X.scales  F16 (in/g, out)

Some writers store a bias of zeros beside every qweight; where the architecture has none it is left
plain, to be told as the unexpected tensor that it is. From gptqmodel/nn_modules/qlinear of
GPTQModel 7.7.0 and qlinear_marlin.py of AutoGPTQ 0.7.1.
"""

from collections.abc import Mapping
from typing import NamedTuple

from auditor.layouts._qweight import (
    CONV1D,
    GPTQ,
    MARLIN,
    PackedLinear,
    Parts,
    Reading,
    best_reading,
    gptq_tensors,
    lacks_headers,
    marlin,
    marlin_tensors,
    note_left_plain,
    note_orphans,
    note_reading,
    packed_linear,
    parts_of,
    qweight_form,
    rows_packed,
    settings_text,
    telling_modules,
    transposed_conv1d,
    under_full_names,
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

_BITS = (4, 8, 3, 2, 5, 6, 7)  # the likeliest first: the order decides where shapes do not
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
    """Some qweight has GPTQ's shape or a g_idx, or a B stands beside its s."""
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
    group: int | None  # -1: all inputs together; None: the scales alone say it
    act_order: bool
    uneven: bool  # some modules have settings of their own
    format: str
    where: str


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """A `qweight` becomes `weight`, (out, in); a Conv1D of GPT-2 (in, out)."""
    ledger = PackingLedger()
    settings = _settings(declared, ledger)
    read = _Reader(settings, implied)
    packed: dict[str, Reading | None] = {}
    for module, members in stored.modules.items():
        if "qweight" in members or _MARLIN.issubset(members):
            packed[module] = _unpack(module, members, read, ledger)
        else:
            note_orphans(members, _PARTS, implied, ledger)
    if not settings.uneven:
        note_left_plain(stored, packed, lambda plain: plain.values(), ledger)
    return ledger.close(_title(settings, packed))


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Without the modules that have settings of their own (GPTQModel's `dynamic`)."""
    settings, found = _settings(declared, PackingLedger()), dict[str, WrittenTensor]()
    word = _WORDS.get(str(declared.settings.get("pack_dtype", "int32")) if declared else "")
    if settings.uneven or word is None:
        return found
    for module, members in stored.modules.items():
        one = packed_linear(module, implied, settings.bits, settings.group, word)
        if one is None or not {"qweight", "B"} & members.keys():
            continue
        if "B" in members:
            found |= under_full_names(module, members, marlin_tensors(one, "B", "s"))
        elif settings.format == MARLIN:
            found |= under_full_names(module, members, marlin_tensors(one, "qweight", "scales"))
        else:
            zeros = {} if implied(tensor_name(module, "bias")) else {"bias": _bias(one)}
            found |= under_full_names(module, members, gptq_tensors(one) | zeros)
    return found


def _bias(one: PackedLinear) -> WrittenTensor:
    """The zeros that some writers store where the architecture has no bias."""
    return WrittenTensor((one.outputs,), FLOATS)


def _settings(declared: Declared | None, ledger: PackingLedger) -> _Settings:
    if declared is None:
        return _Settings(None, None, act_order=False, uneven=False, format=GPTQ, where="")
    said = declared.settings
    form = said.get("checkpoint_format", said.get("format"))
    marlin_format = said.get("is_marlin_format") is True or declared.method == MARLIN
    return _Settings(
        bits=integer_setting(declared, "bits", sorted(_BITS), ledger),
        group=integer_setting(declared, "group_size", _GROUPS, ledger),
        act_order=said.get("desc_act") is True,
        uneven=bool(said.get("dynamic")),
        format=MARLIN if marlin_format else form if form in _FORMATS else GPTQ,
        where=declared.where,
    )


def _title(settings: _Settings, packed: Mapping[str, Reading | None]) -> str:
    readings = [reading for reading in packed.values() if reading is not None]
    act_order = ["act-order"] if settings.act_order else []
    return ", ".join(
        (settings.format, *settings_text(readings, whole=settings.group == -1), *act_order)
    )


# --- one module -------------------------------------------------------------------------------


def _unpack(
    module: str, members: Members, read: "_Reader", ledger: PackingLedger
) -> Reading | None:
    weight, scales = ("qweight", "scales") if "qweight" in members else ("B", "s")
    parts = parts_of(members, weight, scales, "qzeros")
    reading = None
    if isinstance(parts, str):
        ledger.fault(parts, members[weight])
    else:
        reading = read.of(module, weight, parts) if parts is not None else None
        note_reading(module, members, reading, f"INT{reading.bits if reading else 4}", ledger)
    _notes(members, scales, reading, ledger)
    _lacking(members, weight, scales, read.settings, reading, ledger)
    return reading


def _notes(members: Members, scales: str, reading: Reading | None, ledger: PackingLedger) -> None:
    if scales in members:
        group = f" for each {reading.group:,} inputs of an output" if reading else ""
        ledger.note(f"scales, one{group}" if group else "scales", members[scales])
    for last, reason in _NOTES.items():
        if last in members:
            ledger.note(reason, members[last])


def _lacking(  # noqa: PLR0913, PLR0917 - what is needed depends on all of these
    members: Members,
    weight: str,
    scales: str,
    settings: _Settings,
    reading: Reading | None,
    ledger: PackingLedger,
) -> None:
    tiled = weight == "B" or (reading.form == MARLIN if reading else settings.format == MARLIN)
    needed = [scales] if tiled else [scales, "qzeros"]
    for last in needed:
        if last not in members:
            ledger.lack(f"packed without its {last}", members[weight])
    if settings.act_order and not tiled and "g_idx" not in members:
        reason = "desc_act is declared, and no g_idx says which group an input is in"
        ledger.lack(reason, members[weight])


class _Reader:
    """Reads modules; those of the same shapes once."""

    def __init__(self, settings: _Settings, implied: Implied) -> None:
        self.settings = settings
        self._implied = implied
        self._known: dict[tuple[str, Parts, Shape | None], Reading] = {}

    def of(self, module: str, weight: str, parts: Parts) -> Reading:
        """The architecture is asked only where the module does not explain itself."""
        conv = module.rpartition(".")[2] in CONV1D
        reading = self._read(weight, parts, None)
        if conv or reading.complaints or parts.qweight[0] * parts.word % reading.bits:
            expected = self._implied(tensor_name(module))
            reading = self._read(weight, parts, expected)
            reading = reading._replace(complaints=_renamed(reading, weight))
            return transposed_conv1d(reading, expected) if conv else reading
        return reading

    def _read(self, weight: str, parts: Parts, expected: Shape | None) -> Reading:
        known = self._known.get((weight, parts, expected))
        if known is None:
            readings = _readings(parts, self.settings, expected, tiled=weight == "B")
            known = best_reading(readings, expected)
            self._known[weight, parts, expected] = known
        return known


def _renamed(reading: Reading, weight: str) -> tuple[tuple[str, str], ...]:
    """The complaints under the names that are stored."""
    names = {"qweight": weight, "scales": "scales" if weight == "qweight" else "s"}
    return tuple((names.get(last, last), reason) for last, reason in reading.complaints)


def _readings(
    parts: Parts, settings: _Settings, expected: Shape | None, *, tiled: bool
) -> list[Reading]:
    """One for each number of bits, that which is declared first."""
    order = sorted(_BITS, key=lambda bits: bits != settings.bits)  # stable
    group = None if settings.uneven else settings.group
    rows = [rows_packed(parts, bits, group, expected) for bits in order]
    tiles = [marlin(parts, bits, group) for bits in order if bits in {4, 8}]
    readings = [*tiles, *rows] if tiled or settings.format == MARLIN else [*rows, *tiles]
    return [
        reading._replace(complaints=(*reading.complaints, *_doubts(reading, settings)))
        for reading in readings
    ]


def _doubts(reading: Reading, settings: _Settings) -> list[tuple[str, str]]:
    doubts = []
    if settings.bits not in {None, reading.bits} and not settings.uneven:
        declares = f"{settings.where} declares {settings.bits} bits"
        doubts.append(("qweight", f"{declares}, the shapes are those of {reading.bits}"))
    if settings.where and (reading.form == MARLIN) != (settings.format == MARLIN):
        declares = f"{settings.where} declares the format {settings.format}"
        doubts.append(("qweight", f"{declares}, the shapes are those of {reading.form}"))
    return doubts


LAYOUT = Layout(
    name="gptq",
    methods=("gptq", "marlin"),
    recognises=recognises,
    unpack=unpack,
    writes=writes,
)
