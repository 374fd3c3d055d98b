"""AWQ, https://arxiv.org/abs/2306.00978, as AutoAWQ and GPTQModel store it, usually in 4 bits.

A linear of (out, in) in b bits and groups of g inputs is in one of the forms of `version`:

    gemm       X.qweight I32 (in, out * b/32)   X.qzeros I32 (in/g, out * b/32)
               X.scales F16 (in/g, out)
    gemv       X.qweight I32 (out, in * b/32)   X.qzeros I32 (out, z)    X.scales F16 (out, 8z)
    gemv_fast  X.qweight I16 (out/4, in)        X.qzeros F16 (8z, out)   X.scales F16 (8z, out)
    marlin     X.qweight I32 (in/16, out * 16 * b/32)                    X.scales F16 (in/g, out)

z is the number of words for in/g zero points, ceil(in/g / 8), rounded up to a multiple of 2 for
groups of 64 and of 4 for groups of 32. llm-awq names the zeros of gemv_fast `scaled_zeros`. The
activation before a scaled layer stores its divisors: `act.scales` (features,). Sources: awq/modules
of AutoAWQ 0.2.9 and gptqmodel/nn_modules/qlinear of GPTQModel 7.7.0.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from auditor.layouts._left_plain import unlisted
from auditor.layouts._patterns import names_in_skip_lists
from auditor.layouts._qweight import (
    GEMM,
    GEMV,
    GEMV_FAST,
    MARLIN,
    PackedLinear,
    Parts,
    Reading,
    awq_tensors,
    columns_packed,
    lacks_headers,
    marlin,
    marlin_tensors,
    packed_linear,
    qweight_form,
    shape_complaints,
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
from auditor.layouts.declared import integer_setting, string_list
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
)
from auditor.tensors import StoredTensor

_BITS = (4, 8, 2, 3)
_GROUPS = range(-1, 2**31)
_FORMS = (GEMM, GEMV, GEMV_FAST, MARLIN)
_OTHER_WORDS = {"llm-awq": GEMV_FAST, "gemvfast": GEMV_FAST}  # other names of a form
_PARTS = ("qzeros", "scaled_zeros", "scales")  # beside a qweight
_ZEROS = ("qzeros", "scaled_zeros")
_PER_WORD = 8  # zero points in a word, whatever the bits: the kernels take only 4


def recognises(stored: Stored) -> bool:
    """Whether a qweight without g_idx has a shape of AWQ."""
    return any(map(_is_awq, telling_modules(stored)))


def _is_awq(members: Members) -> bool:
    if "g_idx" in members:
        return False
    if lacks_headers(members):
        return "scales" in members
    return qweight_form(members) in _FORMS


class _Settings(NamedTuple):
    form: str | None
    bits: int | None
    group: int | None  # -1: all inputs together; None: only the scales show it
    zeros: bool
    where: str
    left: frozenset[str]  # patterns of modules that are not packed


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each `qweight` as `weight`, (out, in)."""
    ledger = PackingLedger()
    settings = _settings(declared, ledger)
    reader = ModuleReader(partial(_readings, settings), implied, conv1d=False)
    packed: dict[str, Reading | None] = {}
    for module, members in stored.modules.items():
        if "qweight" in members:
            packed[module] = _unpack(module, members, settings, reader, ledger)
        else:
            _others(members, implied, ledger)
    note_left_plain(stored, packed, lambda plain: unlisted(plain, settings.left), ledger)
    _packed_all_the_same(stored, packed, settings.left, ledger)
    return ledger.close(title_of("awq", packed))


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return all but the divisors of activations, of unknown number; gemm is the usual form."""
    settings, written = _settings(declared, PackingLedger()), dict[str, WrittenTensor]()
    for module, members in stored.modules.items():
        one = packed_linear(module, implied, settings.bits, settings.group)
        if one is not None and "qweight" in members:
            written |= under_full_names(module, members, _parts(one, settings.form or GEMM))
    return written


def _parts(one: PackedLinear, form: str) -> dict[str, WrittenTensor]:
    words = _words(one.inputs, one.group)
    padded = (words * _PER_WORD, one.outputs)
    match form:
        case "marlin":
            return marlin_tensors(one, "qweight", "scales")
        case "gemv":
            return {
                "qweight": WrittenTensor(
                    (one.outputs, one.inputs * one.bits // one.word), ("I32",)
                ),
                "qzeros": WrittenTensor((one.outputs, words), ("I32",)),
                "scales": WrittenTensor(padded[::-1], FLOATS),
            }
        case "gemv_fast":
            zeros = dict.fromkeys(("scales", *_ZEROS), WrittenTensor(padded, FLOATS))
            return {"qweight": WrittenTensor((one.outputs // 4, one.inputs), ("I16",)), **zeros}
    return awq_tensors(one)


def _settings(declared: Declared | None, ledger: PackingLedger) -> _Settings:
    if declared is None:
        return _Settings(None, None, None, zeros=True, where="", left=frozenset())
    values = declared.settings
    version = values.get("version", values.get("format", values.get("checkpoint_format")))
    word = version.lower() if isinstance(version, str) else ""
    form = _OTHER_WORDS.get(word, word)
    bits, size = ("w_bit", "q_group_size") if "w_bit" in values else ("bits", "group_size")
    return _Settings(
        form=form if form in _FORMS else None,
        bits=integer_setting(declared, bits, _BITS, ledger),
        group=integer_setting(declared, size, _GROUPS, ledger),
        zeros=values.get("zero_point") is not False,
        where=declared.where,
        left=string_list(declared, "modules_to_not_convert"),
    )


def _packed_all_the_same(
    stored: Stored,
    packed: Mapping[str, Reading | None],
    listed: frozenset[str],
    ledger: PackingLedger,
) -> None:
    """Report packed modules that the config leaves plain, as transformers reads its list."""
    wrong = sorted(names_in_skip_lists(listed, packed) or ())
    if wrong:
        reason = "packed, though modules_to_not_convert lists it: loading looks for a weight"
        ledger.fault(reason, *(stored.modules[module]["qweight"] for module in wrong))


# --- one module -------------------------------------------------------------------------------


def _unpack(
    module: str,
    members: Members,
    settings: _Settings,
    reader: ModuleReader[bool | None],
    ledger: PackingLedger,
) -> Reading | None:
    zeros = next((last for last in _ZEROS if last in members), _ZEROS[0])
    floats = _floats(members.get(zeros))
    names, notes = ("qweight", "scales", zeros), {zeros: "zero points, one for each scale"}
    reading = reader.unpack(module, members, floats, ledger, names=names, notes=notes)
    form = reading.form if reading else settings.form
    needed = ["scales", zeros] if settings.zeros and form != MARLIN else ["scales"]
    note_lacking(members, "qweight", needed, ledger)
    return reading


def _floats(zeros: StoredTensor | None) -> bool | None:
    """Whether the zeros are floats, as in gemv_fast only; None if only an index names them."""
    if zeros is None or zeros.dtype is not None:
        return zeros is not None and (zeros.dtype or "").startswith(("F", "BF"))
    return None


def _others(members: Members, implied: Implied, ledger: PackingLedger) -> None:
    scales = members.get("scales")
    alone = members.keys().isdisjoint(_ZEROS)
    if alone and scales is not None and scales.shape is not None and len(scales.shape) == 1:
        if implied(scales.name) is None:
            ledger.note("scales of an activation, which the layer before it was scaled by", scales)
        return
    note_orphans(members, _PARTS, implied, ledger)


def _readings(
    settings: _Settings,
    parts: Parts,
    floats: bool | None,  # noqa: FBT001 - the zeros are
    _expected: Shape | None,
) -> Iterator[Reading]:
    """Yield a reading for each form and number of bits, the declared ones first."""
    first = settings.form or (GEMV_FAST if floats else GEMM)
    forms = sorted(_FORMS, key=lambda form: form != first)  # stable
    order = sorted(_BITS, key=lambda bits: bits != settings.bits)
    for form in forms:
        for bits in order:
            if form in {GEMV, GEMV_FAST} and bits != 4:  # noqa: PLR2004 - the kernels know no other
                continue
            reading = _READERS[form](parts, bits, settings.group)
            reading = reading.beside(_doubts(reading, settings))
            if floats is not None and floats != (form == GEMV_FAST):
                kind = "floats" if floats else "packed or not stored"
                misfit = ("qzeros", f"the zero points are {kind}, which is not {form}")
                reading = reading._replace(complaints=(*reading.complaints, misfit))
            yield reading


def _doubts(reading: Reading, settings: _Settings) -> dict[str, object]:
    doubts: dict[str, object] = {}
    if settings.bits not in {None, reading.bits}:
        doubts[f"{settings.where} declares {settings.bits} bits"] = reading.bits
    if settings.form not in {None, reading.form}:
        doubts[f"{settings.where} declares the version {settings.form}"] = reading.form
    return doubts


def _gemv(parts: Parts, bits: int, group: int | None) -> Reading:
    outputs, columns = parts.qweight
    inputs = columns * parts.word // bits
    size = _group(inputs, group)
    words = _words(inputs, size)
    misfits = (
        *shape_complaints("scales", parts.scales, (outputs, words * _PER_WORD)),
        *shape_complaints("qzeros", parts.zeros, (outputs, words)),
    )
    return Reading(GEMV, bits, (outputs, inputs), size, misfits)


def _gemv_fast(parts: Parts, bits: int, group: int | None) -> Reading:
    """Read gemv_fast: four outputs in a row, four numbers in an I16, in * 4 / 4 columns."""
    rows, inputs = parts.qweight
    outputs = rows * 4
    size = _group(inputs, group)
    padded = (_words(inputs, size) * _PER_WORD, outputs)
    misfits = [
        *shape_complaints("scales", parts.scales, padded),
        *shape_complaints("qzeros", parts.zeros, padded),
    ]
    if parts.word != 16:  # noqa: PLR2004 - I16
        misfits.append(("qweight", f"a word has {parts.word} bits, gemv_fast has 16"))
    return Reading(GEMV_FAST, bits, (outputs, inputs), size, tuple(misfits))


_READERS = {GEMM: columns_packed, GEMV: _gemv, GEMV_FAST: _gemv_fast, MARLIN: marlin}


def _group(inputs: int, group: int | None) -> int:
    """Return the group size; padded zeros do not show it, and 128 is usual."""
    size = 128 if group is None or group == 0 else group
    return inputs if size < 0 else min(size, inputs)


def _words(inputs: int, group: int) -> int:
    multiple = {64: 2, 32: 4}.get(group, 1)
    words = -(-(inputs // group) // _PER_WORD)
    return -(-words // multiple) * multiple


LAYOUT = Layout(name="awq", methods=("awq",), recognises=recognises, unpack=unpack, writes=writes)
