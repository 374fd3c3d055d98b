"""Modules of `qweight`, `scales` and `qzeros`, which GPTQ and AWQ share and shapes distinguish.

Both pack several small integers into a word (usually I32) and give each group of inputs a scale and
a zero point. The form says which side of the matrix is packed and which side comes first.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from auditor.layouts.packing import (
    FLOATS,
    Implied,
    Members,
    Shape,
    WrittenTensor,
    tensor_name,
)
from auditor.tensors import DTYPE_BITS

GPTQ, MARLIN = "gptq", "marlin"
GEMM, GEMV, GEMV_FAST = "gemm", "gemv", "gemv_fast"

TILE = 16  # rows of inputs that Marlin keeps in one row of words
_MARLIN_BITS = (4, 8)
_WORDS = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32"})
# Linears of GPT-2 and similar models, which a plain checkpoint stores as (in, out).
CONV1D = frozenset({"c_attn", "c_fc", "c_proj", "q_attn"})


class Parts(NamedTuple):
    """The shapes in one module; None if a tensor is not stored or only an index names it."""

    qweight: tuple[int, int]
    word: int  # bits of an element of qweight
    scales: Shape | None
    zeros: Shape | None
    g_idx: Shape | None


class Reading(NamedTuple):
    """The content of a module if it is packed in one form with one number of bits."""

    form: str
    bits: int
    shape: Shape  # (out, in)
    group: int  # inputs that share a scale
    complaints: tuple[tuple[str, str], ...]  # the last part of a member's name, and the misfit

    def beside(self, declared: Mapping[str, object]) -> "Reading":
        """Add a complaint for each declaration that the shapes contradict."""
        doubts = (
            ("qweight", f"{declares}, the shapes are those of {shown}")
            for declares, shown in declared.items()
        )
        return self._replace(complaints=(*self.complaints, *doubts))


def lacks_headers(members: Members) -> bool:
    """Whether only an index names some of the tensors whose shapes show a module's form."""
    members_of_form = (members.get(last) for last in (*_THREE, "scaled_zeros"))
    return any(one is not None and one.shape is None for one in members_of_form)


def qweight_form(members: Members, gemm: Collection[int] = (4, 8, 2, 3)) -> str | None:
    """Return the form that the shapes of a module show; None if they show none, or too little.

    (rows, columns) of qweight, (r, c) of scales: GPTQ has columns = c and packs the rows; GEMM has
    columns * 32/bits = c; GEMV has rows = r, as qzeros have, and GEMV_FAST zeros that are floats.
    A word of Marlin holds parts of 16 rows: columns = 16 * bits/32 * c. `gemm`: bits of that form.
    """
    stored_zeros = members.get("qzeros", members.get("scaled_zeros"))
    if stored_zeros is not None and (stored_zeros.dtype or "").startswith(("F", "BF")):
        return GEMV_FAST
    if "g_idx" in members:
        return GPTQ
    qweight, scales, zeros = (_rows_columns(members, part) for part in _THREE)
    if qweight is None or scales is None:
        return None
    words, width = qweight[1] * 32, scales[1]
    # As GPTQ the first would be groups of eight inputs, which no known writer makes.
    by_outputs = zeros is not None and qweight[0] == scales[0] == zeros[0]
    tests = (
        (GEMV, by_outputs and zeros is not None and zeros[1] * 8 == width),
        (GPTQ, qweight[1] == width),
        (GEMM, any(words == width * bits for bits in gemm)),
        (MARLIN, any(words == width * TILE * bits for bits in _MARLIN_BITS)),
    )
    return next((form for form, fits in tests if fits), None)


_THREE = ("qweight", "scales", "qzeros")


def _rows_columns(members: Members, part: str) -> tuple[int, int] | None:
    tensor = members.get(part)
    if tensor is None or tensor.shape is None or len(tensor.shape) != 2:  # noqa: PLR2004 - a matrix
        return None
    return tensor.shape[0], tensor.shape[1]


def parts_of(members: Members, weight: str, scales: str, zeros: str) -> Parts | str | None:
    """Return the shapes; None if only an index names qweight, a text if it cannot be packed."""
    packed = members[weight]
    if packed.shape is None:
        return None
    shape = _rows_columns(members, weight)
    if shape is None or 0 in shape or packed.dtype not in _WORDS:
        return f"{weight} is {packed.dtype} {packed.shape}; a matrix of integers is needed"
    word = DTYPE_BITS[packed.dtype]
    return Parts(shape, word, *(_shape(members, part) for part in (scales, zeros, "g_idx")))


def _shape(members: Members, part: str) -> Shape | None:
    return members[part].shape if part in members else None


def best_reading(readings: Iterable[Reading], expected: Shape | None) -> Reading:
    """Return the reading with the fewest complaints; a shape that is not `expected` is one."""
    return min(readings, key=lambda one: len(one.complaints) + _is_strange(one.shape, expected))


def _is_strange(shape: Shape, expected: Shape | None) -> bool:
    return expected is not None and expected not in {shape, shape[::-1]}


def rows_packed(parts: Parts, bits: int, group: int | None, expected: Shape | None) -> Reading:
    """GPTQ's (in * bits/word, out), scales (groups, out), zeros (groups, out * bits/word)."""
    rows, outputs = parts.qweight
    inputs = _inputs(parts, bits, expected)
    size, complaints = checked_group_size(parts.scales, "scales", (outputs, inputs), group)
    misfits = list(complaints)
    if parts.g_idx not in {None, (inputs,)}:
        holds = f"qweight {parts.qweight} holds {parts.word}/{bits} * {rows:,} = {inputs:,} inputs"
        misfits.append(("g_idx", f"g_idx is {parts.g_idx}, {holds}"))
    zeros = (_groups(parts, inputs, size, group), -(-outputs * bits // parts.word))
    if parts.zeros not in {None, zeros}:
        words = f"{outputs:,} outputs * {bits}/{parts.word} in {zeros[0]:,} groups are {zeros}"
        misfits.append(("qzeros", f"qzeros are {parts.zeros}, {words}"))
    return Reading(GPTQ, bits, (outputs, inputs), size, tuple(misfits))


def _groups(parts: Parts, inputs: int, size: int, group: int | None) -> int:
    """The number of groups: that of the scales; without their shape, that of the config."""
    if parts.scales:
        return parts.scales[0]
    return parts.zeros[0] if group is None and parts.zeros else -(-inputs // size)


def _inputs(parts: Parts, bits: int, expected: Shape | None) -> int:
    """The number of inputs: rows * word / bits, or as g_idx or the architecture limits it."""
    rows = parts.qweight[0]
    candidates = [shape[-1] for shape in (parts.g_idx, expected) if shape]
    fit = (inputs for inputs in candidates if -(-inputs * bits // parts.word) == rows)
    return next(fit, rows * parts.word // bits)


def columns_packed(parts: Parts, bits: int, group: int | None) -> Reading:
    """GEMM's (in, out * bits/word), scales (groups, out), zeros (groups, out * bits/word)."""
    inputs, columns = parts.qweight
    shape = (columns * parts.word // bits, inputs)
    size, complaints = checked_group_size(parts.scales, "scales", shape, group)
    zeros = (_groups(parts, inputs, size, group), columns)
    return Reading(
        GEMM, bits, shape, size, (*complaints, *shape_complaints("qzeros", parts.zeros, zeros))
    )


def shape_complaints(last: str, shape: Shape | None, needed: Shape) -> tuple[tuple[str, str], ...]:
    return () if shape in {None, needed} else ((last, f"{last} are {shape}, not {needed}"),)


def marlin(parts: Parts, bits: int, group: int | None) -> Reading:
    """(in / 16, out * 16 * bits/word), and scales (groups, out); zeros, if any, may be empty."""
    rows, columns = parts.qweight
    inputs, outputs = rows * TILE, columns * parts.word // (TILE * bits)
    size, complaints = checked_group_size(parts.scales, "scales", (outputs, inputs), group)
    if columns * parts.word % (TILE * bits):
        tiles = f"{columns:,} words do not hold a whole number of {TILE} * {bits} bits"
        complaints = (*complaints, ("qweight", f"qweight is {parts.qweight}: {tiles}"))
    zeros = (-(-inputs // size), outputs * bits // parts.word)
    beside = (("qzeros", parts.zeros, zeros), ("g_idx", parts.g_idx, (inputs,)))
    misfits = (
        (last, f"{last} are {shape}, {full} or none at all are needed")
        for last, shape, full in beside
        if shape not in {None, (0,), full}
    )
    return Reading(MARLIN, bits, (outputs, inputs), size, (*complaints, *misfits))


def checked_group_size(
    scales: Shape | None, last: str, shape: tuple[int, int], group: int | None
) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Return the group size, and the misfits of scales (groups, out) with `shape`, (out, in).

    `group` is the declared size, -1 for all inputs together, None if only the scales show it. Each
    side has its own complaint, because `best_reading` counts them.
    """
    outputs, inputs = shape
    declared = inputs if group is None or group < 1 or group > inputs else group
    if scales is None:
        return declared, ()
    if len(scales) != 2 or 0 in scales:  # noqa: PLR2004 - a matrix
        return declared, ((last, f"{last} are {scales}, (groups, {outputs:,}) is needed"),)
    misfits = []
    if scales[1] != outputs:
        misfits.append(f"{last} {scales} are for {scales[1]:,} outputs, qweight has {outputs:,}")
    if group is None:
        declared = -(-inputs // scales[0])
    groups = -(-inputs // declared)
    if groups != scales[0]:
        size = f"{inputs:,} inputs in groups of {declared:,} are {groups:,}"
        misfits.append(f"{last} {scales} are for {scales[0]:,} groups, {size}")
    return declared, tuple((last, reason) for reason in misfits)


_MATRIX = 2
_HALVES = ("F16", "BF16")


# --- the inverse: what each form of GPTQ and AWQ stores for a module ------------------------------
#
# For a linear (out, in) in b bits and groups of g inputs; see the docstrings of gptq and awq.


class PackedLinear(NamedTuple):
    """A linear and the packing of its numbers."""

    outputs: int
    inputs: int
    bits: int
    group: int
    word: int = 32  # bits of an element of qweight

    @property
    def groups(self) -> int:
        return -(-self.inputs // self.group)


def packed_linear(
    module: str, implied: Implied, bits: int | None, group: int | None, word: int = 32
) -> PackedLinear | None:
    """Return the architecture's linear; None without a matrix there, or without settings.

    `group` is -1 if all inputs form one group.
    """
    shape = implied(tensor_name(module))
    if shape is None or len(shape) != _MATRIX or 0 in shape or bits is None or group is None:
        return None
    outputs, inputs = shape[::-1] if module.rpartition(".")[2] in CONV1D else shape
    return PackedLinear(outputs, inputs, bits, inputs if group < 1 else min(group, inputs), word)


def under_full_names(
    module: str, members: Members, parts: Mapping[str, WrittenTensor]
) -> dict[str, WrittenTensor]:
    """The parts that the module has, by their full names."""
    return {tensor_name(module, last): one for last, one in parts.items() if last in members}


def gptq_tensors(one: PackedLinear) -> dict[str, WrittenTensor]:
    """The tensors of GPTQ, which packs the inputs, and the zero points along the outputs."""
    word = (f"I{one.word}",)
    return {
        "qweight": WrittenTensor((_words(one.inputs, one), one.outputs), word),
        "qzeros": WrittenTensor((one.groups, _words(one.outputs, one)), word),
        "scales": WrittenTensor((one.groups, one.outputs), FLOATS),
        "g_idx": WrittenTensor((one.inputs,), ("I32",)),
    }


def awq_tensors(one: PackedLinear) -> dict[str, WrittenTensor]:
    """The tensors of AWQ's gemm, which packs the outputs."""
    word, width = (f"I{one.word}",), _words(one.outputs, one)
    return {
        "qweight": WrittenTensor((one.inputs, width), word),
        "qzeros": WrittenTensor((one.groups, width), word),
        "scales": WrittenTensor((one.groups, one.outputs), FLOATS),
    }


def marlin_tensors(one: PackedLinear, weight: str, scales: str) -> dict[str, WrittenTensor]:
    """The tensors of Marlin, with 16 inputs in a row of words; its other tensors may be empty."""
    packed: Shape = (one.inputs // TILE, one.outputs * TILE * one.bits // one.word)
    return {
        weight: WrittenTensor(packed, (f"I{one.word}",)),
        scales: WrittenTensor((one.groups, one.outputs), _HALVES),
    }


def _words(numbers: int, one: PackedLinear) -> int:
    return -(-numbers * one.bits // one.word)
