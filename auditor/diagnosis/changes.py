"""Changes of a snapshot in memory: other names, shapes or files, another value in the config."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from math import prod
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from msgspec import DecodeError, Raw
from msgspec.json import decode, encode
from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot, TextFile, WeightHeader
from auditor.containers.weight_formats import Table
from auditor.errors import CheckpointError
from auditor.tensors import Span, StoredTensor

_INDEX = "model.safetensors.index.json"

# --- tensors -----------------------------------------------------------------------------------


def with_names(snapshot: Snapshot, renames: Mapping[str, str]) -> Snapshot:
    """The same weights under other names, in the headers and in the index."""

    def put(tensors: _Tensors) -> _Tensors:
        return (renamed(one, renames.get(one.name, one.name)) for one in tensors)

    def named(places: _Places) -> _Places:
        return ((renames.get(name, name), file) for name, file in places)

    return _changed(snapshot, put, named)


def with_tensors(snapshot: Snapshot, instead: Mapping[str, tuple[StoredTensor, ...]]) -> Snapshot:
    """Other tensors in the place of those of these names, in their files; none where () is.

    An index names the new ones, and its totals are left out: they are of other shapes.
    """

    def put(tensors: _Tensors) -> _Tensors:
        for tensor in tensors:
            file = tensor.file
            for one in instead.get(tensor.name, (tensor,)):
                yield one if one.file == file else one._replace(file=file)

    def named(places: _Places) -> _Places:
        for name, file in places:
            if (made := instead.get(name)) is None:
                yield name, file
                continue
            for one in made:
                yield one.name, file

    return _changed(snapshot, put, named, totals=False)


def renamed(tensor: StoredTensor, name: str) -> StoredTensor:
    """The tensor under another name; this takes a third of the time of `_replace`."""
    return StoredTensor(name, *tensor[1:])


def shaped(tensor: StoredTensor, shape: tuple[int, ...], name: str = "") -> StoredTensor:
    """The same tensor in another shape, perhaps under another name."""
    return tensor._replace(name=name or tensor.name, shape=shape, elements=prod(shape))


def with_shapes(snapshot: Snapshot, shapes: Mapping[str, tuple[int, ...]]) -> Snapshot:
    """The same names with other shapes."""
    found = {
        tensor.name: (shaped(tensor, shapes[tensor.name]),)
        for head in snapshot.headers
        for tensor in _tensors(head)
        if tensor.name in shapes
    }
    return with_tensors(snapshot, found)


_Tensors = Iterable[StoredTensor]
_Places = Iterable[tuple[str, str]]  # names, and their files by an index


def _changed(
    snapshot: Snapshot,
    put: Callable[[_Tensors], _Tensors],
    named: Callable[[_Places], _Places],
    *,
    totals: bool = True,
) -> Snapshot:
    """Apply `put` to the files and `named` to the index, whose totals go without `totals`."""

    def head_with(head: WeightHeader) -> WeightHeader:
        table = head.parsed
        if isinstance(table, CheckpointError):
            return head
        tensors = tuple(sorted(put(table.tensors), key=attrgetter("name")))
        if not isinstance(table, Table):
            return replace(head, known=replace(table, tensors=tensors))
        shared = {first(name): first(other) for name, other in table.shared.items()}
        return replace(head, known=replace(table, tensors=tensors, shared=MappingProxyType(shared)))

    def first(name: str) -> str:
        return next((new for new, _ in named([(name, "")])), name)

    return replace(
        snapshot,
        headers=tuple(map(head_with, snapshot.headers)),
        torch_copies=tuple(map(head_with, snapshot.torch_copies)),
        index=_changed_index(snapshot.index, named, totals=totals),
    )


def _changed_index(
    index: TextFile | None, named: Callable[[_Places], _Places], *, totals: bool
) -> TextFile | None:
    """The index with `named` applied; an index that cannot be read is returned unchanged."""
    if index is None:
        return None
    try:
        found = index.as_index
    except CheckpointError:
        return index
    rest, names = _beside_weight_map(index.content), dict(named(found.weight_map.items()))
    if not totals and "metadata" in rest:
        rest["metadata"] = Raw(b"{}")
    known = replace(
        found,
        weight_map=MappingProxyType(names),
        total_size=found.total_size if totals else None,
        total_parameters=found.total_parameters if totals else None,
    )
    content = encode({**rest, "weight_map": names})
    return TextFile(name=index.name, content=content, known=None if found.faults else known)


def _beside_weight_map(content: bytes) -> dict[str, Raw]:
    """The other keys of an index, each with its value as it is written.

    By msgspec, which takes 18 ms to read and write the 92,000 names of DeepSeek-V3, json 180.
    """
    try:
        found = decode(content, type=dict[str, Raw])
    except DecodeError:  # NaN and the like, which json alone reads
        found = {key: Raw(json.dumps(value).encode()) for key, value in json.loads(content).items()}
    return {key: value for key, value in found.items() if key != "weight_map"}


def _tensors(head: WeightHeader) -> tuple[StoredTensor, ...]:
    return () if isinstance(head.parsed, CheckpointError) else head.parsed.tensors


# --- files -------------------------------------------------------------------------------------


def holding(
    name: str, shapes: Iterable[tuple[str, tuple[int, ...]]], dtype: str | None
) -> WeightHeader:
    """A file that has these tensors, in the dtype if one is given."""
    tensors = tuple(
        StoredTensor(one, dtype, shape, prod(shape), name, Span(0, 0))
        for one, shape in sorted(shapes)
    )
    return WeightHeader(name=name, size=None, known=Table(file=name, tensors=tensors))


def of_files(snapshot: Snapshot, heads: Iterable[WeightHeader]) -> Snapshot:
    """The checkpoint with these weight files alone, and with an index of them if there are more."""
    heads = tuple(sorted(heads, key=lambda head: head.name))
    name = snapshot.index.name if snapshot.index else _INDEX
    folder = name[: name.rfind("/") + 1]
    names = {
        tensor.name: head.name.removeprefix(folder) for head in heads for tensor in _tensors(head)
    }
    index = TextFile(name=name, content=json.dumps({"weight_map": names}).encode())
    several = len(heads) > 1 or snapshot.index is not None
    return replace(snapshot, headers=heads, unopened=(), index=index if several and names else None)


def as_indexed(snapshot: Snapshot, files: Collection[str]) -> Snapshot:
    """The checkpoint with these shards as the index has them: names, and no shapes."""
    return replace(
        snapshot,
        headers=tuple(head for head in snapshot.headers if head.name not in files),
        unopened=tuple(name for name in snapshot.unopened if name not in files),
        files=tuple(
            replace(file, size=None) if file.name in files else file for file in snapshot.files
        ),
        partial=True,
    )


# --- the config --------------------------------------------------------------------------------


class _Null:
    """The type of NULL."""

    def __repr__(self) -> str:
        return "null"


NULL: Final = _Null()  # an explicit null, where None takes a key out


def with_values(snapshot: Snapshot, values: Mapping[str, Any]) -> Snapshot:
    """Return the checkpoint under a config with these values, by dotted path.

    None takes a key out, NULL sets it to null.

    A value within something that is not an object stays away. Raises ValueError for a config that
    is not JSON.
    """
    if snapshot.config is None:
        return snapshot
    config = json.loads(snapshot.config.content)
    for path, value in values.items():
        *folders, key = path.split(".")
        within: Any = config
        for folder in folders:
            within = within.setdefault(folder, {}) if isinstance(within, dict) else None
        if not isinstance(within, dict):
            continue
        if value is None:
            within.pop(key, None)
        else:
            within[key] = None if value is NULL else value
    content = json.dumps(config).encode()
    return replace(snapshot, config=replace(snapshot.config, content=content))


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """What a config says at a dotted path; None: nothing."""
    found: Any = config
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
