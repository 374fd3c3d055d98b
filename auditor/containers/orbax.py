"""The reader of Orbax's JSON: the arrays of a tree, and whether its save was finished.

Orbax writes into NAME.orbax-checkpoint-tmp and renames that folder when everything is there. The
arrays are in OCDBT (manifest.ocdbt and the files that it names), or in a folder for each array.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from auditor.bounded.json_text import load_object
from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.names.parts import file_name, folder_of
from auditor.tensors import Span, StoredTensor

_MOST = 16 * 1024 * 1024  # bytes
_MOST_VALUES = 1_000_000
_LONGEST = 2**40  # numbers along an axis
_UNFINISHED = ".orbax-checkpoint-tmp"
_MANIFEST = "manifest.ocdbt"
_DATA_FILE = re.compile(rb"(?:ocdbt\.process_\d+/)?d/[0-9a-f]{32}")


def parse(file: str, sparse: PartialFile) -> Table | None:
    """Return the arrays and the files that they need; a fault if the save was interrupted."""
    folder = folder_of(file)
    if sparse.size > _MOST:
        raise CheckpointError(f"it has {sparse.size:,} bytes, expected at most {_MOST:,}")
    content = sparse.read(Span(0, sparse.size))
    if file_name(file) == _MANIFEST:
        return _manifest(file, content)
    values = load_object(content, file, size=_MOST, values=_MOST_VALUES).value
    faults: tuple[str, ...] = ()
    is_open = "commit_timestamp_nsecs" in values and values["commit_timestamp_nsecs"] is None
    if is_open or _UNFINISHED in folder:
        what = "in a folder whose name says" if not is_open else "without the time of its end:"
        fault = f"{named(file)} is {what} that the save was interrupted: it was never committed"
        faults = (fault,)
    tree = values.get("tree_metadata")
    rows = tuple(_arrays(tree)) if isinstance(tree, Mapping) else ()
    tensors = (
        StoredTensor(name, None, shape, None if shape is None else prod(shape), file, None)
        for name, shape in sorted(rows)
    )
    needs: tuple[NeededFile, ...] = ()
    if rows and not faults and values.get("use_ocdbt") is True:
        needs = (NeededFile(f"{folder}{_MANIFEST}"),)
    elif rows and not faults and values.get("use_ocdbt") is False:
        needs = tuple(NeededFile(f"{folder}{name}/") for name, _ in sorted(rows))
    return Table(file=file, tensors=tuple(tensors), needs=needs, size_faults=faults)


def _manifest(file: str, content: bytes) -> Table:
    """Return the files that an OCDBT manifest names, as far as it is not compressed."""
    least = int.from_bytes(content[4:12], "little")  # after the magic number
    if len(content) < least:
        fault = f"{named(file)} is truncated: it has {len(content):,} bytes, expected {least:,}"
        return Table(file=file, tensors=(), size_faults=(fault,))
    paths = {match[0].decode() for match in _DATA_FILE.finditer(content)}
    needs = (NeededFile(f"{folder_of(file)}{path}") for path in sorted(paths))
    return Table(file=file, tensors=(), needs=tuple(needs))


def _arrays(tree: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """Yield the name and the written shape of each array of a tree."""
    for entry in tree.values():
        match entry:
            case {"key_metadata": list(keys), "value_metadata": {"value_type": str(kind), **value}}:
                parts = [str(key["key"]) for key in keys if isinstance(key, dict) and "key" in key]
                if parts and kind in {"jax.Array", "np.ndarray"}:
                    yield ".".join(parts), _shape(value.get("write_shape"))


def _shape(value: object) -> tuple[int, ...] | None:
    sizes = value if isinstance(value, list) else [None]
    shape = tuple(size for size in sizes if type(size) is int and 0 <= size < _LONGEST)
    return shape if len(shape) == len(sizes) else None
