"""AQLM, https://arxiv.org/abs/2401.06118: a weight is a sum of vectors from codebooks.

`aqlm.QuantizedLinear` saves, for vectors of og outputs by ig inputs and K codebooks of B bits:

    X.codes      I8 where B <= 8, I16 where B <= 16, I32: (out / og, in / ig, K)
    X.codebooks  float (K, 2^B, og, ig)
    X.scales     float (out / og, 1, 1, 1)

Together they store `X.weight` (out, in) = (rows of codes * og, columns of codes * ig).
"""

from collections.abc import Collection
from typing import NamedTuple

from auditor.layouts._scheme import Scheme, skip_list_scheme
from auditor.layouts.declared import integer_setting
from auditor.layouts.engine import LayoutTable, Packing, any_module, constant_settings
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Members,
    PackingLedger,
    Shape,
    WrittenTensor,
)

_SIZES = range(1, 2**16 + 1)
_BITS = range(1, 65)
_MOST_BITS = 32  # possible bits of a code


class _Sizes(NamedTuple):
    """The declared sizes, which with the weight's shape imply all shapes; None if not declared."""

    num_codebooks: int | None = None
    nbits_per_codebook: int | None = None
    out_group_size: int | None = None
    in_group_size: int | None = None


def _settings(declared: Declared | None, ledger: PackingLedger) -> _Sizes:
    if declared is None:
        return _Sizes()
    allowed = {key: _BITS if key.startswith("nbits") else _SIZES for key in _Sizes._fields}
    return _Sizes(*(integer_setting(declared, *one, ledger) for one in allowed.items()))


def _by_shapes(
    parts: Members, declared: _Sizes, _expected: Shape | None
) -> list[Packing] | str | None:
    codes = parts["codes"].shape or ()
    if len(codes) != 3:  # noqa: PLR2004 - (out / og, in / ig, K)
        return "three axes"
    books = parts["codebooks"].shape if "codebooks" in parts else None
    stored = _Sizes()
    if books is not None and len(books) == 4:  # noqa: PLR2004 - (K, 2^B, og, ig)
        count, vectors, outputs, inputs = books
        stored = _Sizes(count, max(vectors.bit_length() - 1, 0), outputs, inputs)
    sizes = _Sizes(
        *((pair[1] if pair[0] is None else pair[0]) for pair in zip(stored, declared, strict=True))
    )
    if None in sizes:
        return "codebooks (K, 2^B, og, ig) beside it" if books else None
    shape = (codes[0] * (sizes.out_group_size or 0), codes[1] * (sizes.in_group_size or 0))
    packing = _linear(parts, sizes, shape)
    if packing is None:
        return f"codes of at most {_MOST_BITS} bits"
    # Loading builds the modules from the config and refuses stored tensors of other sizes.
    doubts = tuple(
        f"codebooks is {books}, which is a {key} of {value}; the config declares {other}"
        for key, value, other in zip(_Sizes._fields, stored, declared, strict=True)
        if other is not None and value not in {None, other}
    )
    return [Packing(shape=shape, dtype="AQLM", tensors=packing.tensors, doubts=doubts)]


def _linear(_parts: Members, sizes: _Sizes, shape: Shape) -> Packing | None:
    count, bits, outputs, inputs = sizes
    if len(shape) != 2 or None in sizes or not outputs or not inputs:  # noqa: PLR2004 - (out, in)
        return None
    if count is None or bits is None or bits > _MOST_BITS:
        return None
    rows, columns = shape[0] // outputs, shape[1] // inputs
    widths = tuple(f"I{width}" for width in (8, 16, 32) if bits <= width)
    tensors = {
        "codes": WrittenTensor((rows, columns, count), widths),
        "codebooks": WrittenTensor((count, 2**bits, outputs, inputs), FLOATS),
        "scales": WrittenTensor((rows, 1, 1, 1), FLOATS),
    }
    return Packing(shape=shape, dtype="AQLM", tensors=tensors)


def _title(declared: Declared | None, _packings: Collection[Packing]) -> str:
    sizes = _settings(declared, PackingLedger())
    if sizes.num_codebooks and sizes.nbits_per_codebook:
        return f"aqlm, {sizes.num_codebooks}x{sizes.nbits_per_codebook} bits"
    return "aqlm"


def _scheme(declared: Declared, names: Collection[str], *_: object) -> Scheme:
    """Return the scheme that the config's list of plain modules implies.

    Without a list every linear is packed, including the output layer. The entries are names of
    modules, and before transformers 5 they were names of weights.
    """
    scheme = skip_list_scheme("linear_weights_not_to_quantize", declared, names, whole_layers=True)
    return scheme._replace(named=scheme.packs(("lm_head",)))


LAYOUT = LayoutTable[_Sizes](
    name="aqlm",
    recognises=any_module(lambda parts: "codes" in parts and "codebooks" in parts),
    packed="codes",
    dtypes=frozenset({"I8", "I16", "I32"}),
    dtype="AQLM",
    companions={
        "codebooks": "codebooks, the vectors that codes stand for",
        "scales": "scales, one for each row of codes",
    },
    needed=lambda *_: ["codebooks", "scales"],
    settings=constant_settings(_settings),
    by_shapes=_by_shapes,
    by_config=_linear,
    title=_title,
    scheme=_scheme,
).layout()
