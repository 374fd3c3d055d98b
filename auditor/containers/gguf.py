"""The parser of a GGUF file's header: metadata and the table of tensors; no tensor data is read.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. In this order, without padding:

    "GGUF", version u32, tensors u64, pairs u64
    pairs:    key, type u32, value; a string is its length u64 and its bytes, an array the type u32
              of its items, their number u64, and the items
    tensors:  name, number of dimensions u32, dimensions u64 each, type u32, offset u64
    data:     from the next multiple of the alignment on; offsets count from there

Dimensions are stored fastest first, a matrix as (in, out); this parser returns (out, in). It
refuses what llama.cpp refuses, but reads long names, nested arrays and big-endian files.
"""

from collections.abc import Iterator, Mapping
from math import prod
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from auditor.bounded.json_text import lfs_fault
from auditor.containers.gguf_reader import NAMES, U32, Cursor, Skipped, Value
from auditor.containers.weight_formats import PartialFile, Table, format_by_magic
from auditor.errors import CheckpointError
from auditor.messages import described, named, quoted
from auditor.tensors import Span, StoredTensor


class GgmlType(NamedTuple):
    """A tensor type of ggml: how a row of numbers is stored, block by block."""

    name: str  # "F32", "Q4_K"
    block: int  # numbers in a block; a row is a whole number of blocks
    size: int  # bytes of a block


# Numbers and names are those of `enum ggml_type` in ggml.h; sizes those of its block structs, which
# the `gguf` package has as GGML_QUANT_SIZES. A name that is also a dtype of
# safetensors means that dtype.
_TYPES = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 2 + 16),
    (3, "Q4_1", 32, 2 + 2 + 16),
    (6, "Q5_0", 32, 2 + 4 + 16),
    (7, "Q5_1", 32, 2 + 2 + 4 + 16),
    (8, "Q8_0", 32, 2 + 32),
    (9, "Q8_1", 32, 4 + 4 + 32),
    (10, "Q2_K", 256, 2 + 2 + 16 + 64),
    (11, "Q3_K", 256, 2 + 12 + 32 + 64),
    (12, "Q4_K", 256, 2 + 2 + 12 + 128),
    (13, "Q5_K", 256, 2 + 2 + 12 + 32 + 128),
    (14, "Q6_K", 256, 2 + 16 + 64 + 128),
    (15, "Q8_K", 256, 4 + 256 + 32),
    (16, "IQ2_XXS", 256, 2 + 64),
    (17, "IQ2_XS", 256, 2 + 64 + 8),
    (18, "IQ3_XXS", 256, 2 + 64 + 32),
    (19, "IQ1_S", 256, 2 + 32 + 16),
    (20, "IQ4_NL", 32, 2 + 16),
    (21, "IQ3_S", 256, 2 + 64 + 8 + 32 + 4),
    (22, "IQ2_S", 256, 2 + 64 + 8 + 8),
    (23, "IQ4_XS", 256, 2 + 2 + 4 + 128),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 32 + 16 + 8),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 48 + 4 + 2),
    (35, "TQ2_0", 256, 64 + 2),
    (39, "MXFP4", 32, 1 + 16),
    (40, "NVFP4", 64, 4 + 32),
    (41, "Q1_0", 128, 2 + 16),
)
GGML_TYPES: Mapping[int, GgmlType] = MappingProxyType(
    {number: GgmlType(name, block, size) for number, name, block, size in _TYPES}
)

# Type numbers of former versions; llama.cpp refuses files that use them.
REMOVED_TYPES: Mapping[int, str] = MappingProxyType(
    {
        4: "Q4_2",
        5: "Q4_3",
        31: "Q4_0_4_4",
        32: "Q4_0_4_8",
        33: "Q4_0_8_8",
        36: "IQ4_NL_4_4",
        37: "IQ4_NL_4_8",
        38: "IQ4_NL_8_8",
    }
)


MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT_KEY = "general.alignment"
_ALIGNMENT = 32  # bytes; the default
_LARGEST_ALIGNMENT = 2**20
# llama.cpp's: GGML_MAX_DIMS, and GGML_MAX_NAME less the zero that ends a name.
_MOST_DIMENSIONS = 4
_LONGEST_NAME = 63
_I64_MAX = 2**63 - 1
# The least bytes of a pair and of a tensor: an empty key, its type and one byte; an empty name, the
# number of dimensions, the type and the offset.
_LEAST_PAIR = 8 + 4 + 1
_LEAST_TENSOR = 8 + 4 + 4 + 8
# Tensors and pairs of one file. Mixtral's oldest files, of one tensor for each expert, have 995,
# and DeepSeek V3 has 1,086; 10,000 unknown tensors take a second to report. Llama 3 has some 30
# pairs.
_MOST_TENSORS = 10_000
_MOST_PAIRS = 10_000


class GgufHeader(Table, frozen=True, kw_only=True):
    """The declarations of one GGUF file; its tensors have ggml's dtypes and PyTorch's shapes."""

    version: int
    big_endian: bool
    alignment: int  # bytes
    metadata: Mapping[str, Value]
    types: Mapping[str, str]  # of the metadata's values: "u32", "array of u32"
    data_start: int  # offset in the file
    data_length: int  # bytes up to the end of the last tensor, without the padding after it

    def text(self, key: str) -> str | None:
        """Return a string of the metadata; None if the key is absent or not a string."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        """Return an integer of the metadata; None if the key is absent or not an integer."""
        value = self.metadata.get(key)
        return value if type(value) is int else None

    def length(self, key: str) -> int | None:
        """Return the number of items in an array of the metadata; None if it is not an array."""
        value = self.metadata.get(key)
        if isinstance(value, Skipped):
            return value.length
        return len(value) if isinstance(value, tuple) else None


class _Entry(NamedTuple):
    """An entry of the table of tensors, as stored."""

    name: str
    shape: tuple[int, ...]  # slowest first, as in PyTorch
    type: GgmlType
    offset: int  # from the start of the data

    @property
    def length(self) -> int:
        return prod(self.shape) // self.type.block * self.type.size

    def as_tensor(self, file: str) -> StoredTensor:
        span = Span(self.offset, self.offset + self.length)
        return StoredTensor(self.name, self.type.name, self.shape, prod(self.shape), file, span)


def parse(file: str, sparse: PartialFile) -> GgufHeader:
    """Parse the header at the start of a file; raise NeedsBytes if more bytes are needed."""
    try:
        return _parse(file, sparse)
    except CheckpointError as error:
        raise CheckpointError(f"{named(file)} {error}") from None


def _parse(file: str, sparse: PartialFile) -> GgufHeader:
    cursor = Cursor(sparse)
    version = _begin(cursor)
    tensors, pairs = cursor.u64("the number of tensors"), cursor.u64("the number of pairs")
    _check_count(cursor, "tensors", tensors, _LEAST_TENSOR, _MOST_TENSORS)
    _check_count(cursor, "metadata pairs", pairs, _LEAST_PAIR, _MOST_PAIRS)
    types: dict[str, str] = {}
    metadata = _metadata(cursor, pairs, types)
    alignment = _alignment(metadata)
    entries = _entries(cursor, tensors)
    start = -(-cursor.place // alignment) * alignment
    length = _check_contiguous(entries, alignment)
    faults, notes = _sizes(sparse.size, start, length, entries, alignment)
    notes = (*notes, *_oddities(cursor, entries))
    return GgufHeader(
        file=file,
        tensors=tuple(sorted((entry.as_tensor(file) for entry in entries), key=itemgetter(0))),
        size_faults=tuple(f"{named(file)} {fault}" for fault in faults),
        notes=tuple(f"{named(file)} {note}" for note in notes),
        version=version,
        big_endian=cursor.big_endian,
        alignment=alignment,
        metadata=MappingProxyType(metadata),
        types=MappingProxyType(types),
        data_start=start,
        data_length=length,
    )


def _begin(cursor: Cursor) -> int:
    """Read the version and the byte order: versions are small, so the two high bytes are zero."""
    if not cursor.size:
        raise CheckpointError("is empty: 0 bytes")
    prefix = cursor.peek(min(cursor.size, 1024))
    if fault := lfs_fault("", prefix):
        raise CheckpointError(fault.strip())
    if not prefix.startswith(MAGIC):
        kind = format_by_magic(prefix)
        raise CheckpointError(f"is {kind}, not GGUF" if kind else "does not begin with 'GGUF'")
    cursor.take(len(MAGIC), "the magic")
    version = cursor.u32("the version")
    if version and not version & 0xFFFF:
        cursor.big_endian = True
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version in _VERSIONS:
        return version
    if version == 1:
        raise CheckpointError(
            "is of GGUF version 1, of August 2023, which llama.cpp no longer reads; "
            "convert it again"
        )
    raise CheckpointError(f"is of GGUF version {version:,}, expected 2 or 3")


def _check_count(cursor: Cursor, noun: str, count: int, least: int, most: int) -> None:
    """Raise CheckpointError if `count` exceeds the limit, or its entries exceed the file."""
    if count * least > cursor.size - cursor.place:
        raise CheckpointError(
            f"declares {count:,} {noun}, which take {least} bytes each at least: "
            f"{count * least:,} in all, and the file has {cursor.size:,}"
        )
    if count > most:
        raise CheckpointError(f"declares {count:,} {noun}, expected at most {most:,}")


# --- metadata ---------------------------------------------------------------------------------


def _metadata(cursor: Cursor, pairs: int, types: dict[str, str]) -> dict[str, Value]:
    """Read the metadata; the type of each value is added to `types`."""
    metadata: dict[str, Value] = {}
    for number in range(pairs):
        key = cursor.name(f"the key of metadata pair {number:,}")
        if key in metadata:
            raise CheckpointError(f"has the metadata key {quoted(key)} twice")
        kind = cursor.u32(f"the type of {quoted(key)}")
        if key == _ALIGNMENT_KEY and kind != U32 and kind in NAMES:
            raise CheckpointError(f"has a {key} of type {NAMES[kind]}, expected u32")
        types[key] = cursor.type_of(kind)
        metadata[key] = cursor.value(kind, quoted(key))
    return metadata


def _alignment(metadata: Mapping[str, Value]) -> int:
    value = metadata.get(_ALIGNMENT_KEY, _ALIGNMENT)
    if type(value) is not int or not 0 < value <= _LARGEST_ALIGNMENT or value & (value - 1):
        raise CheckpointError(
            f"has a {_ALIGNMENT_KEY} of {described(value)}, expected a power of two"
        )
    return value


# --- the table of tensors -----------------------------------------------------------------------


def _entries(cursor: Cursor, count: int) -> list[_Entry]:
    entries: list[_Entry] = []
    names: set[str] = set()
    for number in range(count):
        entry = _entry(cursor, number)
        if entry.name in names:
            raise CheckpointError(f"has the tensor {quoted(entry.name)} twice")
        names.add(entry.name)
        entries.append(entry)
    return entries


def _entry(cursor: Cursor, number: int) -> _Entry:
    name = cursor.name(f"the name of tensor {number:,}")
    label = quoted(name)
    dimensions = cursor.u32(f"the dimensions of {label}")
    if dimensions > _MOST_DIMENSIONS:
        raise CheckpointError(
            f"has tensor {label} of {dimensions:,} dimensions, expected at most {_MOST_DIMENSIONS}"
        )
    shape = tuple(cursor.u64(f"the shape of {label}") for _ in range(dimensions))[::-1]
    kind = _type(cursor.u32(f"the type of {label}"), label)
    if max((prod(shape), *shape)) > _I64_MAX:
        raise CheckpointError(f"has tensor {label} of {shape}, whose size passes 2^63 - 1")
    row = shape[-1] if shape else 1
    if row % kind.block:
        raise CheckpointError(
            f"has tensor {label}, {kind.name} {shape}: rows of {row:,} are not a whole number of "
            f"blocks of {kind.block}"
        )
    return _Entry(name, shape, kind, cursor.u64(f"the offset of {label}"))


def _type(number: int, tensor: str) -> GgmlType:
    if number in GGML_TYPES:
        return GGML_TYPES[number]
    if number in REMOVED_TYPES:
        raise CheckpointError(
            f"has tensor {tensor} of ggml type {number}, {REMOVED_TYPES[number]}, which was "
            f"removed from ggml; llama.cpp no longer reads it"
        )
    raise CheckpointError(
        f"has tensor {tensor} of ggml type {number:,}, expected 0 to {max(GGML_TYPES)}"
    )


def _check_contiguous(entries: list[_Entry], alignment: int) -> int:
    """Check that each tensor starts at the aligned end of the previous; return the last end."""
    expected = end = 0
    before = "the data begins at 0"
    for entry in entries:
        if entry.offset != expected:
            raise CheckpointError(
                f"has tensor {quoted(entry.name)} at byte {entry.offset:,} of the data, expected "
                f"{expected:,}: {before}, and offsets are multiples of {alignment}"
            )
        end = expected + entry.length
        expected = -(-end // alignment) * alignment
        before = f"{quoted(entry.name)} ends at {end:,}"
    return end


def _sizes(
    size: int, start: int, length: int, entries: list[_Entry], alignment: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return faults of the file's size, and notes about it, as sentences."""
    needed = start + length if entries else 0
    sum_ = f"{start:,} + {length:,} = {start + length:,} bytes (header, data)"
    if size < needed:
        lacking = sum(start + entry.offset + entry.length > size for entry in entries)
        fault = (
            f"is truncated: its header implies {sum_}, and it has {size:,}; "
            f"{lacking:,} of its {len(entries):,} tensors are cut off or missing"
        )
        return (fault,), ()
    padded = start + -(-length // alignment) * alignment
    if size > padded:
        return (), (f"continues for {size - padded:,} bytes after the {sum_} of the model",)
    return (), ()


def _oddities(cursor: Cursor, entries: list[_Entry]) -> Iterator[str]:
    """Yield notes on valid properties that some programs cannot read."""
    if cursor.big_endian:
        yield "is big-endian; most programs read only little-endian"
    long = [entry.name for entry in entries if len(entry.name.encode()) > _LONGEST_NAME]
    if long:
        yield (
            f"has {len(long):,} tensor names of more than {_LONGEST_NAME} bytes, such as "
            f"{quoted(long[0])}: llama.cpp refuses them"
        )
