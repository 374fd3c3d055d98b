"""The parser of a safetensors header: eight bytes of length, then JSON; no tensor data is read.

A file is accepted exactly if the `safetensors` library (0.8) accepts it, with all oddities: white
space before the `{`, a tensor written as a list, a repeated name (the last one counts). The library
does not have the bounds `json_text.MAX_VALUES` and `tensors.MAX_CHARACTERS`.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import prod
from operator import eq, itemgetter
from typing import Annotated, NamedTuple

from msgspec import DecodeError, Meta, Struct
from msgspec.json import decode

from auditor.bounded.json_text import MAX_VALUES, bounds_fault, examined, lfs_fault
from auditor.containers import safetensors_json
from auditor.containers.safetensors_json import U64_MAX
from auditor.containers.weight_formats import format_by_magic
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import DTYPE_BITS, MAX_CHARACTERS, Span, StoredTensor, names_fault

LENGTH_BYTES = 8
MAX_HEADER = 100_000_000  # bytes; the library's own limit

_BITS = dict(DTYPE_BITS)  # a plain dict: a look-up for each tensor
_SPAN = itemgetter(StoredTensor._fields.index("span"))
_SHOWN = 8  # dimensions that a message shows
_LOOKED_AT = 4 * 1024  # the first bytes, which must look like a header before the rest is fetched
_AT_ONCE = 1024 * 1024  # characters of a header that are parsed in one batch
_MAX_PAIRS = 100_000  # entries of metadata; real headers have a few dozen
# JSON values of a header in an unusual form, with escapes, white space or lists: 43,000 tensors.
_MAX_EXACT_VALUES = 300_000
_WHITE = b" \t\n\r"
_CONTROL = bytes(byte for byte in range(0x20) if byte not in _WHITE)

# Patterns of a header in the form that writers use.
_OPENING = re.compile(rb'\{(?:"__metadata__":(\{[^{}]*\})(,?))?')
_TENSOR_END = b']},"'
_METADATA = f'"{safetensors_json.METADATA}"'.encode()
_ENTRY_QUOTES = 10  # quotes of a tensor's name, three fields and dtype
_MINUS_ZERO = re.compile(rb"[\[,\s]-0")  # an integer to msgspec, but not to serde

_I64_MAX = 2**63 - 1  # larger numbers are for the exact reader
_Number = Annotated[int, Meta(ge=0, le=_I64_MAX)]


class _Entry(Struct, forbid_unknown_fields=True, gc=False):
    dtype: str
    shape: tuple[_Number, ...]
    data_offsets: Span  # bounded by the check that they cover the data


class Header(Struct, frozen=True, kw_only=True):
    """The declarations of one safetensors file; its tensors cover the data without a gap."""

    file: str  # path inside the repo, "/" between folders
    metadata: tuple[tuple[str, str], ...]  # sorted by key
    tensors: tuple[StoredTensor, ...]  # sorted by name
    header_length: int  # bytes of JSON, without the eight of the length
    data_length: int  # bytes


class _Parsed(NamedTuple):
    metadata: dict[str, str]
    tensors: list[StoredTensor]
    data_length: int


def header_span(file: str, prefix: bytes, size: int | None) -> Span:
    """Return the span of the JSON header, from the first bytes of the file and its size.

    The first eight bytes are needed; further bytes must look like a header. A file of another
    format is therefore refused before anything is fetched or allocated for it.
    """
    if fault := lfs_fault(named(file), prefix):
        raise CheckpointError(fault)
    if not prefix:
        raise CheckpointError(f"{named(file)} is empty: 0 bytes")
    if len(prefix) < LENGTH_BYTES:
        kind = format_by_magic(prefix)
        fault = f"is truncated: {len(prefix)} bytes are too few for the eight of a header's length"
        raise CheckpointError(f"{named(file)} {f'is {kind}, not safetensors' if kind else fault}")
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    span = Span(LENGTH_BYTES, LENGTH_BYTES + length)
    fault = _length_fault(length, size) or _start_fault(
        prefix[span.start : min(span.stop, _LOOKED_AT)]
    )
    if fault is None:
        return span
    # A possible length is taken as a length, even if its bytes are another format's signature.
    kind = None if _length_fault(length, size) and length <= MAX_HEADER else format_by_magic(prefix)
    raise CheckpointError(f"{named(file)} {f'is {kind}, not safetensors' if kind else fault}")


def parse_header(file: str, prefix: bytes) -> Header:
    """Parse the header at the start of a file; `prefix` may extend into the data."""
    span = header_span(file, prefix, None)
    if len(prefix) < span.stop:
        raise CheckpointError(f"{named(file)} {_length_fault(span.length, len(prefix))}")
    if span.length > MAX_VALUES and (
        fault := bounds_fault(prefix[span.start : span.stop], safetensors_json.MAX_DEPTH)
    ):
        raise CheckpointError(f"the header of {named(file)} {fault}")
    parsed = _canonical(file, prefix, span) or _exact(file, prefix[span.start : span.stop])
    if span.length > MAX_CHARACTERS and (
        fault := names_fault([tensor.name for tensor in parsed.tensors])
    ):
        raise CheckpointError(f"the header of {named(file)} {fault}")
    return Header(
        file=file,
        metadata=tuple(sorted(parsed.metadata.items())),
        tensors=tuple(parsed.tensors),
        header_length=span.length,
        data_length=parsed.data_length,
    )


def size_fault(header: Header, size: int | None) -> str | None:
    """Return why the file's `size` contradicts the header; None if it fits or is unknown."""
    if size is None:
        return None
    expected = LENGTH_BYTES + header.header_length + header.data_length
    if size == expected:
        return None
    return (
        f"{named(header.file)} is {'truncated' if size < expected else 'too long'}: its header "
        f"implies 8 + {header.header_length:,} + {header.data_length:,} = {expected:,} bytes "
        f"(length, header, data), and it has {size:,}"
    )


def _length_fault(length: int, size: int | None) -> str | None:
    declared = f"its first eight bytes declare {length:,} bytes of header"
    if length > MAX_HEADER:
        return f"has no safetensors header: {declared}, and the format allows {MAX_HEADER:,}"
    if length < len("{}"):
        return f"has no safetensors header: {declared}, and the shortest is two, `{{}}`"
    if size is not None and LENGTH_BYTES + length > size:
        return f"is truncated: {declared}, 8 + {length:,} = {8 + length:,}, and it has {size:,}"
    return None


def _start_fault(start: bytes) -> str | None:
    """Return why the bytes after the length cannot start a JSON object, else None."""
    body = start.lstrip(_WHITE)
    if body and not body.startswith(b"{"):
        return (
            f"has no safetensors header: its JSON begins with {repr(body[:1])[1:]}, not with '{{'"
        )
    if len(start.translate(None, _CONTROL)) != len(start):
        return "has no safetensors header: there are control bytes in its JSON"
    return None


def _canonical(file: str, prefix: bytes, span: Span) -> _Parsed | None:
    """Parse a header in the usual form, fast; None if `_exact` has to read it."""
    try:
        return _plainly_written(file, prefix, span.start, _end_of_json(prefix, span))
    except (DecodeError, ValueError, KeyError, CheckpointError):
        return None


def _end_of_json(prefix: bytes, span: Span) -> int:
    """Return the offset of the JSON's end, at which the padding by white space begins."""
    end = span.stop
    while end > span.start:
        start = max(end - _LOOKED_AT, span.start)
        if length := len(prefix[start:end].rstrip(_WHITE)):
            return start + length
        end = start
    return end


def _plainly_written(file: str, prefix: bytes, start: int, stop: int) -> _Parsed:
    """Parse compact JSON; for any other form, raise an error that `_canonical` catches.

    msgspec is as strict as serde except for what is checked here: without escapes, the number of
    quotes shows that no name is repeated. 90,000 tensors in one header take 0.1 s.
    """
    opening, end = _OPENING.match(prefix, start, stop), stop - 1
    if opening is None or not prefix.endswith(b"}", opening.end(), stop):  # not the metadata's
        raise ValueError
    if prefix.find(b"\\", start, stop) >= 0:
        raise ValueError
    if prefix.find(b"-", start, stop) >= 0 and _MINUS_ZERO.search(prefix, start, stop):
        raise ValueError
    (metadata, comma), at = opening.groups(), opening.end()
    pairs: dict[str, str] = {}
    if metadata is not None:
        if bool(comma) != (at < end) or metadata.count(b",") > _MAX_PAIRS:
            raise ValueError
        pairs = decode(metadata, type=dict[str, str])
        if metadata.count(b'"') != 4 * len(pairs):
            raise ValueError
    parsed = _build(file, pairs, chain.from_iterable(_entries(prefix, at, end)))
    if prefix.find(_METADATA, at, end) >= 0 or parsed.data_length > _I64_MAX:
        raise ValueError
    if end - at > _AT_ONCE:  # batches are in order, and names within a batch are unique
        names = [tensor[0] for tensor in parsed.tensors]
        if any(map(eq, names, islice(names, 1, None))):
            raise ValueError
    return parsed


def _entries(content: bytes, at: int, end: int) -> Iterator[Iterable[tuple[str, _Entry]]]:
    """Yield the tensors from `at` to `end` in batches of some thousands, to save memory."""
    view = memoryview(content)
    while end - at > _AT_ONCE:
        stop = content.find(_TENSOR_END, at + _AT_ONCE, end)
        if stop < 0:
            break
        stop += len(_TENSOR_END) - 1  # without the next entry's opening quote
        yield _decode(view[at : stop - 1])
        at = stop
    if at < end:
        yield _decode(view[at:end])


def _decode(tensors: memoryview) -> Iterable[tuple[str, _Entry]]:
    text = b"".join((b"{", tensors, b"}"))
    entries = decode(text, type=examined(dict[str, _Entry]))
    if text.count(b'"') != _ENTRY_QUOTES * len(entries):
        raise ValueError
    return entries.items()


def _exact(file: str, content: bytes) -> _Parsed:
    """Parse any header field by field, as serde does; its errors are the ones reported."""
    if fault := bounds_fault(content, safetensors_json.MAX_DEPTH, _MAX_EXACT_VALUES):
        raise CheckpointError(f"the header of {named(file)} {fault}")
    metadata, entries = safetensors_json.parse_fields(file, content)
    return _build(
        file,
        metadata,
        (
            (name, _Entry(entry["dtype"], tuple(entry["shape"]), Span(*entry["data_offsets"])))
            for name, entry in entries.items()
        ),
    )


def _build(file: str, metadata: dict[str, str], entries: Iterable[tuple[str, _Entry]]) -> _Parsed:
    """Build the tensors, sorted by name; each shape is measured once and stored once."""
    tensors: list[StoredTensor] = []
    sizes: dict[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...], int, int]] = {}
    in_order, end = True, 0
    new = tuple.__new__  # twice as fast as a NamedTuple's constructor
    for name, entry in entries:
        kind = (entry.dtype, entry.shape)
        measures = sizes.get(kind)
        if measures is None:
            measures = sizes[kind] = (*kind, *_measure(file, name, *kind))
        dtype, shape, elements, length = measures
        start, stop = span = entry.data_offsets
        if stop - start != length:
            raise CheckpointError(_length_mismatch(file, name, dtype, shape, span))
        if start != end:
            in_order = False
        end = stop
        tensors.append(new(StoredTensor, (name, dtype, shape, elements, file, span)))
    if not in_order:
        end = _check_coverage(file, tensors)
    tensors.sort(key=itemgetter(0))
    return _Parsed(metadata, tensors, end)


def _measure(file: str, name: str, dtype: str, dimensions: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of elements and of bytes of a tensor."""
    elements = 1
    for dimension in dimensions:
        elements *= dimension
        if max(elements, dimension) > U64_MAX:  # multiplied from left to right, in 64 bits
            raise CheckpointError(_overflow(file, name, dtype, dimensions))
    bits = elements * _BITS[dtype]
    if bits > U64_MAX:
        raise CheckpointError(_overflow(file, name, dtype, dimensions))
    if bits % 8:
        raise CheckpointError(
            f"{named(file)}: tensor {quoted(name)}, {_shaped(dtype, dimensions)}, takes "
            f"{bits:,} bits, expected a whole number of bytes"
        )
    return elements, bits // 8


def _check_coverage(file: str, tensors: list[StoredTensor]) -> int:
    """Check that the tensors cover the data, each byte once; return its length."""
    end, before = 0, None
    for tensor in sorted(tensors, key=_SPAN):
        start, stop = _SPAN(tensor)
        if start != end:
            raise CheckpointError(_gap(file, tensor, start, end, before))
        end, before = stop, tensor
    return end


def _gap(file: str, tensor: StoredTensor, start: int, end: int, before: StoredTensor | None) -> str:
    last = f"tensor {quoted(before.name)} ends at {end:,}" if before else "the data begins at 0"
    fault = f"leaves a gap of {start - end:,}" if start > end else "overlaps"
    return (
        f"{named(file)}: tensor {quoted(tensor.name)} begins at byte {start:,} of the data and "
        f"{fault}: {last}, expected each tensor to begin at the end of the last one"
    )


def _shaped(dtype: str, shape: tuple[int, ...]) -> str:
    dimensions = shape if len(shape) <= _SHOWN else (*shape[:_SHOWN], "...")
    return f"{dtype} [{', '.join(map(str, dimensions))}]"


def _overflow(file: str, name: str, dtype: str, shape: tuple[int, ...]) -> str:
    return (
        f"{named(file)}: tensor {quoted(name)}, {_shaped(dtype, shape)}, is too large: "
        f"its size in bits passes 2^64 - 1"
    )


def _length_mismatch(
    file: str, name: str, dtype: str, shape: tuple[int, ...], offsets: tuple[int, int]
) -> str:
    start, stop = offsets
    tensor = f"{named(file)}: tensor {quoted(name)}, {_shaped(dtype, shape)},"
    if stop < start:
        return f"{tensor} has data_offsets [{start}, {stop}], which end before they begin"
    length = prod(shape) * _BITS[dtype] // 8
    return (
        f"{tensor} takes {length:,} bytes, but its data_offsets [{start}, {stop}] "
        f"span {stop - start:,}"
    )
