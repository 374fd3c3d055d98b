"""The numbers of a block of a matrix, unpacked by the layout that stores it.

Each function returns, as float64, the rows and the first columns that the caller names of a weight
(out, in). The arithmetic, with q the stored integer:

    gptq    scales[g] * (q - zeros[g]), g the group of the input; format `gptq` stores zeros - 1
    awq     scales[g] * (q - zeros[g]), eight outputs to a word, interleaved
    mlx     scales[g] * q + biases[g], for mode `affine`
    fp8     weight * scale of the block
    bnb     int8: q * SCB / 127; 4 bits: quant_map[q] * absmax of the block of numbers
    gguf    the types of gguf_blocks.py

For a layout or type that is not in this table, None is returned.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from auditor.comparing import Side
from auditor.layouts.packing import LogicalTensor
from auditor.tensors import Span
from auditor.values.evidence import LocalBytes
from auditor.values.gguf_blocks import BLOCK_TYPES
from auditor.values.number_formats import FORMATS
from auditor.values.placing import Placed

Numbers = NDArray[Any]
_MOST_BYTES = 64 * 1024 * 1024  # bytes of a tensor that is read completely
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the output of each four bits of a word, the lowest first
_WORD = 32
# What Python and numpy raise if sizes or settings, which are untrusted, contradict each other.
_CONTRADICTIONS = (ArithmeticError, LookupError, TypeError, ValueError)
_METHOD = re.compile(r"[a-z]+\d*", re.ASCII)  # the name that begins a layout's title
_PLAIN = frozenset({"F64", "F32", "F16", "BF16"})


class Block(Struct, frozen=True, kw_only=True):
    """The rows of a matrix to read, and how many of its first columns."""

    rows: tuple[int, ...]
    columns: int


class UnpackedNumbers(Struct, frozen=True, kw_only=True):
    """A reader of the numbers of one side, whose files are open."""

    side: Side
    placed: Mapping[str, Placed]  # by stored name
    bytes: LocalBytes

    def block(self, name: str, shape: tuple[int, ...], block: Block) -> Numbers | None:
        """Return the numbers of a tensor, whose unpacked shape is given.

        Return None if its packing is not known here, or if the stored sizes contradict each other.
        """
        try:
            return self._block(name, shape, block)
        except _CONTRADICTIONS:
            return None

    def _block(self, name: str, shape: tuple[int, ...], block: Block) -> Numbers | None:
        piece = self.side.packed.get(name)
        if piece is None:
            placed = self.placed.get(name)
            return None if placed is None else self._rows(placed, shape, block)
        if piece.dtype in _PLAIN:
            placed = self.placed.get(piece.stored.name)
            return None if placed is None else self._rows(placed, shape, block)
        method = _METHOD.match(self.side.layout or "")
        unpack = _METHODS.get(method[0]) if method else None
        return None if unpack is None else unpack(self, piece, shape, block)

    # --- stored tensors -----------------------------------------------------------------------

    def part(self, piece: LogicalTensor, last: str) -> Placed | None:
        """Return the companion `last` of a packed tensor."""
        return self.placed.get(f"{piece.stored.name.rpartition('.')[0]}.{last}")

    def whole(self, placed: Placed | None) -> Numbers | None:
        """Return all numbers in the stored shape; None if they are too many or not readable."""
        form = FORMATS.get(placed.dtype or "") if placed else None
        if placed is None or form is None or placed.span.length > _MOST_BYTES:
            return None
        data = self.bytes.read(placed, Span(0, placed.span.length))
        if data is None or len(data) % form.unit:
            return None
        numbers: Numbers = form.decode(data)
        shape = placed.tensor.shape or ()
        return numbers.reshape(shape) if numbers.size == prod(shape) else None

    def raw_rows(self, placed: Placed, width: int, rows: Sequence[int], most: int) -> Numbers:
        """Return the first `most` bytes of the rows, which have `width` bytes.

        Raise ValueError if the tensor ends before them.
        """
        if max(rows) * width + most > placed.span.length:
            raise ValueError(placed.tensor.name)
        parts = []
        for row in rows:
            part = self.bytes.read(placed, Span(row * width, row * width + most))
            parts.append(part if part is not None else np.zeros(most, np.uint8))
        return np.stack(parts)

    def _rows(self, placed: Placed, shape: tuple[int, ...], block: Block) -> Numbers | None:
        """Return the block of a plain tensor."""
        form = FORMATS.get(placed.dtype or "")
        if form is None or form.per_unit != 1 or placed.tensor.shape != shape:
            return None
        width = matrix_sides(shape)[1] * form.unit
        data = self.raw_rows(placed, width, block.rows, block.columns * form.unit)
        return form.decode(data.reshape(-1)).reshape(len(block.rows), block.columns)


def matrix_sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return (out, in) of a tensor; a vector is one row, further axes are part of the rows."""
    return (1, prod(shape)) if len(shape) < 2 else (shape[0], prod(shape[1:]))  # noqa: PLR2004


def llama_cpp_rows(side: Side, name: str, shape: tuple[int, ...], rows: Sequence[int]) -> list[int]:
    """Return the rows of a GGUF file with these rows of a query or key, if they are reordered.

    The converter of Llama moves row j * d / 2 + k of a head of d rows to row 2 * k + j, for its own
    rotary embedding. The rows are unchanged for other tensors.
    """
    key = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    heads = side.config.get(key.get(name.split(".")[-2] if "." in name else "", ""))
    if not side.is_gguf or type(heads) is not int or heads < 1 or shape[0] % (2 * heads):
        return list(rows)
    size = shape[0] // heads
    places = ((row // size * size, row % size) for row in rows)
    return [start + at % (size // 2) * 2 + at // (size // 2) for start, at in places]


# --- layouts ------------------------------------------------------------------------------------


def _codes(words: Numbers, bits: int, axis: int) -> Numbers:
    """Return the integers of `bits` bits in words of 32 bits, the lowest first, along an axis."""
    shifts = np.arange(0, _WORD, bits, dtype=np.uint32)
    spread = (words.astype(np.uint32)[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    moved = np.moveaxis(spread, -1, axis + 1)
    shape = list(words.shape)
    shape[axis] *= len(shifts)
    return moved.reshape(shape)


def _qweight_words(
    side: UnpackedNumbers, placed: Placed | None, rows: int, width: int
) -> Numbers | None:
    """Return the first rows of a matrix of 32-bit words."""
    length = rows * width * 4
    if placed is None or placed.tensor.dtype not in {"I32", "U32"} or length > _MOST_BYTES:
        return None
    data = side.bytes.read(placed, Span(0, length))
    return None if data is None else data.view(np.uint32).reshape(rows, width)


def _groups(side: UnpackedNumbers, piece: LogicalTensor, inputs: int, count: int) -> Numbers | None:
    """Return the group of each of the first inputs."""
    index = side.whole(side.part(piece, "g_idx"))
    scales = side.part(piece, "scales")
    if scales is None or not scales.tensor.shape:
        return None
    size = -(-inputs // scales.tensor.shape[0])
    if index is None:
        return np.arange(count) // size
    groups = index[:count].astype(np.int64)
    is_inside = len(groups) == count and groups.min() >= 0
    return groups if is_inside and groups.max() < scales.tensor.shape[0] else None


def _gptq(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers | None:
    bits = _bits(piece)
    if len(shape) != 2 or bits not in {2, 4, 8} or piece.stored.name.endswith(".B"):  # noqa: PLR2004
        return None
    out, inputs = shape
    if piece.stored.shape != (inputs * bits // _WORD, out):  # Marlin's tiles
        return None
    settings = side.side.declared.settings if side.side.declared else {}
    stored_format = settings.get("checkpoint_format", "gptq")
    words = _qweight_words(side, side.part(piece, "qweight"), block.columns * bits // _WORD, out)
    scales, zeros = side.whole(side.part(piece, "scales")), side.whole(side.part(piece, "qzeros"))
    groups = _groups(side, piece, inputs, block.columns)
    if words is None or scales is None or zeros is None or groups is None:
        return None
    if stored_format not in {"gptq", "gptq_v2"} or zeros.shape != (
        len(scales),
        out * bits // _WORD,
    ):
        return None
    rows = list(block.rows)
    codes = _codes(words[:, rows], bits, 0).astype(np.float64)
    points = _codes(zeros, bits, 1)[:, rows].astype(np.float64)
    points += stored_format == "gptq"
    values = (codes - points[groups]) * scales[:, rows].astype(np.float64)[groups]
    return np.ascontiguousarray(values.T)


def _awq(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers | None:
    if len(shape) != 2 or _bits(piece) != 4:  # noqa: PLR2004
        return None
    out, inputs = shape
    if piece.stored.shape != (inputs, out // 8):  # another version than gemm
        return None
    words = _qweight_words(side, side.part(piece, "qweight"), block.columns, out // 8)
    scales, zeros = side.whole(side.part(piece, "scales")), side.whole(side.part(piece, "qzeros"))
    groups = _groups(side, piece, inputs, block.columns)
    if words is None or scales is None or zeros is None or groups is None:
        return None
    if zeros.shape != (len(scales), out // 8):
        return None
    rows = list(block.rows)
    codes, points = (_in_order(_codes(one, 4, 1))[:, rows] for one in (words, zeros))
    values = (codes.astype(np.float64) - points[groups]) * scales[:, rows].astype(float)[groups]
    return np.ascontiguousarray(values.T)


def _in_order(codes: Numbers) -> Numbers:
    """Return AWQ's outputs in the model's order."""
    lanes = codes.reshape(len(codes), -1, 8)
    ordered = np.empty_like(lanes)
    ordered[:, :, list(_AWQ_ORDER)] = lanes
    return ordered.reshape(len(codes), -1)


def _mlx(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers | None:
    bits, placed = _bits(piece), side.placed.get(piece.stored.name)
    scales, biases = side.whole(side.part(piece, "scales")), side.whole(side.part(piece, "biases"))
    if placed is None or len(shape) != 2 or bits not in {2, 4, 8}:  # noqa: PLR2004
        return None
    if scales is None or biases is None or scales.shape != biases.shape or scales.ndim != 2:  # noqa: PLR2004
        return None
    inputs = shape[1]
    if placed.tensor.shape != (shape[0], inputs * bits // _WORD) or len(scales) != shape[0]:
        return None
    width = inputs * bits // 8
    data = side.raw_rows(placed, width, block.rows, block.columns * bits // 8)
    codes = _codes(np.ascontiguousarray(data).view(np.uint32), bits, 1)
    groups = np.arange(block.columns) // (inputs // scales.shape[1])
    rows = list(block.rows)
    picked, offsets = (one[rows][:, groups].astype(np.float64) for one in (scales, biases))
    return np.asarray(codes * picked + offsets)


def _fp8(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers | None:
    placed = side.placed.get(piece.stored.name)
    scales = next(
        (
            found
            for last in ("weight_scale_inv", "weight_scale")
            if (found := side.whole(side.part(piece, last))) is not None
        ),
        None,
    )
    if placed is None or scales is None or len(shape) != 2 or placed.tensor.shape != shape:  # noqa: PLR2004
        return None
    form = FORMATS.get(placed.dtype or "")
    if form is None or form.unit != 1:
        return None
    data = side.raw_rows(placed, shape[1], block.rows, block.columns)
    values = form.decode(data.reshape(-1)).reshape(data.shape).astype(np.float64)
    if scales.size == 1:
        return np.asarray(values * float(scales.reshape(-1)[0]))
    if scales.ndim != 2:  # noqa: PLR2004
        return None
    sizes = [-(-side_size // count) for side_size, count in zip(shape, scales.shape, strict=True)]
    settings = side.side.declared.settings if side.side.declared else {}
    declared = settings.get("weight_block_size")
    if isinstance(declared, list) and len(declared) == 2 and min(scales.shape) > 0:  # noqa: PLR2004
        sizes = [size if type(size) is int and size > 0 else 1 for size in declared]
    rows, columns = np.array(block.rows) // sizes[0], np.arange(block.columns) // sizes[1]
    if rows.max() >= scales.shape[0] or columns.max() >= scales.shape[1]:
        return None
    return np.asarray(values * scales[np.ix_(rows, columns)])


def _bitsandbytes(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers | None:
    placed = side.placed.get(piece.stored.name)
    if placed is None or len(shape) != 2:  # noqa: PLR2004
        return None
    if placed.tensor.dtype == "I8":
        scales = side.whole(side.part(piece, "SCB"))
        if scales is None or scales.size != shape[0] or placed.tensor.shape != shape:
            return None
        data = side.raw_rows(placed, shape[1], block.rows, block.columns)
        picked = scales.reshape(-1)[list(block.rows)].astype(np.float64)
        return np.asarray(data.view(np.int8) * picked[:, None] / 127)
    return _four_bits(side, placed, shape, block)


def _four_bits(
    side: UnpackedNumbers, placed: Placed, shape: tuple[int, ...], block: Block
) -> Numbers | None:
    """Return the numbers of nf4 or fp4, without double quantization."""
    name = placed.tensor.name
    scales = side.whole(side.placed.get(f"{name}.absmax"))
    codes = side.whole(side.placed.get(f"{name}.quant_map"))
    if scales is None or codes is None or f"{name}.nested_absmax" in side.placed:
        return None
    count = prod(shape)
    if scales.ndim != 1 or codes.shape != (16,) or placed.span.length * 2 != count:
        return None
    if shape[1] % 2 or count % len(scales):
        return None
    data = side.raw_rows(placed, shape[1] // 2, block.rows, block.columns // 2)
    packed = np.stack([data >> 4, data & 15], axis=-1).reshape(len(block.rows), -1)
    places = np.array(block.rows)[:, None] * shape[1] + np.arange(packed.shape[1])
    return np.asarray(codes[packed] * scales[places // (count // len(scales))].astype(np.float64))


def _gguf(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers | None:
    placed, kind = side.placed.get(piece.stored.name), BLOCK_TYPES.get(piece.dtype)
    if placed is None or kind is None or piece.stored.shape != shape:
        return None
    if shape[-1] % kind.numbers or block.columns % kind.numbers:
        return None
    count = block.columns // kind.numbers
    width = matrix_sides(shape)[1] // kind.numbers * kind.bytes
    data = side.raw_rows(placed, width, block.rows, count * kind.bytes)
    numbers = kind.decode(data.reshape(-1, kind.bytes))
    return np.asarray(numbers.reshape(len(block.rows), -1))


def _bits(piece: LogicalTensor) -> int:
    """Return the bits of a packed integer, by its dtype: 4 for INT4; 0 for other dtypes."""
    digits = piece.dtype.removeprefix("INT")
    return int(digits) if piece.dtype.startswith("INT") and digits.isdecimal() else 0


_METHODS: Mapping[str, Callable[..., Numbers | None]] = {
    "gptq": _gptq,
    "awq": _awq,
    "mlx": _mlx,
    "fp8": _fp8,
    "bitsandbytes": _bitsandbytes,
    "gguf": _gguf,
}
