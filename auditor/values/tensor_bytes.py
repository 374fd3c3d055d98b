"""The bytes of tensors: their spans in the weight files, reading and comparing them.

All files on this machine can be read; of files on the Hub, a sample of spans is fetched.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from auditor.checkpoint.snapshot import Fetched, FileState, RepoFile, Snapshot, WeightHeader
from auditor.containers.gguf import GgufHeader
from auditor.containers.safetensors import LENGTH_BYTES, Header
from auditor.containers.weight_formats import Table
from auditor.downloader.local_file import BLOCK, RegularFile, open_regular_file
from auditor.downloader.model_argument import StoreAddress
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.tensors import Span, StoredTensor

_E8M0 = "F8_E8M0"
_SCALED = {"_scales": ("_blocks",), ".weight_scale": (".weight_packed", ".weight")}
_PACKED = frozenset(("U8", "F8_E4M3", "F8_E5M2"))


class Placed(NamedTuple):
    """A tensor, and the span of its bytes in a file."""

    tensor: StoredTensor
    path: Path  # the file; on the Hub relative to the repository
    span: Span  # within the file
    exponents: bool = False  # U8 whose bytes are exponents of scales, F8_E8M0
    state: FileState | None = None  # of a local file, when its header was read

    @property
    def dtype(self) -> str | None:
        """The format of the tensor's numbers."""
        return _E8M0 if self.exponents else self.tensor.dtype


def place_tensors(snapshot: Snapshot) -> tuple[tuple[Placed, ...], tuple[str, ...]]:
    """Return the tensors sorted by file and offset, and lines about tensors that are not read.

    A tensor that ends after the end of its file is left out: its header is broken, which another
    rule reports.
    """
    placed: list[Placed] = []
    left_out: list[str] = []
    folder = snapshot.folder or Path()
    for head in snapshot.headers:
        start = _data_start(head)
        if isinstance(start, str):
            left_out.append(start)
            continue
        tensors = [
            Placed(
                tensor,
                folder / head.name,
                Span(start + tensor.span.start, start + tensor.span.stop),
                state=head.state,
            )
            for tensor in (() if isinstance(head.parsed, CheckpointError) else head.parsed.tensors)
            if tensor.span is not None
        ]
        if isinstance(head.parsed, Table) and len(head.parsed.tensors) > len(tensors):
            left = len(head.parsed.tensors) - len(tensors)
            left_out.append(f"values of {left:,} tensors: they are in parts, in other files")
        inside = [one for one in tensors if head.size is None or one.span.stop <= head.size]
        if beyond := len(tensors) - len(inside):
            left_out.append(f"values of {beyond:,} tensors: {named(head.name)} ends before them")
        placed += sorted(inside, key=lambda one: (one.span, one.tensor.name))
    return tuple(_with_exponents(placed)), tuple(left_out)


def _with_exponents(placed: list[Placed]) -> Iterator[Placed]:
    """Yield the tensors, and mark U8 tensors that are scales of microscaling formats.

    They are recognised by the scaled tensor: gpt-oss has X_scales for X_blocks, compressed-tensors
    has X.weight_scale for an X.weight_packed of 4 or 6 bits, or for an X.weight of 8 bits.
    """
    dtype_by_name = {one.tensor.name: one.tensor.dtype for one in placed}
    for tensor in placed:
        name = tensor.tensor.name
        scaled_dtypes = {
            dtype_by_name.get(name.removesuffix(end) + other)
            for end, others in _SCALED.items()
            if name.endswith(end)
            for other in others
        }
        is_exponents = tensor.tensor.dtype == "U8" and bool(scaled_dtypes & _PACKED)
        yield tensor._replace(exponents=True) if is_exponents else tensor


def _data_start(head: WeightHeader) -> int | str:
    """Return the file offset of the tensor data, or the reason why its numbers are not read."""
    parsed, what = head.parsed, f"values of {named(head.name)}"
    match parsed:
        case Header():
            return LENGTH_BYTES + parsed.header_length
        case GgufHeader():
            return f"{what}: it is big-endian" if parsed.big_endian else parsed.data_start
        case Table():
            if parsed.faults or parsed.size_faults:
                return f"{what}: the file is broken"
            return 0
        case _:
            return f"{what}: its header cannot be read"


def first_by_name(placed: Sequence[Placed]) -> dict[str, Placed]:
    """Return the tensors by name; the first file's tensor if several files have one name."""
    return {one.tensor.name: one for one in reversed(placed)}


# --- reading ------------------------------------------------------------------------------------


class TensorBytes(Protocol):
    """An interface to the bytes of tensors that can be read."""

    def fill(self, tensor: Placed, start: int, block: memoryview) -> bool:
        """Fill the block with the tensor's bytes from `start`; return whether they were read."""

    def runs(self, tensor: Placed) -> tuple[Span, ...]:
        """Return the spans of a tensor that can be read, relative to the tensor's start."""


class LocalBytes:
    """The bytes of open local files."""

    def __init__(self, files: Mapping[Path, RegularFile]) -> None:
        self.files = files

    def fill(self, tensor: Placed, start: int, block: memoryview) -> bool:
        self.files[tensor.path].read_into(block, tensor.span.start + start)
        return True

    def runs(self, tensor: Placed) -> tuple[Span, ...]:
        return (Span(0, tensor.span.length),)


@contextmanager
def opened(placed: Iterable[Placed]) -> Iterator[LocalBytes]:
    """Open the local files that hold the tensors.

    Raise SourceError if a file has changed since its header was read, or changes while it is open.
    """
    states = {one.path: one.state for one in placed}
    with ExitStack() as stack:
        files = {
            path: stack.enter_context(open_regular_file(path, state))
            for path, state in sorted(states.items())
        }
        yield LocalBytes(files)
        for file in files.values():
            file.require_unchanged()


class PlannedSpan(NamedTuple):
    """A span of a file that a sample reads."""

    path: Path
    span: Span


class SampledBytes:
    """The bytes of fetched spans; spans of one file do not touch each other."""

    def __init__(self, parts: Iterable[tuple[PlannedSpan, bytes]]) -> None:
        self.size = 0
        self._parts: dict[Path, list[tuple[Span, memoryview]]] = {}
        for (path, span), data in parts:
            self.size += len(data)
            self._parts.setdefault(path, []).append((span, memoryview(data)))

    def fill(self, tensor: Placed, start: int, block: memoryview) -> bool:
        first = tensor.span.start + start
        for part, data in self._parts.get(tensor.path, ()):
            if part.start <= first and first + len(block) <= part.stop:
                block[:] = data[first - part.start :][: len(block)]
                return True
        return False

    def runs(self, tensor: Placed) -> tuple[Span, ...]:
        first = tensor.span.start
        parts = (part for part, _ in self._parts.get(tensor.path, ()))
        common = _intersections(parts, (tensor.span,))
        return tuple(Span(span.start - first, span.stop - first) for span in common)


def fetch_sample(
    snapshot: Snapshot,
    planned: Sequence[PlannedSpan],
    token: str | None,
    say: Callable[[str], None],
) -> tuple[SampledBytes, Fetched]:
    """Read the planned spans of weight files of the Hub or a store; return bytes and cost."""
    file_by_path = {
        Path(head.name): RepoFile(name=head.name, size=head.size) for head in snapshot.headers
    }
    spans = [(file_by_path[path], span) for path, span in planned]
    if snapshot.version is not None:
        from auditor.downloader import store  # noqa: PLC0415 - 0.1 s

        address = StoreAddress(snapshot.model)
        parts, fetched = store.read_spans(address, snapshot.version, spans, token=token, say=say)
    else:
        from auditor.downloader import hub  # noqa: PLC0415 - likewise

        commit = snapshot.commit or ""
        parts, fetched = hub.read_spans(snapshot.model, commit, spans, token=token, say=say)
    return SampledBytes(zip(planned, parts, strict=True)), fetched


def readable_units(data: TensorBytes, tensor: Placed, unit: int) -> Iterator[Span]:
    """Yield the spans of a tensor that can be read, cut to complete units of `unit` bytes."""
    for run in data.runs(tensor):
        start, stop = -(-run.start // unit) * unit, run.stop // unit * unit
        if start < stop:
            yield Span(start, stop)


# --- comparing ----------------------------------------------------------------------------------


def equal_bytes(
    data: TensorBytes, tensor: Placed, other_data: TensorBytes, other: Placed
) -> tuple[bool, int]:
    """Return whether the bytes that can be read of both tensors are equal, and how many there are.

    The count ends at the first block that differs. Memory for two blocks is needed.
    """
    block, other_block, size = bytearray(), bytearray(), 0
    for span in _intersections(data.runs(tensor), other_data.runs(other)):
        for start in range(span.start, span.stop, BLOCK):
            length = min(BLOCK, span.stop - start)
            if length != len(block):
                block, other_block = bytearray(length), bytearray(length)
            data.fill(tensor, start, memoryview(block))
            other_data.fill(other, start, memoryview(other_block))
            size += length
            if block != other_block:
                return False, size
    return True, size


def comparable_bytes(data: TensorBytes, tensor: Placed, other: Placed) -> int:
    """Count the bytes that can be read of both tensors at the same offsets."""
    common = _intersections(data.runs(tensor), data.runs(other))
    return sum(span.length for span in common)


def _intersections(runs: Iterable[Span], other_runs: Sequence[Span]) -> Iterator[Span]:
    """Yield the intersections of two sorted sequences of spans."""
    for run in runs:
        for other in other_runs:
            start, stop = max(run.start, other.start), min(run.stop, other.stop)
            if start < stop:
                yield Span(start, stop)
