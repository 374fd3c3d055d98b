"""AutoRound, https://arxiv.org/abs/2309.05516, as Intel's auto-round stores it.

A linear of (out, in) in b bits, 2 to 8, in groups of g inputs, is in words of GPTQ or of AWQ, by
`packing_format`:

    auto_round, auto_round:gptq, :auto_gptq, :gptqmodel
        X.qweight I32 (in * b/32, out)   X.qzeros I32 (ceil(in/g), out * b/32)
        X.scales  F16 (ceil(in/g), out)  X.g_idx  I32 (in,), only :gptqmodel
    auto_round:awq, :auto_awq
        X.qweight I32 (in, out * b/32)   X.qzeros I32 (in/g, out * b/32)   X.scales F16 (in/g, out)

Symmetric weights have qzeros too. auto_round and :gptqmodel store zero points, the other two of
GPTQ store zero points less one. If activations have 8 bits or fewer, X.act_scales (1,) and
X.w_bf16_to_fp8_scale (1,) or (1, out) are stored too. Other packings (fp8, mxfp4, nvfp4, mx_int4,
mlx) are not read here. Sources: auto_round/export and auto_round_extension/torch of auto-round
0.16.1.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from auditor.layouts._qweight import (
    GEMM,
    GPTQ,
    Parts,
    Reading,
    awq_tensors,
    columns_packed,
    gptq_tensors,
    lacks_headers,
    packed_linear,
    qweight_form,
    rows_packed,
    under_full_names,
)
from auditor.layouts._qweight_modules import (
    ModuleReader,
    note_lacking,
    note_left_plain,
    note_orphans,
    telling_modules,
    title_of,
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
    """Whether a qweight has the shape of GPTQ or of AWQ's gemm."""
    return any(map(_is_packed, telling_modules(stored)))


def _is_packed(members: Members) -> bool:
    if lacks_headers(members):
        return "scales" in members
    return qweight_form(members, BITS) in {GPTQ, GEMM}


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each `qweight` as `weight`, (out, in); a Conv1D of GPT-2 is (in, out)."""
    ledger = PackingLedger()
    schemes = AutoRoundSchemes(declared, stored, ledger)
    reader = ModuleReader(partial(_readings, *declared_form(declared, ledger)), implied)
    packed: dict[str, Reading | None] = {}
    for module, members in stored.modules.items():
        if "qweight" in members:
            packed[module] = _unpack(module, members, schemes.of(module), reader, ledger)
        else:
            note_orphans(members, ("g_idx", *_NEEDED), implied, ledger)
    note_left_plain(stored, packed, lambda plain: _declared_packed(plain, schemes), ledger)
    _plain_by_name(stored, schemes, ledger)
    return ledger.close(title_of("auto-round", packed))


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return the tensors of the modules whose settings are in the config."""
    ledger, written = PackingLedger(), dict[str, WrittenTensor]()
    schemes, (form, _) = AutoRoundSchemes(declared, stored, ledger), declared_form(declared, ledger)
    for module, members in stored.modules.items():
        scheme = schemes.of(module)
        bits = scheme.bits if scheme.bits in BITS else None
        one = packed_linear(module, implied, bits, scheme.group)
        if one is not None and "qweight" in members:
            written |= under_full_names(
                module, members, awq_tensors(one) if form == GEMM else gptq_tensors(one)
            )
    return written


def _declared_packed(
    plain: Mapping[str, StoredTensor], schemes: AutoRoundSchemes
) -> list[StoredTensor]:
    """The plain weights that the config declares packed, without those of extra_config."""
    return [
        weight
        for module, weight in plain.items()
        if module not in schemes.own and schemes.of(module).bits in BITS
    ]


def _plain_by_name(stored: Stored, schemes: AutoRoundSchemes, ledger: PackingLedger) -> None:
    """Report plain modules that extra_config declares packed."""
    for module, scheme in schemes.own.items():
        members = stored.members(module)
        if scheme.bits in BITS and "qweight" not in members and "weight" in members:
            reason = f"stored plain, and {scheme.where} declares {scheme.bits} bits"
            ledger.fault(f"{reason}: loading looks for a qweight", members["weight"])


# --- one module -------------------------------------------------------------------------------


def _unpack(
    module: str,
    members: Members,
    scheme: AutoRoundScheme,
    reader: ModuleReader[AutoRoundScheme],
    ledger: PackingLedger,
) -> Reading | None:
    reading = reader.unpack(module, members, scheme, ledger, notes=_NOTES)
    require_one_element("the scale of the activations", members.get("act_scales"), ledger)
    if scheme.bits in PLAIN:
        reason = f"packed, though {scheme.where} leaves it plain: loading looks for a weight"
        ledger.fault(reason, members["qweight"])
    note_lacking(members, "qweight", _NEEDED, ledger)
    return reading


def _readings(
    declared: str | None, says: str, parts: Parts, scheme: AutoRoundScheme, expected: Shape | None
) -> Iterator[Reading]:
    """Yield a reading for each form and number of bits, the declared ones first."""
    order = sorted(BITS, key=lambda bits: bits != scheme.bits)  # stable
    for form in (GEMM, GPTQ) if declared == GEMM else (GPTQ, GEMM):
        for bits in order:
            doubts: dict[str, object] = {}
            if scheme.bits in BITS and scheme.bits != bits:
                doubts[f"{scheme.where} declares {scheme.bits} bits"] = bits
            if declared not in {None, form}:
                doubts[says] = form
            if form == GPTQ:
                yield rows_packed(parts, bits, scheme.group, expected).beside(doubts)
            else:
                yield columns_packed(parts, bits, scheme.group).beside(doubts)


LAYOUT = Layout(
    name="auto-round",
    methods=("auto-round", "intel/auto-round"),
    recognises=recognises,
    unpack=unpack,
    unread=unread,
    writes=writes,
)
