"""The header of a safetensors file: eight bytes of length, then JSON. Its data is never read.

A file is accepted exactly when the `safetensors` library (0.8) accepts it, oddities included:
white space before the `{`, a tensor written as a list, a name written twice (the last one
stands). The bounds that the library does not have are `jsons.MAX_VALUES` and
`tensors.MAX_CHARACTERS`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import itemgetter
from typing import NamedTuple

from auditor.containers import safetensors_json
from auditor.containers.bounded_json import MAX_VALUES, bounds_fault, lfs_fault
from auditor.containers.magic import format_by_magic
from auditor.containers.safetensors_json import U64_MAX
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import DTYPE_BITS, Span, StoredTensor, names_fault

LENGTH_BYTES = 8
MAX_HEADER = 100_000_000  # bytes; the library's own limit

_SPAN = itemgetter(StoredTensor._fields.index("span"))
_SHOWN = 8  # dimensions that a message shows
_LOOKED_AT = 64 * 1024  # bytes of a header that must look like one before the rest is fetched
_AT_ONCE = 1024 * 1024  # characters of a header that are cut up together
_MAX_PAIRS = 100_000  # of metadata; true ones hold a few dozen
# Of a header that is not as writers write it: with escapes, white space, lists. They hold 43,000
# tensors, or as many numbers.
_MAX_EXACT_VALUES = 300_000
_WHITE = b" \t\n\r"
# An entry as writers write it: "name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
_NAME_END, _KIND_END, _ENTRY_END = '":{"dtype":"', '],"data_offsets":[', ']},"'
_QUOTES = 10  # of an entry
_KIND = re.compile(r'([A-Z0-9_]+)","shape":\[((?:(?:0|[1-9][0-9]*+)(?:,(?=[0-9])|\Z))*+)')
_DIMENSION = re.compile("[0-9]+")  # one at a time: a list of a million texts takes 50 MB
_TEXT = r'"([^"\\\x00-\x1f]*)"'
_PAIR = re.compile(f"{_TEXT}:{_TEXT},")
_PAIR_MARKS = len('"":"",')
_OPENING = re.compile(r'\{(?:"__metadata__":\{([^{}]*)\}(,?))?')
_CONTROL = bytes(byte for byte in range(0x20) if byte not in _WHITE)
_UNQUOTED = bytes(range(0x20))  # what no string may hold as it is


@dataclass(frozen=True, kw_only=True)
class Header:
    """What one safetensors file declares. Its tensors cover the data section without a gap."""

    file: str  # path inside the repo, "/" between folders
    metadata: tuple[tuple[str, str], ...]  # sorted by key
    tensors: tuple[StoredTensor, ...]  # sorted by name
    header_length: int  # bytes of JSON, without the eight of the length
    data_length: int  # bytes


class _Columns(NamedTuple):
    """The tensors of a header in its order, field by field."""

    names: list[str]
    kinds: list[str]  # dtype and shape: `F32","shape":[2,3`
    offsets: list[str]  # `0,24`


class _Parsed(NamedTuple):
    metadata: dict[str, str]
    tensors: list[StoredTensor]
    data_length: int


def header_span(file: str, prefix: bytes, size: int | None) -> Span:
    """The bytes of the JSON header, as the first bytes of the file and its size allow.

    Needs the first eight bytes; if more bytes are given, they must look like a header. So a file of
    another format is refused before anything is fetched or allocated for it.
    """
    if fault := lfs_fault(named(file), prefix):
        raise CheckpointError(fault)
    if len(prefix) < LENGTH_BYTES:
        raise CheckpointError(_too_short(file, len(prefix)))
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    span = Span(LENGTH_BYTES, LENGTH_BYTES + length)
    fault = _length_fault(length, size) or _start_fault(
        prefix[span.start : min(span.stop, _LOOKED_AT)]
    )
    if fault is None:
        return span
    # A length that can be true is one, whatever other format's signature its bytes spell.
    known = (
        None if _length_fault(length, size) and length <= MAX_HEADER else format_by_magic(prefix)
    )
    raise CheckpointError(f"{named(file)} {f'is {known}, not safetensors' if known else fault}")


def parse_header(file: str, prefix: bytes) -> Header:
    """The header that a file begins with; `prefix` may go on into the data."""
    span = header_span(file, prefix, None)
    view = memoryview(prefix)[span.start : span.stop]  # 100 MB are not copied once more
    if len(view) < span.length:
        raise CheckpointError(f"{named(file)} {_length_fault(span.length, len(prefix))}")
    if len(view) > MAX_VALUES and (fault := bounds_fault(bytes(view), safetensors_json.MAX_DEPTH)):
        raise CheckpointError(f"the header of {named(file)} {fault}")
    parsed = _canonical(file, view) or _exact(file, bytes(view))
    if fault := names_fault([tensor.name for tensor in parsed.tensors]):
        raise CheckpointError(f"the header of {named(file)} {fault}")
    return Header(
        file=file,
        metadata=tuple(sorted(parsed.metadata.items())),
        tensors=tuple(parsed.tensors),
        header_length=span.length,
        data_length=parsed.data_length,
    )


def size_fault(header: Header, size: int | None) -> str | None:
    """Why the file cannot have the `size` it has; None: it can, or the size is not known."""
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


def _too_short(file: str, size: int) -> str:
    if size == 0:
        return f"{named(file)} is empty: 0 bytes"
    return f"{named(file)} has {size} bytes, too few for the eight that give a header's length"


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
    """Why the bytes after the length cannot begin a JSON object."""
    body = start.lstrip(_WHITE)
    if body and not body.startswith(b"{"):
        return (
            f"has no safetensors header: its JSON begins with {repr(body[:1])[1:]}, not with '{{'"
        )
    if len(start.translate(None, _CONTROL)) != len(start):
        return "has no safetensors header: there are control bytes in its JSON"
    return None


def _canonical(file: str, content: memoryview) -> _Parsed | None:
    """A header as the library and its kin write them, fast. None: `_exact` has to read it."""
    body = bytes(content).rstrip(_WHITE)
    if b"\\" in body or len(body.translate(None, _UNQUOTED)) != len(body):
        return None
    try:
        return _cut_up(file, body.decode())
    except (ValueError, KeyError, CheckpointError):
        return None  # and so the text is let go before it is read again


def _cut_up(file: str, text: str) -> _Parsed:
    """The tensors of compact JSON; ValueError, KeyError or CheckpointError where it is not that.

    It is cut up at its quotes, and each column is looked at as a whole. 90,000 tensors take 0.1 s;
    json.loads takes 0.15 s, and leaves a dict for each tensor.
    """
    opening = _OPENING.match(text)
    if opening is None or not text.endswith("}", opening.end()):  # its own, not the metadata's
        raise ValueError
    metadata, comma = opening.groups()
    at, end = opening.end(), len(text) - 1
    if metadata is not None and (bool(comma) != (at < end) or metadata.count(",") > _MAX_PAIRS):
        raise ValueError
    pairs = _pairs(f"{metadata},") if metadata else {}
    columns = _Columns([], [], [])
    for entries in _entries(text, at, end):
        _extend(columns, entries)
    names = set(columns.names)
    if safetensors_json.METADATA in names or len(names) != len(columns.names):
        raise ValueError
    return _parsed(file, pairs, columns)


def _pairs(text: str) -> dict[str, str]:
    """The metadata; ValueError unless they are pairs of texts and nothing else.

    findall skips what it does not know. So the lengths of all groups, and of the marks around
    them, are added up: where they make the whole text, nothing was skipped.
    """
    found = _PAIR.findall(text)
    if sum(map(len, chain.from_iterable(found))) + len(found) * _PAIR_MARKS != len(text):
        raise ValueError
    return dict(found)


def _entries(text: str, at: int, end: int) -> Iterator[str]:
    """The tensors of a text from `at` to `end`, each with its comma, some thousand at a time.

    All at once they take four texts a tensor, more than what is kept of it.
    """
    while end - at > _AT_ONCE:
        stop = text.find(_ENTRY_END, at + _AT_ONCE, end)
        if stop < 0:
            break
        stop += len(_ENTRY_END) - 1  # the next one's quote
        yield text[at:stop]
        at = stop
    if at < end:
        yield f"{text[at:end]},"


def _extend(columns: _Columns, entries: str) -> None:
    """ValueError where a name could hold a quote; kinds and offsets are still to be looked at."""
    each = entries.removeprefix('"').removesuffix("]},").split(_ENTRY_END)
    if entries.count('"') != _QUOTES * len(each) or not entries.endswith("]},"):
        raise ValueError
    names, _, rest = zip(*map(str.partition, each, repeat(_NAME_END)), strict=True)
    kinds, _, offsets = zip(*map(str.partition, rest, repeat(_KIND_END)), strict=True)
    columns.names.extend(names)
    columns.kinds.extend(kinds)
    columns.offsets.extend(offsets)


def _exact(file: str, content: bytes) -> _Parsed:
    """Any header, field by field as serde reads it: the judge, and the source of the messages."""
    if fault := bounds_fault(content, safetensors_json.MAX_DEPTH, _MAX_EXACT_VALUES):
        raise CheckpointError(f"the header of {named(file)} {fault}")
    metadata, entries = safetensors_json.parse_fields(file, content)
    columns = _Columns([*entries], [], [])
    for entry in entries.values():
        shape, offsets = (",".join(map(str, entry[key])) for key in ("shape", "data_offsets"))
        columns.kinds.append(f'{entry["dtype"]}","shape":[{shape}')
        columns.offsets.append(offsets)
    return _parsed(file, metadata, columns)


def _parsed(file: str, metadata: dict[str, str], columns: _Columns) -> _Parsed:
    """The tensors of the columns; each of their kinds is measured once."""
    names, written, offsets = columns
    first = dict(zip(reversed(written), reversed(names), strict=True))  # of each kind, for messages
    known = {kind: _measured(file, first[kind], kind) for kind in dict.fromkeys(written)}
    kinds = [known[kind] for kind in written]
    stops = list(accumulate(kind.length for kind in kinds))
    spans = _successive(stops, offsets)
    in_order = spans is not None
    if spans is None:
        spans = [Span(*map(int, text.split(",", 1))) for text in offsets]
        if [f"{start},{stop}" for start, stop in spans] != offsets:
            raise ValueError  # for int() takes more than JSON does
    make = tuple.__new__  # takes half of what a NamedTuple's own constructor takes
    tensors = [
        make(StoredTensor, (name, dtype, shape, elements, file, span))
        for name, (dtype, shape, elements, _), span in zip(names, kinds, spans, strict=True)
    ]
    length = max(stops, default=0) if in_order else _covered(file, tensors, kinds)
    tensors.sort(key=itemgetter(0))
    return _Parsed(metadata, tensors, length)


def _successive(stops: list[int], offsets: list[str]) -> list[Span] | None:
    """The spans, where each tensor begins where the last one ends; None: they are others.

    As a rule they do, and then no number has to be read.
    """
    texts = list(map(str, stops))
    if list(map(",".join, zip(("0", *texts), texts, strict=False))) != offsets:
        return None
    return list(map(tuple.__new__, repeat(Span), zip((0, *stops), stops, strict=False)))


class _Kind(NamedTuple):
    """What tensors of one dtype and shape have in common."""

    dtype: str
    shape: tuple[int, ...]
    elements: int
    length: int  # bytes


def _measured(file: str, name: str, kind: str) -> _Kind:
    """What `F32","shape":[2,3` makes of a tensor; ValueError where it is not written plainly."""
    found = _KIND.fullmatch(kind)
    if found is None:
        raise ValueError
    dtype, shape = found.groups()
    dimensions = tuple(int(number[0]) for number in _DIMENSION.finditer(shape))
    elements = 1
    for dimension in dimensions:
        elements *= dimension
        if max(elements, dimension) > U64_MAX:  # multiplied from left to right, in 64 bits
            raise CheckpointError(_overflow(file, name, dtype, dimensions))
    bits = elements * DTYPE_BITS[dtype]
    if bits > U64_MAX:
        raise CheckpointError(_overflow(file, name, dtype, dimensions))
    if bits % 8:
        raise CheckpointError(
            f"{named(file)}: tensor {quoted(name)}, {_shaped(dtype, dimensions)}, takes "
            f"{bits:,} bits, which is not a whole number of bytes"
        )
    return _Kind(dtype, dimensions, elements, bits // 8)


def _covered(file: str, tensors: list[StoredTensor], kinds: list[_Kind]) -> int:
    """The length of the data section, which the tensors cover from 0 on, each byte once."""
    for tensor, kind in zip(tensors, kinds, strict=True):
        start, stop = _SPAN(tensor)
        if stop - start != kind.length:
            raise CheckpointError(_length_mismatch(file, tensor.name, kind, (start, stop)))
    end, before = 0, None
    for tensor in sorted(tensors, key=_SPAN):
        start, stop = _SPAN(tensor)
        if start != end:
            raise CheckpointError(_gap(file, tensor, start, end, before))
        end, before = stop, tensor
    return end


def _gap(file: str, tensor: StoredTensor, start: int, end: int, before: StoredTensor | None) -> str:
    last = f"tensor {quoted(before.name)} ends at {end:,}" if before else "the data begins at 0"
    what = f"leaves a gap of {start - end:,}" if start > end else "overlaps"
    return (
        f"{named(file)}: tensor {quoted(tensor.name)} begins at byte {start:,} of the data and "
        f"{what}: {last}, and each tensor has to begin where the last one ends"
    )


def _shaped(dtype: str, shape: tuple[int, ...]) -> str:
    shown = shape if len(shape) <= _SHOWN else (*shape[:_SHOWN], "...")
    return f"{dtype} [{', '.join(map(str, shown))}]"


def _overflow(file: str, name: str, dtype: str, shape: tuple[int, ...]) -> str:
    return (
        f"{named(file)}: tensor {quoted(name)}, {_shaped(dtype, shape)}, is too large: "
        f"its size in bits passes 2^64 - 1"
    )


def _length_mismatch(file: str, name: str, kind: _Kind, offsets: tuple[int, int]) -> str:
    start, stop = offsets
    tensor = f"{named(file)}: tensor {quoted(name)}, {_shaped(kind.dtype, kind.shape)},"
    if stop < start:
        return f"{tensor} has data_offsets [{start}, {stop}], which end before they begin"
    return (
        f"{tensor} takes {kind.length:,} bytes, but its data_offsets [{start}, {stop}] "
        f"span {stop - start:,}"
    )
