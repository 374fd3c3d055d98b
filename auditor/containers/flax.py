"""The reader of Flax's msgpack files: the headers of arrays, under the names that torch has.

By flax/serialization.py: maps of arrays; an array is an extension of type 1 that contains a shape,
a dtype and the bytes, which are skipped. An array above 2^30 bytes is a map of chunks. Names and
axes are translated as transformers 4 does (modeling_flax_pytorch_utils.py).
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.containers.weight_formats import PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.tensors import Span, StoredTensor, dtype_as_stored

_MOST_VALUES = 400_000
_DEEPEST = 64
_LONGEST_TEXT = 4096
_MOST_DIMENSIONS = 64
_LONGEST = 2**40  # numbers along an axis
_ARRAY = 1
_COLLECTIONS = ("params", "batch_stats")
_WEIGHTS = frozenset({"kernel", "scale", "embedding"})
_STATISTICS = {"mean": "running_mean", "var": "running_var"}
# The bytes of numbers by their first byte: floats, unsigned and signed integers.
_NUMBERS = {
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
}
_LENGTHS = {  # first byte -> kind, and the bytes of its length
    0xC4: ("bytes", 1),
    0xC5: ("bytes", 2),
    0xC6: ("bytes", 4),
    0xC7: ("extension", 1),
    0xC8: ("extension", 2),
    0xC9: ("extension", 4),
    0xD9: ("text", 1),
    0xDA: ("text", 2),
    0xDB: ("text", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class _Array(NamedTuple):
    shape: tuple[int, ...]
    dtype: str


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the arrays of a Flax file, as tensors with torch's names and shapes."""
    reader = _Reader(sparse)
    try:
        tree = reader.value(0)
    except EOFError as error:
        fault = f"{named(file)} is truncated after {sparse.size:,} bytes: {error}"
        raise CheckpointError(fault) from None
    if not isinstance(tree, Mapping):
        raise CheckpointError(f"{named(file)} is not a map of arrays")
    arrays = {path: one for path, one in _leaves(tree, ()) if path}
    has_collections = any(path[0] == "params" for path in arrays)
    tensors = {}
    for path, array in arrays.items():
        if not has_collections or path[0] in _COLLECTIONS:
            name, shape = as_in_torch(path[1:] if has_collections else path, array.shape)
            dtype = dtype_as_stored(array.dtype)
            tensors[name] = StoredTensor(name, dtype, shape, prod(shape), file, None)
    note = f"{named(file)}: names and axes are those that from_flax=True of transformers 4 gives"
    faults: tuple[str, ...] = ()
    if reader.at < sparse.size:
        fault = f"{named(file)} has {sparse.size:,} bytes, expected {reader.at:,}"
        faults = (fault,)
    ordered = tuple(tensors[name] for name in sorted(tensors))
    return Table(file=file, tensors=ordered, notes=(note,), size_faults=faults)


def as_in_torch(path: tuple[str, ...], shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the name and shape that transformers gives an array of a Flax model."""
    *modules, leaf = path
    if leaf == "kernel":
        shape = shape[::-1] if len(shape) != 4 else tuple(shape[axis] for axis in (3, 2, 0, 1))  # noqa: PLR2004
    leaf = "weight" if leaf in _WEIGHTS else _STATISTICS.get(leaf, leaf)
    return ".".join((*modules, leaf)), shape


def _leaves(
    tree: Mapping[str, object], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], _Array]]:
    for key, value in tree.items():
        match value:
            case _Array():
                yield (*path, key), value
            case {"__msgpack_chunked_array__": _, "shape": dict(sizes), "chunks": dict(chunks)}:
                first = next((one for one in chunks.values() if isinstance(one, _Array)), None)
                if first is not None:
                    shape = tuple(filter(_is_size, sizes.values()))
                    yield (*path, key), _Array(shape, first.dtype)
            case dict():
                yield from _leaves(value, (*path, key))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _LONGEST


class _Reader:
    """A reader of one file, from its start on; EOFError: the file ends before a value does."""

    def __init__(self, sparse: PartialFile) -> None:
        self._sparse = sparse
        self._budget = _MOST_VALUES
        self.at = 0

    def value(self, depth: int) -> object:
        """Return a map, a text, a number or an array's header; None for anything else."""
        self._budget -= 1
        if self._budget < 0 or depth > _DEEPEST:
            raise CheckpointError(f"it has more than {_MOST_VALUES:,} values or {_DEEPEST} levels")
        first = self._number(1)
        kind, length = _kind(first)
        if kind == "lengthy":
            kind, width = _LENGTHS[first]
            length = self._number(width)
        result: object = None
        match kind:
            case "number":
                result = length
            case "read":
                result = self._number(length)
            case "map":
                result = self._map(length, depth)
            case "list":
                result = [self.value(depth + 1) for _ in range(self._possible(length))]
            case "text":
                result = self._take(self._short(length)).decode(errors="replace")
            case "bytes":
                self._skip(length)
            case "extension":
                result = self._extension(length, depth)
        return result

    def _map(self, count: int, depth: int) -> dict[str, object]:
        items: dict[str, object] = {}
        for _ in range(self._possible(count)):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                raise CheckpointError(f"a key before byte {self.at:,} is not a text")
            items[key] = self.value(depth + 1)
        return items

    def _extension(self, length: int, depth: int) -> _Array | None:
        code, start = self._number(1), self.at
        if code != _ARRAY:
            self._skip(length)
            return None
        match self.value(depth + 1):
            case [list(shape), str(dtype), None] if len(shape) <= _MOST_DIMENSIONS and all(
                _is_size(size) for size in shape
            ):
                if self.at != start + length:
                    raise CheckpointError(f"the array at byte {start:,} has a wrong length")
                return _Array(tuple(shape), dtype)
            case _:
                raise CheckpointError(f"the array at byte {start:,} has no shape and dtype")

    def _possible(self, count: int) -> int:
        if self.at + count > self._sparse.size:
            raise EOFError(f"{count:,} values are declared at byte {self.at:,}")
        return count

    def _short(self, length: int) -> int:
        if length > _LONGEST_TEXT:
            raise CheckpointError(f"a name before byte {self.at:,} has {length:,} bytes")
        return length

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _take(self, length: int) -> bytes:
        start = self.at
        self._skip(length)
        return self._sparse.read(Span(start, self.at))

    def _skip(self, length: int) -> None:
        if self.at + length > self._sparse.size:
            raise EOFError(f"{length:,} bytes are declared at byte {self.at:,}")
        self.at += length


def _kind(first: int) -> tuple[str, int]:
    """Return the kind of a value by its first byte, and its length or number if that has it."""
    if first < 0x80 or first >= 0xE0:  # noqa: PLR2004 - of the format, as below
        return "number", first if first < 0x80 else first - 0x100  # noqa: PLR2004
    if first < 0xC0:  # noqa: PLR2004
        kinds = (("map", 0x80, 15), ("list", 0x90, 15), ("text", 0xA0, 31))
        return next((kind, first - at) for kind, at, most in reversed(kinds) if first >= at)
    if first in _NUMBERS:
        return "read", _NUMBERS[first]
    if first in _FIXED_EXTENSIONS:
        return "extension", _FIXED_EXTENSIONS[first]
    if first in _LENGTHS:
        return "lengthy", 0
    return "nothing", 0
