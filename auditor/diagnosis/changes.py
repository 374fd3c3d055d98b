"""Changes of a snapshot in memory: other names, another value in the config."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from auditor.checkpoint.snapshot import Snapshot, TextFile, WeightHeader
from auditor.containers.index import parse_index
from auditor.errors import CheckpointError


def with_names(snapshot: Snapshot, renames: Mapping[str, str]) -> Snapshot:
    """The same weights under other names, in the headers and in the index."""
    heads = tuple(_renamed_head(head, renames) for head in snapshot.headers)
    return replace(snapshot, headers=heads, index=_renamed_index(snapshot.index, renames))


def _renamed_head(head: WeightHeader, renames: Mapping[str, str]) -> WeightHeader:
    table = head.parsed
    if isinstance(table, CheckpointError):
        return head
    named = (one._replace(name=renames.get(one.name, one.name)) for one in table.tensors)
    tensors = tuple(sorted(named, key=lambda one: one.name))
    return replace(head, known=replace(table, tensors=tensors))


def _renamed_index(index: TextFile | None, renames: Mapping[str, str]) -> TextFile | None:
    if index is None:
        return None
    try:
        values = json.loads(index.content)
        _ = parse_index(index.name, index.content)
    except (ValueError, CheckpointError):
        return index
    names = values["weight_map"]
    values["weight_map"] = {renames.get(name, name): file for name, file in names.items()}
    return replace(index, content=json.dumps(values).encode())


def with_values(snapshot: Snapshot, values: Mapping[str, Any]) -> Snapshot:
    """The same checkpoint under a config with these values, by dotted path; None: without it.

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
            within[key] = value
    content = json.dumps(config).encode()
    return replace(snapshot, config=replace(snapshot.config, content=content))


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """What a config says at a dotted path; None: nothing."""
    found: Any = config
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
