"""The remedies of causes whose values must not be written, as permissions decides.

The audit prints these remedies, JSON carries them, and `audit fix` prints them with the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from auditor.analytic.config_keys import key_at
from auditor.analytic.dim_systems import determined_sizes
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes import other_architecture, other_size
from auditor.diagnosis.json_edits import Edit, json_edits
from auditor.diagnosis.permissions import (
    TIE,
    AnotherModel,
    Unwritten,
    head_sizes,
    layer_list_edits,
    needs_of_edits,
)
from auditor.errors import CheckpointError
from auditor.messages import listed

_OF_ANOTHER_MODEL = frozenset({other_architecture.CAUSE, other_size.CAUSE})  # whose fix sets none


def judged(after: Case, before: Snapshot, undoings: Sequence[Undoing]) -> list[Undoing]:
    """Return the undoings with the reason and the remedy of those that must not be written.

    `after` is the case of the last undoing's snapshot. The first undoing changes `before`, and each
    other undoing the snapshot of the previous one.
    """
    states = [_config(before), *(_config(one.snapshot) for one in undoings)]
    whole = _refusal(after, _edits(states[0], states[-1]), states[0])  # one may be safe only alone
    return [
        _judged(undoing, whole or _refusal(after, edits, config)) if edits else undoing
        for undoing, config, then in zip(undoings, states, states[1:], strict=False)
        for edits in (_edits(config, then),)
    ]


def _judged(undoing: Undoing, refusal: Unwritten | None) -> Undoing:
    if undoing.undetermined:
        keys = listed([key for key, _ in undoing.undetermined])
        refusal = AnotherModel(f"no stored shape determines {keys}")
    if refusal is None or not undoing.certain:
        return undoing
    fix = undoing.instead if isinstance(refusal, AnotherModel) and undoing.instead else undoing.fix
    if undoing.cause not in _OF_ANOTHER_MODEL:
        fix = f"{fix}; audit fix does not write it: {refusal}"
    return replace(undoing, fix=fix, refused=str(refusal))


def _config(snapshot: Snapshot) -> Mapping[str, Any]:
    file = snapshot.config
    return file.values if file else {}


def _edits(config: Mapping[str, Any], then: Mapping[str, Any]) -> tuple[Edit, ...]:
    """Return the edits, except of a tie that is undone: only the values of both copies show it."""
    edits = json_edits(config, then)
    return tuple(edit for edit in edits if not (edit.path[-1] == TIE and edit.after is False))


def _refusal(after: Case, edits: Sequence[Edit], config: Mapping[str, Any]) -> Unwritten | None:
    """Return why the edits of a config must not be written; None if an option may allow them."""
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
        sizes = determined_sizes(after.holdings.equations(expected), assumed)
    except CheckpointError:
        return {}
    return {key_at(after.config, symbol.key, value).path: value for symbol, value in sizes.items()}
