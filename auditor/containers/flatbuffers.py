"""The reader of ExecuTorch's .pte and of TFLite: how many bytes they need to have.

An .pte begins with a header (`eh00`: the sizes of the program and of the segments behind it). A
TFLite model is a table of the flatbuffer format: field 4 are its buffers, and field 0 of a buffer
its bytes, or fields 1 and 2 their offset and length in the file.
"""

from auditor.containers.weight_formats import PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.tensors import Span

_HEADER = b"eh00"
_BUFFERS = 4
_MOST_BUFFERS = 200_000
_WITH_DATA_SIZE = 32  # bytes of the header from which on it has the size of the segments


def parse(file: str, sparse: PartialFile) -> Table:
    """Return a table without tensors, with a fault if the file ends too soon."""
    start = sparse.read(Span(0, min(sparse.size, 40)))
    least = _end_of_buffers(sparse) if start[4:8] == b"TFL3" else _end_of_segments(start)
    fault = f"{named(file)} is truncated: it has {sparse.size:,} bytes, expected {least:,} or more"
    return Table(file=file, tensors=(), size_faults=(fault,) if sparse.size < least else ())


def _end_of_segments(start: bytes) -> int:
    if start[8:12] != _HEADER:
        return 0
    length = int.from_bytes(start[12:16], "little")
    program, base, data = (int.from_bytes(start[at : at + 8], "little") for at in (16, 24, 32))
    return max(program, base + (data if length >= _WITH_DATA_SIZE else 0))


def _end_of_buffers(sparse: PartialFile) -> int:
    def number(at: int, width: int = 4) -> int:
        if at + width > sparse.size:
            raise _BeyondError(at + width)
        return int.from_bytes(sparse.read(Span(at, at + width)), "little")

    def field(table: int, place: int) -> int:
        """Return the position of a field's value; 0 if the table does not have it."""
        vtable = table - int.from_bytes(number(table).to_bytes(4, "little"), "little", signed=True)
        if vtable < 0:
            raise CheckpointError(f"the table at byte {table:,} has no fields")
        entry = 4 + 2 * place
        offset = number(vtable + entry, 2) if entry + 2 <= number(vtable, 2) else 0
        return table + offset if offset else 0

    try:
        buffers = field(number(0), _BUFFERS)
        buffers += number(buffers) if buffers else 0
        count = number(buffers) if buffers else 0
        if count > _MOST_BUFFERS:
            raise CheckpointError(f"it has {count:,} buffers, expected at most {_MOST_BUFFERS:,}")
        ends = [sparse.size]
        for place in range(count):
            at = buffers + 4 + 4 * place
            table = at + number(at)
            if data := field(table, 0):
                data += number(data)
                ends.append(data + 4 + number(data))
            if (outside := field(table, 1)) and (size := field(table, 2)):
                ends.append(number(outside, 8) + number(size, 8))
    except _BeyondError as error:
        return error.stop
    return max(ends)


class _BeyondError(Exception):
    """The error for a position beyond the end of the file."""

    def __init__(self, stop: int) -> None:
        super().__init__()
        self.stop = stop
