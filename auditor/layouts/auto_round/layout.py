"""AutoRound, https://arxiv.org/abs/2309.05516, as Intel's auto-round stores it.

A linear of (out, in) in b bits, 2 to 8, in groups of g inputs, is in GPTQ's or in AWQ's words, as
`packing_format` says:

    auto_round, auto_round:gptq, :auto_gptq, :gptqmodel
        X.qweight I32 (in * b/32, out)   X.qzeros I32 (ceil(in/g), out * b/32)
        X.scales  F16 (ceil(in/g), out)  X.g_idx  I32 (in,), by :gptqmodel alone
    auto_round:awq, :auto_awq
        X.qweight I32 (in, out * b/32)   X.qzeros I32 (in/g, out * b/32)   X.scales F16 (in/g, out)

Symmetric weights have qzeros as well. auto_round and :gptqmodel store zero points as they are, the
other two of GPTQ's less one. Where activations have 8 bits or fewer, X.act_scales (1,) and
X.w_bf16_to_fp8_scale (1,) or (1, out) stand beside. Other packings (fp8, mxfp4, nvfp4, mx_int4,
mlx) are not read here. From auto_round/export and auto_round_extension/torch of auto-round 0.16.1.
"""

from collections.abc import Iterator, Mapping

from auditor.layouts._qweight import (
    CONV1D,
    GEMM,
    GPTQ,
    Parts,
    Reading,
    awq_tensors,
    best_reading,
    columns_packed,
    gptq_tensors,
    lacks_headers,
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
from auditor.layouts._scales import require_one_element
from auditor.layouts.auto_round.settings import (
    BITS,
    PLAIN,
    AutoRoundScheme,
    AutoRoundSchemes,
    declared_form,
    unread,
)
from auditor.layouts.packing import (
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
from auditor.tensors import StoredTensor

_NEEDED = ("scales", "qzeros")
_NOTES: Mapping[str, str] = {
    "qzeros": "zero points, packed as the weight is",
    "g_idx": "g_idx, the group of each input",
    "act_scales": "scale of the activations",
    "w_bf16_to_fp8_scale": "scale of the weight as fp8",
}


def recognises(stored: Stored) -> bool:
    """Some qweight has the shape of GPTQ's or of AWQ's gemm."""
    return any(map(_is_packed, telling_modules(stored)))


def _is_packed(members: Members) -> bool:
    if lacks_headers(members):
        return "scales" in members
    return qweight_form(members, BITS) in {GPTQ, GEMM}


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """A `qweight` becomes `weight`, (out, in); a Conv1D of GPT-2 (in, out)."""
    ledger = PackingLedger()
    schemes = AutoRoundSchemes(declared, stored, ledger)
    read = _Reader(*declared_form(declared, ledger), implied)
    packed: dict[str, Reading | None] = {}
    for module, members in stored.modules.items():
        if "qweight" in members:
            packed[module] = _unpack(module, members, schemes.of(module), read, ledger)
        else:
            note_orphans(members, ("g_idx", *_NEEDED), implied, ledger)
    note_left_plain(stored, packed, lambda plain: _asked(plain, schemes), ledger)
    _plain_by_name(stored, schemes, ledger)
    return ledger.close(_title(packed))


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Of the modules whose settings are in the config."""
    ledger, found = PackingLedger(), dict[str, WrittenTensor]()
    schemes, (form, _) = AutoRoundSchemes(declared, stored, ledger), declared_form(declared, ledger)
    for module, members in stored.modules.items():
        scheme = schemes.of(module)
        bits = scheme.bits if scheme.bits in BITS else None
        one = packed_linear(module, implied, bits, scheme.group)
        if one is not None and "qweight" in members:
            found |= under_full_names(
                module, members, awq_tensors(one) if form == GEMM else gptq_tensors(one)
            )
    return found


def _title(packed: Mapping[str, Reading | None]) -> str:
    readings = [reading for reading in packed.values() if reading is not None]
    forms = sorted({reading.form for reading in readings})
    return ", ".join((" ".join(("auto-round", *forms)), *settings_text(readings)))


def _asked(plain: Mapping[str, StoredTensor], schemes: AutoRoundSchemes) -> list[StoredTensor]:
    """Those that the config lists as packed; what extra_config names has a fault of its own."""
    return [
        weight
        for module, weight in plain.items()
        if module not in schemes.own and schemes.of(module).bits in BITS
    ]


def _plain_by_name(stored: Stored, schemes: AutoRoundSchemes, ledger: PackingLedger) -> None:
    """Modules that extra_config lists as packed, and that are not."""
    for module, scheme in schemes.own.items():
        members = stored.members(module)
        if scheme.bits in BITS and "qweight" not in members and "weight" in members:
            reason = f"stored plain, and {scheme.where} declares {scheme.bits} bits"
            ledger.fault(f"{reason}: loading looks for a qweight", members["weight"])


# --- one module -------------------------------------------------------------------------------


def _unpack(
    module: str, members: Members, scheme: AutoRoundScheme, read: "_Reader", ledger: PackingLedger
) -> Reading | None:
    parts = parts_of(members, "qweight", *_NEEDED)
    reading = None
    if isinstance(parts, str):
        ledger.fault(parts, members["qweight"])
    else:
        reading = read.of(module, parts, scheme) if parts is not None else None
        note_reading(module, members, reading, f"INT{reading.bits if reading else 4}", ledger)
    _notes(members, reading, ledger)
    if scheme.bits in PLAIN:
        reason = f"packed, though {scheme.where} leaves it plain: loading looks for a weight"
        ledger.fault(reason, members["qweight"])
    for last in _NEEDED:
        if last not in members:
            ledger.lack(f"packed without its {last}", members["qweight"])
    return reading


def _notes(members: Members, reading: Reading | None, ledger: PackingLedger) -> None:
    if "scales" in members:
        group = f", one for each {reading.group:,} inputs of an output" if reading else ""
        ledger.note(f"scales{group}", members["scales"])
    for last, reason in _NOTES.items():
        if last in members:
            ledger.note(reason, members[last])
    require_one_element("the scale of the activations", members.get("act_scales"), ledger)


class _Reader:
    """Reads modules; those of the same shapes and settings once."""

    def __init__(self, form: str | None, says: str, implied: Implied) -> None:
        self._form, self._says, self._implied = form, says, implied
        self._known: dict[tuple[Parts, AutoRoundScheme, Shape | None], Reading] = {}

    def of(self, module: str, parts: Parts, scheme: AutoRoundScheme) -> Reading:
        """The architecture is asked only where the module does not explain itself."""
        conv = module.rpartition(".")[2] in CONV1D
        reading = self._read(parts, scheme, None)
        if conv or reading.complaints:
            expected = self._implied(tensor_name(module))
            reading = self._read(parts, scheme, expected)
            return transposed_conv1d(reading, expected) if conv else reading
        return reading

    def _read(self, parts: Parts, scheme: AutoRoundScheme, expected: Shape | None) -> Reading:
        key = (parts, scheme, expected)
        if key not in self._known:
            readings = [
                reading._replace(complaints=(*reading.complaints, *self._doubts(reading, scheme)))
                for reading in self._readings(parts, scheme, expected)
            ]
            self._known[key] = best_reading(readings, expected)
        return self._known[key]

    def _readings(
        self, parts: Parts, scheme: AutoRoundScheme, expected: Shape | None
    ) -> Iterator[Reading]:
        """One for each form and number of bits, what is declared first."""
        order = sorted(BITS, key=lambda bits: bits != scheme.bits)  # stable
        for form in (GEMM, GPTQ) if self._form == GEMM else (GPTQ, GEMM):
            for bits in order:
                if form == GPTQ:
                    yield rows_packed(parts, bits, scheme.group, expected)
                else:
                    yield columns_packed(parts, bits, scheme.group)

    def _doubts(self, reading: Reading, scheme: AutoRoundScheme) -> Iterator[tuple[str, str]]:
        if scheme.bits in BITS and scheme.bits != reading.bits:
            declares = f"{scheme.where} declares {scheme.bits} bits"
            yield "qweight", f"{declares}, the shapes are those of {reading.bits}"
        if self._form not in {None, reading.form}:
            yield "qweight", f"{self._says}, the shapes are those of {reading.form}"


LAYOUT = Layout(
    name="auto-round",
    methods=("auto-round", "intel/auto-round"),
    recognises=recognises,
    unpack=unpack,
    unread=unread,
    writes=writes,
)
