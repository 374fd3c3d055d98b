"""The reader of ONNX graphs: the initializers, and the files of external data that they name.

A graph is a protobuf message; numbers of fields are those of onnx.proto3 (ModelProto, GraphProto,
NodeProto, AttributeProto, TensorProto). A tensor's bytes are in the graph, or at an offset of a
file beside it, with a length. Only headers of fields are read, never the bytes of a large tensor.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from auditor.containers.index import shard_fault
from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import quoted
from auditor.names.parts import folder_of
from auditor.tensors import DTYPE_BITS, Span, StoredTensor

_GRAPH, _NODE, _INITIALIZER, _ATTRIBUTE = 7, 1, 5, 5
_SUBGRAPH, _SUBGRAPHS = 6, 11  # of an attribute: the branches of an If, the body of a Loop
_DTYPES = {1: "F32", 2: "U8", 3: "I8", 4: "U16", 5: "I16", 6: "I32", 7: "I64", 9: "BOOL"} | {
    10: "F16",
    11: "F64",
    12: "U32",
    13: "U64",
    16: "BF16",
    17: "F8_E4M3",
    19: "F8_E5M2",
}
_MOST_FIELDS = 3_000_000  # the graph of a 70B model has 200,000
_DEEPEST = 8  # graphs in graphs
_SHORT, _HEADER = 4096, 20  # bytes that are read at once: a short message; a field's key and length
_LONGEST_TEXT = 4096
_MOST_DIMENSIONS = 64


class _Field(NamedTuple):
    number: int
    value: int  # of a varint; 0 for others
    span: Span  # the content of a message, a string or bytes; empty for numbers


def parse(file: str, sparse: PartialFile) -> Table | None:
    """Return the initializers; None for a file without a graph."""
    walk = _Walk(file, sparse)
    graphs = [one for one in walk.fields(Span(0, sparse.size)) if one.number == _GRAPH]
    if not graphs:
        return None
    for graph in graphs:
        walk.read_graph(graph.span, 0)
    tensors = sorted(walk.tensors.values(), key=lambda one: one.name)
    needs = (NeededFile(path, least) for path, least in sorted(walk.external.items()))
    return Table(file=file, tensors=tuple(tensors), needs=tuple(needs))


class _Walk:
    """A walk through the messages of one file, with one budget of fields."""

    def __init__(self, file: str, sparse: PartialFile) -> None:
        self._file, self._sparse = file, sparse
        self._budget = _MOST_FIELDS
        self.tensors: dict[str, StoredTensor] = {}
        self.external: dict[str, int] = {}  # path -> the bytes that the file needs to have

    def fields(self, span: Span) -> Iterator[_Field]:
        """Yield the fields of a message; raise CheckpointError where it breaks the format."""
        at = span.start
        near, near_at = b"", at
        while at < span.stop:
            self._budget -= 1
            if self._budget < 0:
                raise CheckpointError(f"it has more than {_MOST_FIELDS:,} fields")
            if at + _HEADER > near_at + len(near) or at < near_at:
                length = _SHORT if span.length <= _SHORT else _HEADER
                near, near_at = self._sparse.read(Span(at, min(at + length, span.stop))), at
            key, offset = _varint(near, at - near_at)
            value, start = 0, near_at + offset
            match key & 7:
                case 0:
                    value, offset = _varint(near, offset)
                    start = stop = near_at + offset
                case 1 | 5 as wire:
                    stop = start = start + (8 if wire == 1 else 4)
                case 2:
                    length, offset = _varint(near, offset)
                    start = near_at + offset
                    stop = start + length
                case wire:
                    raise CheckpointError(f"the field at byte {at:,} has the wire type {wire}")
            if stop > span.stop:
                raise CheckpointError(
                    f"it is truncated: a field at byte {at:,} ends at byte {stop:,}, "
                    f"beyond byte {span.stop:,}"
                )
            yield _Field(key >> 3, value, Span(start, stop))
            at = stop

    def read_graph(self, span: Span, depth: int) -> None:
        if depth > _DEEPEST:
            raise CheckpointError(f"its graphs are nested more than {_DEEPEST} deep")
        for one in self.fields(span):
            if one.number == _INITIALIZER:
                self._read_tensor(one.span)
            elif one.number == _NODE:
                attributes = (each for each in self.fields(one.span) if each.number == _ATTRIBUTE)
                for attribute in attributes:
                    for each in self.fields(attribute.span):
                        if each.number in {_SUBGRAPH, _SUBGRAPHS} and each.span.length:
                            self.read_graph(each.span, depth + 1)

    def _read_tensor(self, span: Span) -> None:
        name, dtype, shape = "", 0, []
        entries: dict[str, str] = {}
        for one in self.fields(span):
            match one.number:
                case 1 if one.span.length:  # packed
                    data = self._read(one.span)
                    offset = 0
                    while offset < len(data):
                        size, offset = _varint(data, offset)
                        shape.append(size)
                case 1:
                    shape.append(one.value)
                case 2:
                    dtype = one.value
                case 8:
                    name = self._read(one.span).decode(errors="replace")
                case 13:
                    texts = [
                        self._read(each.span).decode(errors="replace")
                        for each in self.fields(one.span)
                    ]
                    key, value = (*texts, "", "")[:2]
                    entries[key] = value
        if len(shape) > _MOST_DIMENSIONS:
            raise CheckpointError(f"{quoted(name)} has {len(shape):,} dimensions")
        kind = _DTYPES.get(dtype)
        elements = prod(shape)
        self.tensors[name] = StoredTensor(name, kind, tuple(shape), elements, self._file, None)
        if "location" in entries:
            self._add_external(name, entries, elements * DTYPE_BITS.get(kind or "", 0) // 8)

    def _add_external(self, name: str, entries: dict[str, str], size: int) -> None:
        location = entries["location"].removeprefix("./")
        if fault := shard_fault(location):
            raise CheckpointError(
                f"the external data of {quoted(name)} are in {quoted(location)}, which {fault}"
            )
        try:
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or size)
        except ValueError:
            raise CheckpointError(f"the place of {quoted(name)} is not a number") from None
        path = f"{folder_of(self._file)}{location}"
        self.external[path] = max(self.external.get(path, 0), offset + length)

    def _read(self, span: Span) -> bytes:
        if span.length > _LONGEST_TEXT:
            raise CheckpointError(f"a name or shape has {span.length:,} bytes")
        return self._sparse.read(span)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that more follows
            return value, at + place + 1
    raise CheckpointError("a number in it does not end")
