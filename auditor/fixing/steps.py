"""A step of a fix: what one undoing changes, where that can be written without the weights.

Nothing here knows a cause: an undoing is a snapshot, and what differs between it and the one before
says whether names, the config or the index changed, or something that no header can mend. So a new
cause can be fixed as soon as its undoing is no more than that.
"""

import json
import re
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot, TextFile, WeightHeader
from auditor.diagnosis.case import Undoing
from auditor.errors import CheckpointError
from auditor.fixing.json_edits import ABSENT, Edit, edited_json, json_edits
from auditor.fixing.new_files import index_with_names, renamed_header

_WEIGHTS = "it needs other weights than are stored"
# Meta's files and llama.cpp's have the rows of q and k in another order than transformers rotates
# them in. Under transformers' names they would load without a word, and talk nonsense.
_ROTATED = re.compile(r"(?:^|\.)(?:attention\.w[qk]|attn_[qk])\.(?:weight|bias)")
_ROWS = "the rows of q and k lie in another order there: names alone would load and be wrong"


class Unfixable(Exception):  # noqa: N818 - a fact about the step, no error
    """Headers, index and config cannot do it; the message says why."""


class FixStep(Struct, frozen=True, kw_only=True):
    """Other names, other values in the config: what one undoing comes to."""

    undoing: Undoing
    renames: Mapping[str, str] = field(default_factory=dict)  # stored names, before and after
    config: tuple[Edit, ...] = ()
    packing: tuple[Edit, ...] = ()  # of quantize_config.json


def step_of(before: Snapshot, undoing: Undoing) -> FixStep:
    """The step that makes `before` the undoing's snapshot. Raises Unfixable."""
    after = undoing.snapshot
    as_before = replace(
        after,
        headers=before.headers,
        index=before.index,
        config=before.config,
        packing=before.packing,
    )
    if as_before != before:
        raise Unfixable(_WEIGHTS)
    _require_same_weights(before, after, undoing.renames)
    if any(
        _ROTATED.search(name) and not _ROTATED.search(new) for name, new in undoing.renames.items()
    ):
        raise Unfixable(_ROWS)
    config = _edits(before.config, after.config)
    if undoing.target is not None:
        declared = _object(before.config).get("architectures", ABSENT)
        config = (*config, Edit(("architectures",), declared, [undoing.target]))
    packing = _edits(before.packing, after.packing)
    return FixStep(undoing=undoing, renames=undoing.renames, config=config, packing=packing)


def taken(snapshot: Snapshot, step: FixStep) -> Snapshot:
    """The checkpoint after a step, byte for byte as it will be written. Raises Unfixable."""
    try:
        heads = tuple(
            renamed_header(head, step.renames) if _holds(head, step.renames) else head
            for head in snapshot.headers
        )
        config, packing = (
            _edited(snapshot.config, step.config),
            _edited(snapshot.packing, step.packing),
        )
    except (ValueError, TypeError) as fault:
        raise Unfixable(str(fault)) from None
    index = index_with_names(snapshot.index, step.renames) if step.renames else snapshot.index
    return replace(snapshot, headers=heads, config=config, packing=packing, index=index)


def _holds(head: WeightHeader, renames: Mapping[str, str]) -> bool:
    table = head.parsed
    if isinstance(table, CheckpointError):
        return False
    return any(tensor.name in renames for tensor in table.tensors)


def _require_same_weights(before: Snapshot, after: Snapshot, renames: Mapping[str, str]) -> None:
    """Raises Unfixable unless each file holds what it held, but for names."""
    if [head.name for head in before.headers] != [head.name for head in after.headers]:
        raise Unfixable(_WEIGHTS)
    pairs = zip(before.headers, after.headers, strict=True)
    if not all(_differs_in_names(one, other, renames) for one, other in pairs):
        raise Unfixable(_WEIGHTS)


def _differs_in_names(one: WeightHeader, other: WeightHeader, renames: Mapping[str, str]) -> bool:
    before, after = one.parsed, other.parsed
    if before is after:
        return True
    if isinstance(before, CheckpointError) or isinstance(after, CheckpointError):
        return False
    named = [
        tensor._replace(name=renames.get(tensor.name, tensor.name)) for tensor in before.tensors
    ]
    return len({tensor.name for tensor in named}) == len(named) and set(named) == set(after.tensors)


def _edits(before: TextFile | None, after: TextFile | None) -> tuple[Edit, ...]:
    if before == after:
        return ()
    if before is None or after is None or before.name != after.name:
        raise Unfixable("there is no such file")
    return tuple(json_edits(_object(before), _object(after)))


def _object(file: TextFile | None) -> Mapping[str, object]:
    """What a JSON file says. Raises Unfixable where it cannot be read, or is not there."""
    if file is None:
        raise Unfixable("there is no config")
    try:
        values = json.loads(file.content)
    except ValueError:
        raise Unfixable(f"{file.name} is not JSON") from None
    if not isinstance(values, dict):
        raise Unfixable(f"{file.name} is not a JSON object")
    return values


def _edited(file: TextFile | None, edits: tuple[Edit, ...]) -> TextFile | None:
    if file is None or not edits:
        return file
    return replace(file, content=edited_json(file.content, edits))
