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

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from auditor.layouts._qweight import (
    GEMM,
    GEMV,
    GEMV_FAST,
    GROUPS,
    MARLIN,
    QWEIGHT,
    WORDS,
    any_qweight,
    packing_of_config,
    packing_of_shapes,
    readings_of_matrix,
    title_with_forms,
)
from auditor.layouts._scheme import skip_list_scheme
from auditor.layouts.declared import integer_setting
from auditor.layouts.engine import Bundle, LayoutTable, Packing, constant_settings
from auditor.layouts.packing import (
    Declared,
    Members,
    PackingLedger,
    Shape,
    Stored,
    tensor_name,
)

_BITS = (4, 8, 2, 3)
_FORMS = (GEMM, GEMV, GEMV_FAST, MARLIN)
_OTHER_WORDS = {"llm-awq": GEMV_FAST, "gemvfast": GEMV_FAST}  # other names of a form
_DIVISORS = "divisors"  # the divisors of an activation
_COMPANIONS = {
    **QWEIGHT,
    _DIVISORS: "scales of an activation, which the layer before it was scaled by",
}


class _Settings(NamedTuple):
    form: str | None = None
    bits: int | None = None
    group: int | None = None  # -1: all inputs together; None: only the scales show it
    zeros: bool = True
    where: str = ""


def _settings(declared: Declared | None, ledger: PackingLedger) -> _Settings:
    if declared is None:
        return _Settings()
    values = declared.settings
    version = values.get("version", values.get("format", values.get("checkpoint_format")))
    word = version.lower() if isinstance(version, str) else ""
    form = _OTHER_WORDS.get(word, word)
    bits, size = ("w_bit", "q_group_size") if "w_bit" in values else ("bits", "group_size")
    return _Settings(
        form=form if form in _FORMS else None,
        bits=integer_setting(declared, bits, _BITS, ledger),
        group=integer_setting(declared, size, GROUPS, ledger),
        zeros=values.get("zero_point") is not False,
        where=declared.where,
    )


def _bundles(stored: Stored, *_: object) -> Iterator[Bundle]:
    """Yield packed modules, and companions without a packed tensor, under the table's names."""
    for module, members in stored.modules.items():
        parts = {one: members[one] for one in ("qweight", "scales", "qzeros") if one in members}
        if "qzeros" not in parts and "scaled_zeros" in members:
            parts["qzeros"] = members["scaled_zeros"]
        scales = parts.get("scales")
        if parts.keys() == {"scales"} and scales and len(scales.shape or ()) == 1:
            parts = {_DIVISORS: scales}
        if parts:
            yield Bundle(module, tensor_name(module), parts)


def _needed(_parts: Members, settings: _Settings, packing: Packing | None) -> list[str]:
    form = packing.form if packing else settings.form
    return ["scales", "qzeros"] if settings.zeros and form != MARLIN else ["scales"]


def _readings(parts: Members, settings: _Settings, expected: Shape | None) -> Iterator[Packing]:
    """Yield the possible packings, one for each form and number of bits, the declared one first."""
    zeros = parts.get("qzeros")
    has_floats = zeros is not None and (zeros.dtype or "").startswith(("F", "BF"))
    first = settings.form or (GEMV_FAST if has_floats else GEMM)
    for form in sorted(_FORMS, key=lambda form: form != first):  # stable
        for bits in sorted(_BITS, key=lambda bits: bits != settings.bits):
            if form in {GEMV, GEMV_FAST} and bits != 4:  # noqa: PLR2004 - the kernels support only 4 bits
                continue
            doubts = []
            if settings.bits not in {None, bits}:
                doubts.append(f"bits of {settings.where} is {settings.bits}, stored are {bits}")
            if settings.form not in {None, form}:
                observed = f"version of {settings.where} is {settings.form}"
                doubts.append(f"{observed}, stored is {form}")
            packing = packing_of_shapes(form, parts, bits, settings.group, expected)
            yield replace(packing, doubts=tuple(doubts))


LAYOUT = LayoutTable[_Settings](
    name="awq",
    methods=("awq",),
    recognises=any_qweight(_FORMS, g_idx=False),
    packed="qweight",
    dtypes=WORDS,
    dtype="INT4",
    companions=_COMPANIONS,
    needed=_needed,
    settings=constant_settings(_settings),
    by_shapes=readings_of_matrix(_readings),
    by_config=lambda _, settings, shape: packing_of_config(
        settings.form or GEMM, shape, settings.bits, settings.group
    ),
    title=lambda _, packings: title_with_forms("awq", packings),
    scheme=partial(skip_list_scheme, "modules_to_not_convert"),
    bundles=_bundles,
    may_be_alone={_DIVISORS: None},
).layout()
