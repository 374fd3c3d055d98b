"""A step of a fix: the names and values that one undoing changes, if no weight has to change.

An undoing is a change by which the diagnosis removes a cause in memory. It has a snapshot, whose
difference from the snapshot before shows whether only names, the config or the index changed, or
also weights. So the code here does not depend on the cause: every undoing without other weights is
a step, and `permissions` decides whether it may be written.
"""

import re
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot, TextFile, WeightHeader
from auditor.diagnosis.case import Undoing
from auditor.diagnosis.json_edits import ABSENT, Edit, edited_json, json_edits
from auditor.diagnosis.permissions import TIE, layer_list_edits
from auditor.errors import CheckpointError
from auditor.fixing.end_tokens import generation_file, with_generation
from auditor.fixing.new_files import index_with_names, renamed_header

_WEIGHTS = "it needs other weights than are stored"
# The files of Meta and llama.cpp have the rows of q and k in another order than transformers
# expects. Under transformers' names they would load without a warning, and compute nonsense.
_ROTATED = re.compile(r"(?:^|\.)(?:attention\.w[qk]|attn_[qk])\.(?:weight|bias)")
_ROWS = "the rows of q and k lie in another order there: names alone would load and be wrong"
# The rows of q, k and v in one tensor are ordered by head or one after the other, by the library.
_FUSED = re.compile(
    r"(?:query_key_value|qkv|c_attn|in_proj|w_?pack|att_proj)[^.]*\.?(?:weight|bias)?$",
    re.IGNORECASE,
)
_FUSED_ROWS = "q, k and v are one tensor there, and each library orders its rows in its own way"
_TWO_COPIES = "only the values of the two copies show whether the head is tied: audit --values"
UNCERTAIN = "the files do not determine that this reading is the right one"


class Unfixable(Exception):  # noqa: N818 - a fact about the step, no error
    """The error for a cause that no change of headers, index and config can remove."""


class FixStep(Struct, frozen=True, kw_only=True):
    """The tensor names and the values of JSON files that one undoing changes."""

    undoing: Undoing
    renames: Mapping[str, str] = field(default_factory=dict)  # stored names, before and after
    config: tuple[Edit, ...] = ()
    packing: tuple[Edit, ...] = ()  # of quantize_config.json
    generation: tuple[Edit, ...] = ()  # of generation_config.json


def step_of(before: Snapshot, undoing: Undoing) -> FixStep:
    """Return the step that turns `before` into the undoing's snapshot, or raise Unfixable."""
    after = undoing.snapshot
    as_before = replace(
        after,
        headers=before.headers,
        index=before.index,
        config=before.config,
        packing=before.packing,
    )
    as_before = with_generation(as_before, generation_file(before))
    if as_before != before:
        raise Unfixable(_WEIGHTS)
    _require_same_weights(before, after, undoing.renames)
    if any(
        _ROTATED.search(name) and not _ROTATED.search(new) for name, new in undoing.renames.items()
    ):
        raise Unfixable(_ROWS)
    if any(_is_another_fusion(name, new) for name, new in undoing.renames.items()):
        raise Unfixable(_FUSED_ROWS)
    if not undoing.certain:
        raise Unfixable(UNCERTAIN)
    if undoing.refused:
        raise Unfixable(undoing.refused)
    edits = _edits(before.config, after.config)
    config = tuple(edit for edit in edits if not (edit.path[-1] == TIE and edit.after is False))
    if edits and not (config or undoing.renames):
        raise Unfixable(_TWO_COPIES)
    if undoing.target is not None:
        declared = _object(before.config).get("architectures", ABSENT)
        config = (*config, Edit(("architectures",), declared, [undoing.target]))
    if config:
        config = (*config, *layer_list_edits(_object(before.config), config))
    return FixStep(
        undoing=undoing,
        renames=undoing.renames,
        config=config,
        packing=_edits(before.packing, after.packing),
        generation=_edits(generation_file(before), generation_file(after)),
    )


def _is_another_fusion(name: str, new: str) -> bool:
    """Whether a fused tensor of q, k and v gets the name that another library uses for it."""
    ends = (
        one.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2] for one in (name, new)
    )
    return bool(_FUSED.search(name)) and len(set(ends)) > 1


def taken(snapshot: Snapshot, step: FixStep) -> Snapshot:
    """Return the checkpoint after a step; raise Unfixable if a file cannot be edited."""
    try:
        heads = tuple(
            renamed_header(head, step.renames) if _holds(head, step.renames) else head
            for head in snapshot.headers
        )
        config, packing, generation = (
            _edited(snapshot.config, step.config),
            _edited(snapshot.packing, step.packing),
            _edited(generation_file(snapshot), step.generation),
        )
    except (ValueError, TypeError) as fault:
        raise Unfixable(str(fault)) from None
    index = index_with_names(snapshot.index, step.renames) if step.renames else snapshot.index
    changed = replace(snapshot, headers=heads, config=config, packing=packing, index=index)
    return with_generation(changed, generation)


def _holds(head: WeightHeader, renames: Mapping[str, str]) -> bool:
    table = head.parsed
    if isinstance(table, CheckpointError):
        return False
    return any(tensor.name in renames for tensor in table.tensors)


def _require_same_weights(before: Snapshot, after: Snapshot, renames: Mapping[str, str]) -> None:
    """Raise Unfixable unless each file stores the same tensors, perhaps under other names."""
    if [head.name for head in before.headers] != [head.name for head in after.headers]:
        raise Unfixable(_WEIGHTS)
    pairs = zip(before.headers, after.headers, strict=True)
    if not all(_differs_in_names(one, other, renames) for one, other in pairs):
        raise Unfixable(_WEIGHTS)


def _differs_in_names(
    header: WeightHeader, new_header: WeightHeader, renames: Mapping[str, str]
) -> bool:
    before, after = header.parsed, new_header.parsed
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
        raise Unfixable("the file is not there")
    return tuple(json_edits(_object(before), _object(after)))


def _object(file: TextFile | None) -> Mapping[str, object]:
    """Return the JSON object of a file; raise Unfixable if it is absent or cannot be parsed."""
    if file is None:
        raise Unfixable("there is no config")
    try:
        return file.object
    except CheckpointError:
        raise Unfixable(f"{file.name} is not a JSON object") from None


def _edited(file: TextFile | None, edits: tuple[Edit, ...]) -> TextFile | None:
    if file is None or not edits:
        return file
    return replace(file, content=edited_json(file.content, edits))
