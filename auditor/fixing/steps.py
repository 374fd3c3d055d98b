"""The part of an explanation's change that a fix writes: names and values, never weights.

The code here does not depend on the cause: every change of names and values is written, if
`permissions` allows its edits.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from auditor.checkpoint.change import Change
from auditor.checkpoint.json_edits import ABSENT, Edit
from auditor.checkpoint.snapshot import Snapshot, TextFile, WeightHeader
from auditor.companions.companion_files import GENERATION
from auditor.diagnosis.permissions import (
    Shape,
    is_untying,
    layer_list_edits,
    require_one_reading,
)
from auditor.errors import CheckpointError
from auditor.findings import EosDisagrees
from auditor.fixing.new_files import index_with_names, json_values, renamed_header
from auditor.report import Diagnosis, Report, Unaudited

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


class Unfixable(Exception):  # noqa: N818 - a fact about the change, no error
    """The error for a cause that no change of headers, index and config can remove."""


def written_part(snapshot: Snapshot, cause: Diagnosis, change: Change) -> Change:
    """Return what a fix writes of the cause's change; raise Unfixable if it writes nothing.

    `snapshot` is the checkpoint before the change.
    """
    if any(name.endswith(".gguf") for name in change.files):
        raise Unfixable("audit fix does not write GGUF files")
    if change.needs_other_weights or (change.is_reindexed and snapshot.unopened):
        raise Unfixable(_WEIGHTS)
    renames = change.renames.items()
    if any(_ROTATED.search(old) and not _ROTATED.search(new) for old, new in renames):
        raise Unfixable(_ROWS)
    if any(_is_another_fusion(old, new) for old, new in renames):
        raise Unfixable(_FUSED_ROWS)
    if cause.unwritten:
        raise Unfixable(cause.unwritten)
    edits = tuple(edit for edit in change.edits if not is_untying(edit))
    if change.edits and not (edits or change.renames):
        raise Unfixable(_TWO_COPIES)
    if cause.is_reading:
        require_one_reading(change.renames, _shapes(snapshot))
    lists = layer_list_edits(json_values(snapshot.config), edits)
    return replace(change, edits=(*edits, *lists))


def _shapes(snapshot: Snapshot) -> dict[str, Shape]:
    tables = (head.parsed for head in snapshot.headers)
    read = (table for table in tables if not isinstance(table, CheckpointError))
    return {one.name: one.shape for table in read for one in table.tensors if one.shape is not None}


def _is_another_fusion(name: str, new: str) -> bool:
    """Whether a fused tensor of q, k and v gets the name that another library uses for it."""
    ends = (
        one.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2] for one in (name, new)
    )
    return bool(_FUSED.search(name)) and len(set(ends)) > 1


def with_change(snapshot: Snapshot, change: Change) -> Snapshot:
    """Return the checkpoint as it is written; raise Unfixable if a file cannot be edited."""
    try:
        changed = change.with_texts(snapshot)
        if not change.renames:
            return changed
        heads = tuple(
            renamed_header(head, change.renames) if _contains(head, change.renames) else head
            for head in snapshot.headers
        )
        index = index_with_names(snapshot.index, change.renames)
    except (ValueError, TypeError) as fault:
        raise Unfixable(str(fault)) from None
    return replace(changed, headers=heads, index=index)


def _contains(head: WeightHeader, renames: Mapping[str, str]) -> bool:
    table = head.parsed
    if isinstance(table, CheckpointError):
        return False
    return any(tensor.name in renames for tensor in table.tensors)


# --- end tokens ----------------------------------------------------------------------------------

_END = "eos_token_id"


def generation_file(snapshot: Snapshot) -> TextFile | None:
    """Return a checkpoint's generation config; None if it was not read."""
    files = (file for file in snapshot.companions or () if file.name == GENERATION)
    return next(
        (TextFile(name=file.name, content=file.content) for file in files if file.content), None
    )


def end_token_causes(snapshot: Snapshot, outcome: Report | Unaudited) -> Iterator[Diagnosis]:
    """Yield a change that makes generation stop at every end token that other files name.

    Yield no change if there is no generation config, or if an end token is not known to be special.
    """
    file = generation_file(snapshot)
    for finding in outcome.findings:
        if file is None or not EosDisagrees.describes(finding) or not finding.ids:
            continue
        edit = Edit((_END,), json_values(file).get(_END, ABSENT), list(finding.ids))
        yield Diagnosis(
            cause=finding.kind,
            severity=finding.severity,
            summary=finding.reason,
            fix=finding.fix,
            change=Change(generation=(edit,)),
        )
