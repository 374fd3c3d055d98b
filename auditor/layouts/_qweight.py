"""Modules that store `qweight`, `scales` and `qzeros`, as GPTQ and AWQ do.

Both pack several small integers into a word (usually I32) and give each group of inputs a scale and
a zero point. A form (GPTQ, GEMM, GEMV, Marlin) is the side of the matrix that is packed and the
order of the sides; the stored shapes show it. The docstrings of gptq and awq have the arithmetic.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from auditor.layouts.engine import Packing
from auditor.layouts.packing import FLOATS, Members, Shape, Stored, WrittenTensor
from auditor.tensors import DTYPE_BITS

GPTQ, MARLIN = "gptq", "marlin"
GEMM, GEMV, GEMV_FAST = "gemm", "gemv", "gemv_fast"

GROUPS = range(-1, 2**31)  # inputs in a group; -1 means all inputs
WORDS = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32"})
QWEIGHT = {
    "scales": "scales, one for each group of inputs of an output",
    "qzeros": "zero points, one for each scale",
}
_TILE = 16  # rows of inputs that Marlin stores in one row of words
_MARLIN_BITS = (4, 8)
_PER_WORD = 8  # zero points in a word of AWQ, whatever the bits: its kernels read only 4 bits
_PARTS = ("qweight", "scales", "qzeros")

_BITS_OF_FORM = {MARLIN: _MARLIN_BITS, GEMV: (4,), GEMV_FAST: (4,)}  # that the kernels support


class QweightSettings(NamedTuple):
    """The settings that a config states for a module; None for one that it does not state."""

    form: str | None = None
    bits: int | None = None
    group: int | None = None  # -1: all inputs together; None: only the scales show it
    where: str = ""
    form_source: str = ""  # the form in words of the config: "version of ... is gemv"
    word: int | None = 32  # bits of an element of qweight
    act_order: bool = False
    has_zeros: bool = True


class PackedLinear(NamedTuple):
    """The sizes of a linear layer, and how its weight is packed into words."""

    outputs: int
    inputs: int
    bits: int
    group: int
    groups: int  # of the zero points
    word: int = 32  # bits of an element of qweight

    def words(self, numbers: int) -> int:
        """Return the number of words that pack `numbers` values."""
        return -(-numbers * self.bits // self.word)


# --- the tensors of each form ---------------------------------------------------------------------


def _gptq(linear: PackedLinear) -> dict[str, WrittenTensor]:
    """Return GPTQ's tensors: weights are packed along inputs, zero points along outputs."""
    word = (f"I{linear.word}",)
    return {
        "qweight": WrittenTensor((linear.words(linear.inputs), linear.outputs), word),
        "qzeros": WrittenTensor((linear.groups, linear.words(linear.outputs)), word),
        "scales": _grouped_scales(linear),
        "g_idx": WrittenTensor((linear.inputs,), ("I32",)),
    }


def _gemm(linear: PackedLinear) -> dict[str, WrittenTensor]:
    """Return the tensors of AWQ's gemm form: weights are packed along outputs."""
    word, width = (f"I{linear.word}",), linear.words(linear.outputs)
    return {
        "qweight": WrittenTensor((linear.inputs, width), word),
        "qzeros": WrittenTensor((linear.groups, width), word),
        "scales": _grouped_scales(linear),
    }


def _marlin(linear: PackedLinear) -> dict[str, WrittenTensor]:
    """Return Marlin's tensors: a row of words packs 16 inputs.

    Zero points and g_idx may be empty.
    """
    word, tiles = (f"I{linear.word}",), linear.outputs * _TILE * linear.bits // linear.word
    empty: tuple[Shape, ...] = ((0,),)
    return {
        "qweight": WrittenTensor((linear.inputs // _TILE, tiles), word),
        "scales": _grouped_scales(linear),
        "qzeros": WrittenTensor((linear.groups, linear.words(linear.outputs)), word, others=empty),
        "g_idx": WrittenTensor((linear.inputs,), ("I32",), others=empty),
    }


def _gemv(linear: PackedLinear) -> dict[str, WrittenTensor]:
    """Return the tensors of AWQ's gemv form: (outputs, packed inputs), with padded zero points."""
    words, word = _padded_words(linear), (f"I{linear.word}",)
    return {
        "qweight": WrittenTensor((linear.outputs, linear.words(linear.inputs)), word),
        "qzeros": WrittenTensor((linear.outputs, words), word),
        "scales": WrittenTensor((linear.outputs, words * _PER_WORD), FLOATS),
    }


def _gemv_fast(linear: PackedLinear) -> dict[str, WrittenTensor]:
    """Return the tensors of gemv_fast: a row packs four outputs, an I16 four numbers.

    Zero points are floats.
    """
    padded = WrittenTensor((_padded_words(linear) * _PER_WORD, linear.outputs), FLOATS)
    qweight = WrittenTensor((linear.outputs // 4, linear.inputs), ("I16",))
    return {"qweight": qweight, "scales": padded, "qzeros": padded}


def _grouped_scales(linear: PackedLinear) -> WrittenTensor:
    return WrittenTensor((-(-linear.inputs // linear.group), linear.outputs), FLOATS)


def _padded_words(linear: PackedLinear) -> int:
    multiple = {64: 2, 32: 4}.get(linear.group, 1)
    words = -(-(linear.inputs // linear.group) // _PER_WORD)
    return -(-words // multiple) * multiple


_TENSORS: Mapping[str, Callable[[PackedLinear], dict[str, WrittenTensor]]] = {
    GPTQ: _gptq,
    GEMM: _gemm,
    GEMV: _gemv,
    GEMV_FAST: _gemv_fast,
    MARLIN: _marlin,
}


# --- packings by stored shapes and by the config --------------------------------------------------


def packing_of_shapes(
    form: str, parts: Members, bits: int, group: int | None, expected: Shape | None
) -> Packing:
    """Return the packing that a module's shapes show in this form.

    If `group` is None, it is computed from the number of groups; in the gemv forms it is 128.
    """
    rows, columns = parts["qweight"].shape or (0, 0)
    word = DTYPE_BITS[parts["qweight"].dtype or "I32"]
    scales, zeros = _matrix(parts, "scales"), _matrix(parts, "qzeros")
    groups = (scales or (0,))[0]
    match form:
        case "gptq":
            outputs, inputs = columns, _inputs(parts, bits, word, expected)
        case "gemm":
            outputs, inputs = columns * word // bits, rows
        case "gemv":
            outputs, inputs = rows, columns * word // bits
        case "gemv_fast":
            outputs, inputs = rows * 4, columns
        case _:
            outputs, inputs = columns * word // (_TILE * bits), rows * _TILE
    if form in {GEMV, GEMV_FAST}:
        group = group or 128  # padded scales do not show the group; 128 is usual
    elif group is None and (shown := groups or (zeros or (0,))[0]):
        group = -(-inputs // shown)
    return _packing(form, (outputs, inputs), bits, group, word, groups)


def packing_of_config(
    form: str, shape: Shape, bits: int | None, group: int | None, word: int = 32
) -> Packing | None:
    """Return the packing that a config's bits and group imply for a weight of this shape.

    Return None if bits or group is None, or if the weight is not a matrix or is empty.
    """
    if len(shape) != 2 or 0 in shape or bits is None or group is None:  # noqa: PLR2004 - a matrix
        return None
    return _packing(form, (shape[0], shape[1]), bits, group, word, 0)


def _packing(  # noqa: PLR0913, PLR0917 - the sizes of one linear
    form: str,
    shape: tuple[int, int],
    bits: int,
    group: int | None,
    word: int,
    groups: int,
) -> Packing:
    outputs, inputs = shape
    size = max(inputs if group is None or group < 1 else min(group, inputs), 1)
    zeros = groups if groups and form in {GPTQ, GEMM} else -(-inputs // size)
    linear = PackedLinear(outputs, inputs, bits, size, zeros, word)
    return Packing(
        shape=shape,
        dtype=f"INT{bits}",
        tensors=_TENSORS[form](linear),
        words=f"{form} in {bits} bits and groups of {size:,}",
        form=form,
        bits=bits,
        group=size,
    )


def _inputs(parts: Members, bits: int, word: int, expected: Shape | None) -> int:
    """Return the number of inputs of a GPTQ module, whose last word may be incomplete.

    The number is rows * word / bits, or less if g_idx or the architecture shows fewer.
    """
    rows = (parts["qweight"].shape or (0,))[0]
    g_idx = parts["g_idx"].shape if "g_idx" in parts else None
    candidates = [shape[-1] for shape in (g_idx, expected) if shape]
    fitting = (inputs for inputs in candidates if -(-inputs * bits // word) == rows)
    return next(fitting, rows * word // bits)


def readings(
    parts: Members,
    settings: QweightSettings,
    expected: Shape | None,
    *,
    forms: Iterable[str],
    bits: Iterable[int],
) -> list[Packing] | str:
    """Return the possible packings, one for each form and number of bits, the declared one first.

    `forms` and `bits` are ordered by likeliness: the order decides if shapes fit several.
    """
    shape = _matrix(parts, "qweight")
    if shape is None or 0 in shape:
        return "a matrix of integers"
    packings = []
    for form in sorted(forms, key=lambda form: form != settings.form):  # stable
        for width in sorted(bits, key=lambda width: width != settings.bits):
            if width not in _BITS_OF_FORM.get(form, (width,)):
                continue
            doubts = []
            if settings.bits not in {None, width}:
                doubts.append(f"bits of {settings.where} is {settings.bits}, stored are {width}")
            if settings.form not in {None, form}:
                doubts.append(f"{settings.form_source}, stored is {form}")
            packing = packing_of_shapes(form, parts, width, settings.group, expected)
            packings.append(replace(packing, doubts=tuple(doubts)))
    return packings


def _matrix(parts: Members, last: str) -> tuple[int, int] | None:
    tensor = parts.get(last)
    if tensor is None or tensor.shape is None or len(tensor.shape) != 2:  # noqa: PLR2004 - a matrix
        return None
    return tensor.shape[0], tensor.shape[1]


# --- marks and titles -----------------------------------------------------------------------------


def any_qweight(
    forms: Collection[str], gemm: Collection[int] = (4, 8, 2, 3), *, g_idx: bool = True
) -> Callable[[Stored], bool]:
    """Return a function that checks whether any module stores a qweight in one of the forms.

    Modules without headers count only if no module has all headers. `gemm` are the possible bits
    of the form GEMM; `g_idx` tells whether a module may store a g_idx.
    """

    def is_packed(parts: Members) -> bool:
        if "g_idx" in parts and not g_idx:
            return False
        if _lacks_headers(parts):
            return "scales" in parts
        return qweight_form(parts, gemm) in forms

    def recognises(stored: Stored) -> bool:
        packed = [parts for parts in stored.modules.values() if "qweight" in parts]
        return any(map(is_packed, [one for one in packed if not _lacks_headers(one)] or packed))

    return recognises


def _lacks_headers(parts: Members) -> bool:
    """Whether only an index names a tensor whose shape is needed to find the module's form."""
    stored = (parts.get(last) for last in (*_PARTS, "scaled_zeros"))
    return any(one is not None and one.shape is None for one in stored)


def qweight_form(parts: Members, gemm: Collection[int] = (4, 8, 2, 3)) -> str | None:
    """Return the form that a module's shapes show; None if they fit no form or are not all known.

    For qweight (rows, columns) and scales (r, c): GPTQ has columns = c and packs the rows; GEMM has
    columns * 32/bits = c; GEMV has rows = r, as qzeros have; GEMV_FAST stores float zeros. A row of
    Marlin's words packs 16 rows: columns = 16 * bits/32 * c. `gemm` are the bits of the form GEMM.
    """
    stored_zeros = parts.get("qzeros", parts.get("scaled_zeros"))
    if stored_zeros is not None and (stored_zeros.dtype or "").startswith(("F", "BF")):
        return GEMV_FAST
    if "g_idx" in parts:
        return GPTQ
    qweight, scales, zeros = (_matrix(parts, part) for part in _PARTS)
    if qweight is None or scales is None:
        return None
    words, width = qweight[1] * 32, scales[1]
    # As GPTQ these shapes would mean groups of eight inputs, which no known writer uses.
    by_outputs = zeros is not None and qweight[0] == scales[0] == zeros[0]
    tests = (
        (GEMV, by_outputs and zeros is not None and zeros[1] * 8 == width),
        (GPTQ, qweight[1] == width),
        (GEMM, any(words == width * bits for bits in gemm)),
        (MARLIN, any(words == width * _TILE * bits for bits in _MARLIN_BITS)),
    )
    return next((form for form, fits in tests if fits), None)


def title_of(name: str, packings: Iterable[Packing], group: object = None) -> str:
    """Return the name with the bits and group sizes of all modules.

    A group of -1 means all inputs.
    """
    known_packings = list(packings)
    if not known_packings:
        return name
    bits = "/".join(map(str, sorted({one.bits for one in known_packings})))
    sizes = "/".join(map(str, sorted({one.group for one in known_packings})[:3]))
    groups = "one group" if group == -1 else f"groups of {sizes}"
    return ", ".join((name, f"{bits} bits", groups))


def title_with_forms(name: str, packings: Collection[Packing]) -> str:
    """Return the name with the forms, the bits and the group sizes of all modules."""
    return title_of(" ".join((name, *sorted({one.form for one in packings}))), packings)


def stated_group(packing: Packing) -> int:
    """Return the group size that a config states, which is -1 if all inputs are one group."""
    return -1 if packing.group == packing.shape[-1] else packing.group
