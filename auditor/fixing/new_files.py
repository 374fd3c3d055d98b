"""Make new headers and indexes: with other tensor names, or an index rebuilt from the headers.

A header is padded with spaces to a multiple of eight bytes, as the safetensors library does.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from auditor.bounded.json_text import Loaded, load_object
from auditor.checkpoint.json_edits import edited_json, json_edits, renamed_keys
from auditor.checkpoint.selecting import INDEX
from auditor.checkpoint.snapshot import Snapshot, TextFile, WeightHeader
from auditor.containers.index import MAX_NAMES
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER, Header, size_fault
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.report import Observed
from auditor.tensors import StoredTensor

_OTHER_FORMAT = (
    "{} is not a safetensors file, and its names lie among its weights: load it, call "
    "save_pretrained, and fix what that writes"
)


def renamed_header(head: WeightHeader, renames: Mapping[str, str]) -> WeightHeader:
    """Return the header with its tensors renamed; raise ValueError if it cannot be rewritten."""
    header = head.parsed
    if isinstance(header, CheckpointError):
        raise ValueError(str(header))  # noqa: TRY004 - the file is wrong, not its type
    if not isinstance(header, Header):
        raise ValueError(_OTHER_FORMAT.format(named(head.name)))  # noqa: TRY004 - likewise
    if fault := size_fault(header, head.size):
        raise ValueError(fault)
    names = [tensor.name for tensor in header.tensors]
    if renames.keys().isdisjoint(names):
        return head
    if len({renames.get(name, name) for name in names}) < len(names):
        raise ValueError(f"two tensors of {named(head.name)} would have one name")
    text = head.prefix[LENGTH_BYTES : LENGTH_BYTES + header.header_length]
    body = renamed_keys(text, renames)
    length = -(-len(body) // 8) * 8
    if length > MAX_HEADER:
        raise ValueError(f"the header of {named(head.name)} would pass {MAX_HEADER:,} bytes")
    prefix = length.to_bytes(LENGTH_BYTES, "little") + body.ljust(length)
    longer = length - header.header_length
    size = None if head.size is None else head.size + longer
    return replace(head, prefix=prefix, size=size, known=None)


_AS_TRANSFORMERS = b'{\n  "metadata": {},\n  "weight_map": {}\n}\n'  # the style of the index


def index_with_names(index: TextFile | None, renames: Mapping[str, str]) -> TextFile | None:
    """Rename tensors in an index; an index that cannot be read is returned unchanged."""
    if index is None or not isinstance(_loaded(index).value.get("weight_map"), dict):
        return index
    content = renamed_keys(index.content, renames, "weight_map")
    return TextFile(name=index.name, content=content)


def rebuilt_index(snapshot: Snapshot, observed: Observed | None) -> TextFile | None:
    """Return an index made from the headers; None if the headers do not determine an index.

    A tensor that two files store stays in the file that the old index names. `total_parameters` is
    corrected if present, and not added. An index in which a key is written twice is written anew.
    """
    headers = [head.parsed for head in snapshot.headers]
    if observed is None or observed.bytes is None or not headers:
        return None
    if not all(isinstance(header, Header) and "/" not in header.file for header in headers):
        return None
    values, repeated = _loaded(snapshot.index)
    old_map, old_metadata = values.get("weight_map"), values.get("metadata")
    metadata = dict(old_metadata) if isinstance(old_metadata, dict) else {}
    metadata["total_size"] = observed.bytes
    if metadata.pop("total_parameters", None) is not None and observed.parameters is not None:
        metadata["total_parameters"] = observed.parameters
    tensors = [one for header in headers if isinstance(header, Header) for one in header.tensors]
    weight_map = _weight_map(tensors, old_map if isinstance(old_map, dict) else {})
    new = {**values, "metadata": metadata, "weight_map": weight_map}
    name, text = INDEX, _AS_TRANSFORMERS
    if snapshot.index is not None:
        name = snapshot.index.name
        text = snapshot.index.content if values and not repeated else text
    edits = tuple(json_edits(json.loads(text), new))
    return TextFile(name=name, content=edited_json(text, edits))


def _weight_map(tensors: list[StoredTensor], old_map: Mapping[str, Any]) -> dict[str, str]:
    """Map tensor names to files.

    Names in the old index keep their order; the other names follow alphabetically.
    """
    files_by_name: dict[str, list[str]] = {}
    for tensor in tensors:
        files_by_name.setdefault(tensor.name, []).append(tensor.file)
    old_names = [name for name in old_map if name in files_by_name]
    return {
        name: old_map[name] if old_map.get(name) in files_by_name[name] else files_by_name[name][0]
        for name in (*old_names, *sorted(files_by_name.keys() - old_map.keys()))
    }


def json_values(file: TextFile | None) -> Mapping[str, Any]:
    """Return the JSON object of a file; {} if the file is absent or cannot be parsed."""
    return file.values if file else {}


def _loaded(index: TextFile | None) -> Loaded:
    if index is None:
        return Loaded({}, ())
    try:
        return load_object(index.content, index.name, values=2 * MAX_NAMES)
    except CheckpointError:
        return Loaded({}, ())
