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

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from auditor.layouts._qweight import (
    GEMM,
    GPTQ,
    QWEIGHT,
    WORDS,
    any_qweight,
    packing_of_config,
    packing_of_shapes,
    require_matrix,
    title_of,
    with_forms,
)
from auditor.layouts.auto_round.settings import (
    BITS,
    AutoRoundScheme,
    read_auto_round_schemes,
    scheme_of_names,
    unread,
)
from auditor.layouts.engine import Packing, Table
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Members,
    Shape,
    WrittenTensor,
)

_COMPANIONS = {
    **QWEIGHT,
    "g_idx": "g_idx, the group of each input",
    "act_scales": "scale of the activations",
    "w_bf16_to_fp8_scale": "scale of the weight as fp8",
}


def _by_shapes(
    parts: Members, scheme: AutoRoundScheme, expected: Shape | None
) -> Iterator[Packing] | str:
    return require_matrix(parts) or _readings(parts, scheme, expected)


def _readings(parts: Members, scheme: AutoRoundScheme, expected: Shape | None) -> Iterator[Packing]:
    """Yield a reading for each form and number of bits, the declared ones first."""
    for form in (GEMM, GPTQ) if scheme.form == GEMM else (GPTQ, GEMM):
        for bits in sorted(BITS, key=lambda bits: bits != scheme.bits):  # stable
            doubts = []
            if scheme.bits in BITS and scheme.bits != bits:
                doubts.append(f"bits of {scheme.where} is {scheme.bits}, stored are {bits}")
            if scheme.form not in {None, form}:
                doubts.append(f"{scheme.form_source}, stored is {form}")
            one = packing_of_shapes(form, parts, bits, scheme.group, expected)
            tensors = {**one.tensors, "act_scales": WrittenTensor((1,), FLOATS, others=((),))}
            yield replace(one, tensors=tensors, doubts=tuple(doubts))


def _by_config(_parts: Members, scheme: AutoRoundScheme, shape: Shape) -> Packing | None:
    bits = scheme.bits if scheme.bits in BITS else None
    form = GEMM if scheme.form == GEMM else GPTQ
    return packing_of_config(form, shape, bits, scheme.group)


def _title(_declared: Declared | None, packings: Collection[Packing]) -> str:
    return title_of(with_forms("auto-round", packings), packings)


LAYOUT = Table[AutoRoundScheme](
    name="auto-round",
    methods=("auto-round", "intel/auto-round"),
    recognises=any_qweight((GPTQ, GEMM), BITS),
    packed="qweight",
    dtypes=WORDS,
    dtype="INT4",
    companions=_COMPANIONS,
    needed=lambda *_: ["scales", "qzeros"],
    settings=read_auto_round_schemes,
    by_shapes=_by_shapes,
    by_config=_by_config,
    title=_title,
    scheme=scheme_of_names,
    conv1d=True,
    unread=unread,
).layout()
