"""The span of each tensor's bytes in the weight files."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from auditor.checkpoint.snapshot import FileState, Snapshot, WeightHeader
from auditor.containers.gguf import GgufHeader
from auditor.containers.safetensors import LENGTH_BYTES, Header
from auditor.containers.weight_formats import Table
from auditor.downloader.local_file import RegularFile, open_regular_file
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


def place_tensors(snapshot: Snapshot, folder: Path) -> tuple[tuple[Placed, ...], tuple[str, ...]]:
    """Return the tensors sorted by file and offset, and lines about tensors that are not read.

    A tensor that ends after the end of its file is left out: its header is broken, which another
    rule reports.
    """
    placed: list[Placed] = []
    left_out: list[str] = []
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
            for tensor in _tensors(head)
            if tensor.span is not None
        ]
        inside = [one for one in tensors if head.size is None or one.span.stop <= head.size]
        if beyond := len(tensors) - len(inside):
            left_out.append(f"values of {beyond:,} tensors: {named(head.name)} ends before them")
        placed += sorted(inside, key=lambda one: (one.span, one.tensor.name))
    return tuple(_with_exponents(placed)), tuple(left_out)


@contextmanager
def open_files(placed: Iterable[Placed]) -> Iterator[Mapping[Path, RegularFile]]:
    """Open the local files that hold the tensors.

    Raise SourceError if a file has changed since its header was read, or changes while it is open.
    """
    states = {one.path: one.state for one in placed}
    with ExitStack() as stack:
        files = {
            path: stack.enter_context(open_regular_file(path, state))
            for path, state in sorted(states.items())
        }
        yield files
        for file in files.values():
            file.require_unchanged()


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


def _tensors(head: WeightHeader) -> Iterable[StoredTensor]:
    return () if isinstance(head.parsed, CheckpointError) else head.parsed.tensors


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
