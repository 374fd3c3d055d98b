"""Snapshots with other names, values and shapes, for tests that plant a fault in memory."""

import json
from collections.abc import Mapping
from typing import Any

from auditor.analytic.config_keys import set_values
from auditor.checkpoint.change import Change, replacing, with_config
from auditor.checkpoint.snapshot import Snapshot
from auditor.tensors import StoredTensor


def with_names(snapshot: Snapshot, renames: Mapping[str, str]) -> Snapshot:
    return Change(renames=renames).applied_to(snapshot)


def with_tensors(snapshot: Snapshot, instead: Mapping[str, tuple[StoredTensor, ...]]) -> Snapshot:
    stored = (tensor for head in snapshot.headers for tensor in head.parsed.tensors)
    return replacing(stored, instead).applied_to(snapshot)


def with_values(snapshot: Snapshot, values: Mapping[str, Any]) -> Snapshot:
    """Set values of the config by dotted path; None removes a key."""
    return with_config(snapshot, set_values(json.loads(snapshot.config.content), values))
