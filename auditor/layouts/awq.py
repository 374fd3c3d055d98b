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

from auditor.layouts._qweight import (
    GEMM,
    GEMV,
    GEMV_FAST,
    GROUPS,
    MARLIN,
    QWEIGHT,
    WORDS,
    QweightSettings,
    any_qweight,
    packing_of_config,
    readings,
    stated_group,
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
    StatedSettings,
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


def _settings(declared: Declared | None, ledger: PackingLedger) -> QweightSettings:
    if declared is None:
        return QweightSettings()
    values = declared.settings
    version = values.get("version", values.get("format", values.get("checkpoint_format")))
    word = version.lower() if isinstance(version, str) else ""
    form = _OTHER_WORDS.get(word, word)
    bits, size = ("w_bit", "q_group_size") if "w_bit" in values else ("bits", "group_size")
    return QweightSettings(
        form=form if form in _FORMS else None,
        bits=integer_setting(declared, bits, _BITS, ledger),
        group=integer_setting(declared, size, GROUPS, ledger),
        where=declared.where,
        form_source=f"version of {declared.where} is {form}",
        has_zeros=values.get("zero_point") is not False,
    )


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    """Yield packed modules, and companions without a packed tensor, under the table's names."""
    for module, members in stored.modules.items():
        parts = {one: members[one] for one in ("qweight", "scales", "qzeros") if one in members}
        if "qzeros" not in parts and "scaled_zeros" in members:
            parts["qzeros"] = members["scaled_zeros"]
        scales = parts.get("scales")
        if parts.keys() == {"scales"} and scales and len(scales.shape or (0,)) == 1:
            parts = {_DIVISORS: scales}
        if parts:
            yield Bundle(module, tensor_name(module), parts)


def _needed(_parts: Members, settings: QweightSettings, packing: Packing | None) -> list[str]:
    form = packing.form if packing else settings.form
    return ["scales", "qzeros"] if settings.has_zeros and form != MARLIN else ["scales"]


def _by_shapes(
    parts: Members, settings: QweightSettings, expected: Shape | None
) -> list[Packing] | str:
    zeros = parts.get("qzeros")
    has_floats = zeros is not None and (zeros.dtype or "").startswith(("F", "BF"))
    forms = sorted(_FORMS, key=lambda form: (form == GEMV_FAST) != has_floats)  # stable
    return readings(parts, settings, expected, forms=forms, bits=_BITS)


def _stated(parts: Members, packing: Packing) -> StatedSettings | None:
    if packing.form != GEMM:
        return None
    sizes = {"bits": packing.bits, "group_size": stated_group(packing)}
    return {"quant_method": "awq", **sizes, "zero_point": "qzeros" in parts, "version": "gemm"}


LAYOUT = LayoutTable[QweightSettings](
    name="awq",
    recognises=any_qweight(_FORMS, g_idx=False),
    packed="qweight",
    dtypes=WORDS,
    dtype="INT4",
    companions=_COMPANIONS,
    needed=_needed,
    settings=constant_settings(_settings),
    by_shapes=_by_shapes,
    stated=_stated,
    by_config=lambda _, settings, shape: packing_of_config(
        settings.form or GEMM, shape, settings.bits, settings.group
    ),
    title=lambda _, packings: title_with_forms("awq", packings),
    scheme=partial(skip_list_scheme, "modules_to_not_convert"),
    bundles=_bundles,
    may_be_alone={_DIVISORS: None},
).layout()
