"""The index of a sharded checkpoint: with other names, or anew from the headers of its shards."""

from collections.abc import Mapping
from typing import Any

from auditor.checkpoint.selecting import INDEX
from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.containers.bounded_json import load_object
from auditor.containers.index import MAX_NAMES
from auditor.containers.safetensors import Header
from auditor.errors import CheckpointError
from auditor.fixing.json_edits import as_written
from auditor.report import Observed
from auditor.tensors import StoredTensor

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
