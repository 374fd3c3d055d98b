"""The numbers of a block of a matrix, unpacked by the layout that stores it.

Each function returns, as float64, the rows and the first columns that the caller names of a weight
(out, in). The arithmetic, with q the stored integer:

    gptq    scales[g] * (q - zeros[g]), g the group of the input; format `gptq` stores zeros - 1
    awq     scales[g] * (q - zeros[g]), eight outputs to a word, interleaved
    mlx     scales[g] * q + biases[g], for mode `affine`
    fp8     weight * scale of the block
    bnb     int8: q * SCB / 127; 4 bits: quant_map[q] * absmax of the block of numbers
    gguf    the types of number_formats.py

Sizes and settings are untrusted: a function raises one of _CONTRADICTIONS if they contradict each
other. For a layout or type that is not in this table, `UnpackedNumbers.block` returns None.
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
from auditor.values.number_formats import BLOCK_TYPES, FORMATS, SIZES, Bytes
from auditor.values.tensor_bytes import LocalBytes, Placed

Numbers = NDArray[Any]
_MOST_BYTES = 64 * 1024 * 1024  # bytes of a tensor that is read completely
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the output of each four bits of a word, the lowest first
_WORD = 32
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
    data: LocalBytes

    def block(self, name: str, shape: tuple[int, ...], block: Block) -> Numbers | None:
        """Return the numbers of a tensor, whose unpacked shape is given.

        Return None if its packing is not known here, or if the stored sizes contradict each other.
        """
        piece = self.side.packed.get(name)
        try:
            if piece is None or piece.dtype in _PLAIN:
                return self._plain(name if piece is None else piece.stored.name, shape, block)
            method = _METHOD.match(self.side.layout or "")
            return _METHODS[method[0] if method else ""](self, piece, shape, block)
        except _CONTRADICTIONS:
            return None

    def setting(self, key: str, default: Any = None) -> Any:
        """Return a value of the declared quantization."""
        return self.side.declared.settings.get(key, default) if self.side.declared else default

    def part(self, piece: LogicalTensor, last: str) -> str:
        """Return the name of the companion `last` of a packed tensor."""
        return f"{piece.stored.name.rpartition('.')[0]}.{last}"

    def whole(self, name: str) -> Numbers:
        """Return all numbers of a stored tensor, in the stored shape."""
        placed = self.placed[name]
        _require(placed.span.length <= _MOST_BYTES)
        numbers = FORMATS[placed.dtype or ""].decode(self._read(placed, 0, placed.span.length))
        return numbers.reshape(placed.tensor.shape or ())

    def rows(self, name: str, width: int, rows: Sequence[int], most: int) -> Bytes:
        """Return the first `most` bytes of the rows, which have `width` bytes."""
        return np.stack([self._read(self.placed[name], row * width, most) for row in rows])

    def words(self, name: str, rows: int, width: int) -> Numbers:
        """Return the first rows of a matrix of 32-bit words."""
        placed, length = self.placed[name], rows * width * 4
        _require(placed.tensor.dtype in {"I32", "U32"} and length <= _MOST_BYTES)
        return self._read(placed, 0, length).view(np.uint32).reshape(rows, width)

    def _read(self, placed: Placed, start: int, length: int) -> Bytes:
        _require(start + length <= placed.span.length)
        data = np.empty(length, np.uint8)
        self.data.fill(placed, start, data.data)
        return data

    def _plain(self, name: str, shape: tuple[int, ...], block: Block) -> Numbers:
        form = FORMATS[self.placed[name].dtype or ""]
        _require(form.per_unit == 1 and self.placed[name].tensor.shape == shape)
        width = matrix_sides(shape)[1] * form.unit
        data = self.rows(name, width, block.rows, block.columns * form.unit)
        return form.decode(data.reshape(-1)).reshape(len(block.rows), block.columns)


def _require(is_so: bool) -> None:  # noqa: FBT001 - as an assertion
    """Raise ValueError if stored sizes or settings contradict each other."""
    if not is_so:
        raise ValueError


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


def _scaled(
    side: UnpackedNumbers,
    piece: LogicalTensor,
    shape: tuple[int, ...],
    block: Block,
    packed: tuple[Numbers, Numbers],
) -> Numbers:
    """Return scales[g] * (codes - zeros[g]) as (out, in).

    The codes have all outputs of the first inputs, the zeros all outputs of each group.
    """
    (codes, zeros), rows = packed, list(block.rows)
    scales = side.whole(side.part(piece, "scales"))
    count = len(codes)
    if (name := side.part(piece, "g_idx")) in side.placed:
        groups = side.whole(name)[:count].astype(np.int64)
        _require(len(groups) == count and groups.min() >= 0)
    else:
        groups = np.arange(count) // -(-shape[1] // len(scales))
    _require(zeros.shape == scales.shape)
    points, factors = (one[:, rows].astype(np.float64)[groups] for one in (zeros, scales))
    return np.ascontiguousarray(((codes[:, rows] - points) * factors).T)


def _gptq(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers:
    bits, (out, inputs) = _bits(piece), shape
    stored_format = side.setting("checkpoint_format", "gptq")
    _require(not piece.stored.name.endswith(".B") and stored_format in {"gptq", "gptq_v2"})
    _require(piece.stored.shape == (inputs * bits // _WORD, out))  # else Marlin's tiles
    words = side.words(side.part(piece, "qweight"), block.columns * bits // _WORD, out)
    zeros = _codes(side.whole(side.part(piece, "qzeros")), bits, 1) + (stored_format == "gptq")
    return _scaled(side, piece, shape, block, (_codes(words, bits, 0), zeros))


def _awq(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers:
    out, inputs = shape
    _require(_bits(piece) == 4 and piece.stored.shape == (inputs, out // 8))  # noqa: PLR2004 - gemm
    words = side.words(side.part(piece, "qweight"), block.columns, out // 8)
    zeros = side.whole(side.part(piece, "qzeros"))
    codes, points = (_in_order(_codes(one, 4, 1)) for one in (words, zeros))
    return _scaled(side, piece, shape, block, (codes, points))


def _in_order(codes: Numbers) -> Numbers:
    """Return AWQ's outputs in the model's order."""
    lanes = codes.reshape(len(codes), -1, 8)
    ordered = np.empty_like(lanes)
    ordered[:, :, list(_AWQ_ORDER)] = lanes
    return ordered.reshape(len(codes), -1)


def _mlx(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers:
    bits, name, (out, inputs) = _bits(piece), piece.stored.name, shape
    scales, biases = (side.whole(side.part(piece, last)) for last in ("scales", "biases"))
    _require(scales.shape == biases.shape and len(scales) == out)
    _require(side.placed[name].tensor.shape == (out, inputs * bits // _WORD))
    data = side.rows(name, inputs * bits // 8, block.rows, block.columns * bits // 8)
    codes = _codes(np.ascontiguousarray(data).view(np.uint32), bits, 1)
    groups = np.arange(block.columns) // (inputs // scales.shape[1])
    rows = list(block.rows)
    picked, offsets = (one[rows][:, groups].astype(np.float64) for one in (scales, biases))
    return np.asarray(codes * picked + offsets)


def _fp8(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers:
    name, (out, inputs) = piece.stored.name, shape
    parts = [side.part(piece, last) for last in ("weight_scale_inv", "weight_scale")]
    scales = side.whole(next(part for part in (*parts, "") if part in side.placed or not part))
    form = FORMATS[side.placed[name].dtype or ""]
    _require(side.placed[name].tensor.shape == shape and form.unit == 1)
    data = side.rows(name, inputs, block.rows, block.columns)
    values = form.decode(data.reshape(-1)).reshape(data.shape).astype(np.float64)
    if scales.size == 1:
        return np.asarray(values * float(scales.reshape(-1)[0]))
    sizes = [-(-out // scales.shape[0]), -(-inputs // scales.shape[1])]
    declared = side.setting("weight_block_size")
    if isinstance(declared, list) and len(declared) == 2:  # noqa: PLR2004
        sizes = [size if type(size) is int and size > 0 else 1 for size in declared]
    rows, columns = np.array(block.rows) // sizes[0], np.arange(block.columns) // sizes[1]
    return np.asarray(values * scales[np.ix_(rows, columns)])


def _bitsandbytes(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers:
    """Return int8, or nf4 and fp4 without double quantization."""
    name, (out, inputs), rows = piece.stored.name, shape, list(block.rows)
    if side.placed[name].tensor.dtype == "I8":
        scales = side.whole(side.part(piece, "SCB")).astype(np.float64).reshape(out, 1)
        _require(side.placed[name].tensor.shape == shape)
        data = side.rows(name, inputs, rows, block.columns)
        return np.asarray(data.view(np.int8) * scales[rows] / 127)
    scales, codes = side.whole(f"{name}.absmax"), side.whole(f"{name}.quant_map")
    _require(f"{name}.nested_absmax" not in side.placed and codes.shape == (16,))
    _require(side.placed[name].span.length * 2 == out * inputs and not inputs % 2)
    _require(scales.ndim == 1 and not out * inputs % len(scales))
    data = side.rows(name, inputs // 2, rows, block.columns // 2)
    packed = np.stack([data >> 4, data & 15], axis=-1).reshape(len(rows), -1)
    places = np.array(rows)[:, None] * inputs + np.arange(packed.shape[1])
    groups = places // (out * inputs // len(scales))
    return np.asarray(codes[packed] * scales[groups].astype(np.float64))


def _gguf(
    side: UnpackedNumbers, piece: LogicalTensor, shape: tuple[int, ...], block: Block
) -> Numbers:
    kind, decode = SIZES[piece.dtype], BLOCK_TYPES[piece.dtype]
    _require(piece.stored.shape == shape and not block.columns % kind.block)
    _require(not shape[-1] % kind.block)
    width = matrix_sides(shape)[1] // kind.block * kind.size
    data = side.rows(piece.stored.name, width, block.rows, block.columns // kind.block * kind.size)
    return np.asarray(decode(data.reshape(-1, kind.size)).reshape(len(block.rows), -1))


def _bits(piece: LogicalTensor) -> int:
    """Return the bits of a packed integer, by its dtype: 4 for INT4; raise for other dtypes."""
    return {"INT2": 2, "INT4": 4, "INT8": 8}[piece.dtype]


_METHODS: Mapping[str, Callable[..., Numbers]] = {
    "gptq": _gptq,
    "awq": _awq,
    "mlx": _mlx,
    "fp8": _fp8,
    "bitsandbytes": _bitsandbytes,
    "gguf": _gguf,
}
