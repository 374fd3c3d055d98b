"""New headers and indexes: with tensors under other names, or an index anew from the headers.

The header of a safetensors file stays as long as it was wherever it fits, and then the data stays
where it is. A longer one grows by whole blocks of 4,096 bytes, so that a file system that shares
blocks between files (btrfs, XFS) can still share all of the data's: what is shared has to lie at
the same place within its block.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from auditor.checkpoint.selecting import INDEX
from auditor.checkpoint.snapshot import Snapshot, TextFile, WeightHeader
from auditor.containers.bounded_json import load_object
from auditor.containers.index import MAX_NAMES
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER, Header, size_fault
from auditor.errors import CheckpointError
from auditor.fixing.json_edits import as_written
from auditor.messages import named
from auditor.report import Observed
from auditor.tensors import StoredTensor

_OTHER_FORMAT = (
    "{} is not a safetensors file, and its names lie among its weights: load it, call "
    "save_pretrained, and fix what that writes"
)
BLOCK = 4096  # bytes; of ext4, XFS and btrfs


def renamed_header(head: WeightHeader, renames: Mapping[str, str]) -> WeightHeader:
    """The file with its tensors under other names. Raises ValueError with why it cannot be."""
    header = head.parsed
    if isinstance(header, CheckpointError):
        raise ValueError(str(header))  # noqa: TRY004 - of the file
    if not isinstance(header, Header):
        raise ValueError(_OTHER_FORMAT.format(named(head.name)))  # noqa: TRY004 - likewise
    if fault := size_fault(header, head.size):
        raise ValueError(fault)
    if not any(tensor.name in renames for tensor in header.tensors):
        return head
    body = _json(header, renames)
    length = header.header_length
    if len(body) > length:
        length += -(-(len(body) - length) // BLOCK) * BLOCK
    if length > MAX_HEADER:
        raise ValueError(f"the header of {named(head.name)} would pass {MAX_HEADER:,} bytes")
    prefix = length.to_bytes(LENGTH_BYTES, "little") + body.ljust(length)
    longer = length - header.header_length
    size = None if head.size is None else head.size + longer
    return replace(head, prefix=prefix, size=size, known=None)


def _json(header: Header, renames: Mapping[str, str]) -> bytes:
    """As the library writes it: metadata first, then the tensors as their data lies."""
    entries: dict[str, object] = {}
    if header.metadata:
        entries["__metadata__"] = dict(header.metadata)
    for tensor in sorted(header.tensors, key=lambda one: (one.span or (0, 0), one.name)):
        name = renames.get(tensor.name, tensor.name)
        if name in entries:
            raise ValueError(f"two tensors of {named(header.file)} would have one name")
        entries[name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": tensor.span,
        }
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()


_AS_TRANSFORMERS = b'{\n  "metadata": {}\n}\n'  # whose style a new one has


def index_with_names(index: TextFile | None, renames: Mapping[str, str]) -> TextFile | None:
    """The index with tensors under other names; one that cannot be read stays as it is."""
    values = json_values(index)
    placed = values.get("weight_map")
    if index is None or not isinstance(placed, dict):
        return index
    values["weight_map"] = {renames.get(name, name): file for name, file in placed.items()}
    return TextFile(name=index.name, content=as_written(index.content, values))


def rebuilt_index(snapshot: Snapshot, observed: Observed | None) -> TextFile | None:
    """What the headers say, and their sums; None where they do not say it all.

    A tensor that two files hold stays where the old index has it. `total_parameters` is corrected
    where there is one, and not added.
    """
    tables = [head.parsed for head in snapshot.headers]
    if observed is None or observed.bytes is None or not tables:
        return None
    if not all(isinstance(table, Header) and "/" not in table.file for table in tables):
        return None
    old = snapshot.index or TextFile(name=INDEX, content=_AS_TRANSFORMERS)
    values = json_values(old)
    before, metadata = values.get("weight_map"), values.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    metadata["total_size"] = observed.bytes
    if metadata.pop("total_parameters", None) is not None and observed.parameters is not None:
        metadata["total_parameters"] = observed.parameters
    tensors = [one for table in tables if isinstance(table, Header) for one in table.tensors]
    new = {
        **values,
        "metadata": metadata,
        "weight_map": _placed(tensors, before if isinstance(before, dict) else {}),
    }
    content = as_written(old.content if values else _AS_TRANSFORMERS, new)
    return TextFile(name=old.name, content=content)


def _placed(tensors: list[StoredTensor], before: Mapping[str, Any]) -> dict[str, str]:
    """Tensor -> file, in the order of the old index, then by name."""
    files: dict[str, list[str]] = {}
    for one in tensors:
        files.setdefault(one.name, []).append(one.file)
    names = (*(name for name in before if name in files), *sorted(files.keys() - before.keys()))
    return {
        name: before[name] if before.get(name) in files[name] else files[name][0] for name in names
    }


def json_values(index: TextFile | None) -> dict[str, Any]:
    """The index's object; empty where there is none that can be read."""
    if index is None:
        return {}
    try:
        return load_object(index.content, index.name, values=2 * MAX_NAMES).value
    except CheckpointError:
        return {}
