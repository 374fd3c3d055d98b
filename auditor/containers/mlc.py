"""The reader of MLC-LLM's ndarray-cache.json: parameters, and the shards that contain them."""

from collections.abc import Iterator
from math import prod

from auditor.bounded.json_text import load_object
from auditor.containers.index import shard_fault
from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.names.parts import file_name, folder_of
from auditor.tensors import Span, StoredTensor, dtype_as_stored

_CACHES = ("tensor-cache.json", "ndarray-cache.json")
_MOST = 16 * 1024 * 1024  # bytes
_MOST_VALUES = 1_000_000
_LONGEST = 2**40  # numbers along an axis


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the parameters and the needed shards, each with its number of bytes."""
    folder = folder_of(file)
    if file_name(file) not in _CACHES:  # mlc-chat-config.json
        return Table(file=file, tensors=())
    if sparse.size > _MOST:
        raise CheckpointError(f"it has {sparse.size:,} bytes, expected at most {_MOST:,}")
    content = sparse.read(Span(0, sparse.size))
    records = load_object(content, file, size=_MOST, values=_MOST_VALUES).value.get("records")
    tensors: list[StoredTensor] = []
    needs: list[NeededFile] = []
    for record in records if isinstance(records, list) else ():
        match record:
            case {"dataPath": str(path), "nbytes": int(least)}:
                if fault := shard_fault(path):
                    raise CheckpointError(f"{named(file)} names {quoted(path)}, which {fault}")
                needs.append(NeededFile(f"{folder}{path}", least))
                tensors.extend(_tensors(record.get("records"), needs[-1].path))
            case _:
                raise CheckpointError(f"{named(file)} has a record without dataPath and nbytes")
    return Table(
        file=file, tensors=tuple(sorted(tensors, key=lambda one: one.name)), needs=tuple(needs)
    )


def _tensors(rows: object, shard: str) -> Iterator[StoredTensor]:
    for row in rows if isinstance(rows, list) else ():
        match row:
            case {"name": str(name), "shape": list(shape), "dtype": str(dtype)} if all(
                type(size) is int and 0 <= size < _LONGEST for size in shape
            ):
                kind = dtype_as_stored(dtype)
                yield StoredTensor(name, kind, tuple(shape), prod(shape), shard, None)
