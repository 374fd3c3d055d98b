"""Read only the header of a weight file, from any source that can read byte ranges."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec import field
from msgspec.structs import replace

from auditor.checkpoint.snapshot import WeightHeader
from auditor.checkpoint.snapshot_reader import (
    MAX_ALL_TENSORS,
    MAX_HEADER,
    MAX_HEADERS,
    MAX_PARTS,
    MAX_TENSORS,
)
from auditor.containers.safetensors import header_span
from auditor.containers.weight_formats import (
    END,
    START,
    FilePart,
    NeedsBytes,
    Parse,
    PartialFile,
    merged_parts,
    parser,
    parser_by_content,
)
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import quoted
from auditor.tensors import Span

# Bytes of the first read. A connection starts with ten segments of 1,460 bytes and doubles:
# 14,600 bytes arrive in one round trip, 43,800 in two. 82 % of the headers of the Hub's top
# thousand models are below 25 kB (BERT's has 24,056 bytes with its length) and 97 % below
# 100 kB, so one round trip is too short for most, and 40 KiB costs no more round trips than
# 24 KiB; the 2,840 bytes left over are for HTTP headers. A longer weight header costs a
# second request through the redirect.
FIRST_READ = 40 * 1024

# If an index names a shard's tensors, the first read is as long as their entries will be: the name
# and some 82 bytes, `"":{"dtype":"BF16","shape":[151936,4096],"data_offsets":[...]},` with
# offsets of ten digits; 96 leaves room for longer shapes. 4 KiB more are for the metadata. If the
# guess is too short, a second request is needed.
ENTRY = 96
ROOM = 4 * 1024


# Files of other formats are read where their parsers need bytes, at least this many at a time: a
# round trip takes longer than 64 KiB. The data.pkl at the start of a torch file and the directory
# at its end have both 20 to 60 kB for the usual shard of 300 tensors.
AHEAD = 64 * 1024

# The most reads of one such file. A torch file takes two or three reads; a legacy torch file or
# GGUF, whose reads double, eight for the longest header known: 16 MB of GGUF with 262,000 tokens
# and 515,000 merges.
MOST_READS = 16

# A file on this machine is also read at many places, in steps of a page: a Flax checkpoint has a
# header before each of its tensors, and a large model 1,000 of them.
NEAR, MOST_NEAR_READS = 4 * 1024, 20_000


class Bound(NamedTuple):
    """The largest size and number of tensors of safetensors headers."""

    scope: str  # "one file"
    size: int  # bytes
    tensors: int


FILE = Bound("one file", MAX_HEADER, MAX_TENSORS)
MODEL = Bound("one model", MAX_HEADERS, MAX_ALL_TENSORS)


def within_bound(heads: Iterable[WeightHeader]) -> Iterator[WeightHeader]:
    """Yield the headers; raise SourceError(too-large) if a header or all together are too large."""
    size, tensors = 0, 0
    for count, head in enumerate(heads, 1):
        own_tensors = head.most_tensors
        observed = f"the header of {quoted(head.name)} has"
        _require(FILE, observed, len(head.prefix), own_tensors)
        size += head.length
        tensors += own_tensors
        if count > 1:
            observed = f"the headers of {count:,} files have"
        _require(MODEL, observed, size, tensors)
        yield head


def _require(bound: Bound, observed: str, size: int, tensors: int) -> None:
    if tensors > bound.tensors:
        excess = f"{tensors:,} tensors, expected at most {bound.tensors:,}"
    elif size > bound.size:
        excess = f"{size:,} bytes, expected at most {bound.size:,}"
    else:
        return
    raise SourceError(Reason.TOO_LARGE, f"{observed} {excess} of {bound.scope}")


class Received(NamedTuple):
    """Bytes of a file, and the complete file's size if it is known."""

    data: bytes
    size: int | None


# Reads a span. A source that can only read from the start (it answers 200 instead of 206) calls
# `end` with the bytes it has so far, and reads up to the offset that `end` returns.
Read = Callable[[Span, Callable[[bytes, int | None], int]], Received]


def read_header(
    name: str,
    size: int | None,
    read: Read,
    first: int = FIRST_READ,
    *,
    nearby: Callable[[Span], bytes] | None = None,
) -> WeightHeader:
    """Read the header of a weight file in as few reads as its format allows."""
    parse = parser(name)
    if parse is None:
        return read_safetensors_header(name, size, read, first)
    return read_parsed_header(name, size, read, parse, nearby=nearby)


def read_safetensors_header(
    name: str, size: int | None, read: Read, first: int = FIRST_READ
) -> WeightHeader:
    """Read the length field and the header: in one read if both fit in `first` bytes, else in two.

    If the length is not credible, return only the first read, in which the parser finds the fault.
    """
    end = safetensors_end(name)
    if size == 0:
        return WeightHeader(name=name, size=0, prefix=b"")
    data, total = read(Span(0, first if size is None else min(size, first)), end)
    stop = end(data, total)
    if stop > len(data):
        data += read(Span(len(data), stop), end).data
    return WeightHeader(name=name, size=total, prefix=data[:stop])


def safetensors_end(name: str) -> Callable[[bytes, int | None], int]:
    """Return a function that computes a header's end from the file's first bytes and its size."""

    def end(head: bytes, size: int | None) -> int:
        try:
            stop = header_span(name, head, size).stop
        except CheckpointError:
            return len(head)
        _require(FILE, f"the header of {quoted(name)} has", stop, 0)
        return stop

    return end


def read_by_content(name: str, size: int, read: Callable[[Span], bytes]) -> WeightHeader:
    """Read what shows whether a local file may run code, and its format, whatever its name."""
    spans = {Span(0, min(size, START)), Span(max(0, size - END), size)}
    parts = merged_parts(FilePart(span.start, read(span)) for span in spans if span.length)
    head = read_parsed_header(
        name,
        size,
        lambda span, _: Received(read(span), size),
        parser_by_content(),
        parts,
        nearby=read,
    )
    return replace(head, by_content=True)


def read_parsed_header(  # noqa: PLR0913 - a file, how it is read, and what was read of it
    name: str,
    size: int | None,
    read: Read,
    parse: Parse,
    parts: tuple[FilePart, ...] = (),
    *,
    nearby: Callable[[Span], bytes] | None = None,
) -> WeightHeader:
    """Fetch the bytes of a file that `parse` reads, and no others.

    Stop early if the file needs more reads or bytes than any genuine file does;
    `WeightHeader.parsed` is then an error. Raise SourceError if the file's size is not known.
    `nearby` reads a span of a file on this machine, where many short reads cost little.
    """
    if size is None:
        data, size = read(Span(0, AHEAD), _requested_end)
        if size is None:
            detail = f"the size of {quoted(name)} is unknown, so its end cannot be read"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        parts = (FilePart(0, data),)
    window = None if nearby is None else _Window(nearby, size)
    for _ in range(MOST_READS):
        recorded = _Recorded(size, parts, window)
        try:
            table = parse(name, recorded)
            return WeightHeader(name=name, size=size, parts=recorded.used(), known=table)
        except CheckpointError as error:
            fault = error.with_traceback(None)  # its frames hold all that was read
            return WeightHeader(name=name, size=size, parts=recorded.used(), known=fault)
        except NeedsBytes as needs:
            span = _ahead(needs.span, recorded)
        if span.length + sum(len(part.data) for part in parts) > MAX_PARTS:
            break
        parts = merged_parts((*parts, FilePart(span.start, read(span, _requested_end).data)))
    return WeightHeader(name=name, size=size, parts=recorded.used())


class _Window:
    """The last bytes read of a file on this machine; reads are as short as its parser needs."""

    def __init__(self, read: Callable[[Span], bytes], size: int) -> None:
        self._read, self._size = read, size
        self._part = FilePart(0, b"")
        self._reads = 0

    def read(self, span: Span) -> bytes:
        """Return the bytes of a span; raise NeedsBytes if it is long or after too many reads."""
        if not self._part.start <= span.start <= span.stop <= self._part.stop:
            if self._reads >= MOST_NEAR_READS or span.length > AHEAD:
                raise NeedsBytes(span)
            self._reads += 1
            stop = min(max(span.stop, span.start + NEAR), self._size)
            self._part = FilePart(span.start, self._read(Span(span.start, stop)))
        return self._part.data[span.start - self._part.start : span.stop - self._part.start]


class _Recorded(PartialFile, frozen=True):
    """A partly fetched file that records the bytes which the parser reads."""

    _window: _Window | None = None
    _spans: list[tuple[int, bytearray]] = field(default_factory=list)  # adjacent reads are joined

    def read(self, span: Span) -> bytes:
        try:
            data = super().read(span)
        except NeedsBytes:
            if self._window is None:
                raise
            data = self._window.read(span)
        if self._spans:
            start, last = self._spans[-1]
            if start <= span.start <= start + len(last):
                last += data[start + len(last) - span.start :]
                return data
        self._spans.append((span.start, bytearray(data)))
        return data

    def used(self) -> tuple[FilePart, ...]:
        """Return the bytes that the parser read, in file order; adjacent spans are merged."""
        return merged_parts(FilePart(start, bytes(data)) for start, data in self._spans if data)


def _requested_end(data: bytes, _size: int | None) -> int:
    """Return where to stop reading if a server ignores the range: at the end of `data`."""
    return len(data)


def _ahead(span: Span, sparse: PartialFile) -> Span:
    """Return the next span to read: the missing part of `span`, extended to AHEAD bytes.

    At the end of the file it is extended backwards, because a zip archive's directory is there.
    """
    earlier = [part for part in sparse.parts if part.start <= span.start]
    later = [part for part in sparse.parts if span.start < part.start and span.stop <= part.stop]
    read_up_to = earlier[-1].stop if earlier else 0
    start = max(span.start, read_up_to)
    stop = min(span.stop, later[0].start) if later else span.stop
    if stop == sparse.size:
        return Span(max(read_up_to, min(start, stop - AHEAD)), stop)
    return Span(start, min(max(stop, start + AHEAD), sparse.size))
