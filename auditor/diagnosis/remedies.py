"""The remedies of causes whose values must not be written, as permissions decides.

The audit prints these remedies, JSON carries them, and `audit fix` prints them with the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from auditor.analytic.config_keys import key_at
from auditor.checkpoint.json_edits import Edit, json_edits
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.case import Case, Proposal, config_of
from auditor.diagnosis.causes import other_architecture, other_size
from auditor.diagnosis.permissions import (
    AnotherModel,
    Unwritten,
    head_sizes,
    is_untying,
    layer_list_edits,
    needs_of_edits,
)
from auditor.diagnosis.solving.size_equations import determined_sizes
from auditor.errors import CheckpointError
from auditor.messages import listed

_OF_ANOTHER_MODEL = frozenset({other_architecture.CAUSE, other_size.CAUSE})  # whose fix sets none


def judged(
    after: Case, states: Sequence[Snapshot], proposals: Sequence[Proposal]
) -> list[Proposal]:
    """Return the proposals with the reason and the remedy of those that must not be written.

    `after` is the case of the last of the `states`; proposal i changes state i into the next one.
    """
    config = config_of(states[0])
    # One edit may be safe only alone.
    whole = _refusal(after, json_edits(config, after.config), config)
    return [
        _judged(one, whole or _refusal(after, one.change.edits, config_of(state)))
        if not all(map(is_untying, one.change.edits))
        else one
        for one, state in zip(proposals, states, strict=False)
    ]


def _judged(proposal: Proposal, refusal: Unwritten | None) -> Proposal:
    if proposal.undetermined:
        keys = listed([key for key, _ in proposal.undetermined])
        refusal = AnotherModel(f"no stored shape determines {keys}")
    if refusal is None or not proposal.certain:
        return proposal
    fix = (
        proposal.instead if isinstance(refusal, AnotherModel) and proposal.instead else proposal.fix
    )
    if proposal.cause not in _OF_ANOTHER_MODEL:
        fix = f"{fix}; audit fix does not write it: {refusal}"
    return replace(proposal, fix=fix, refused=str(refusal))


def _refusal(after: Case, edits: Iterable[Edit], config: Mapping[str, Any]) -> Unwritten | None:
    """Return why the edits of a config must not be written; None if an option may allow them."""
    edits = [edit for edit in edits if not is_untying(edit)]
    try:
        list(layer_list_edits(config, edits))
        list(needs_of_edits(edits, sizes_unless_edited(after, edits, config), config))
    except Unwritten as why:
        return why
    return None


def sizes_unless_edited(
    after: Case, edits: Iterable[Edit], config: Mapping[str, Any]
) -> dict[str, int]:
    """Return the sizes that the stored shapes determine, by dotted path.

    Head sizes in `config` that no edit changes are assumed. Return {} if the class has no closed
    form, or if the config implies no tensors.
    """
    edited = {".".join(edit.path) for edit in edits}
    if not edited:
        return {}
    assumed = {path: size for path, size in head_sizes(config).items() if path not in edited}
    try:
        expected = after.tree(after.snapshot)
        if expected is None:
            return {}
        sizes = determined_sizes(after.unpacked_on_disk.equations(expected), assumed)
    except CheckpointError:
        return {}
    return {key_at(after.config, symbol.key, value).path: value for symbol, value in sizes.items()}
