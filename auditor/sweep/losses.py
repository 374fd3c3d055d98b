"""The check of a night's selections: none is empty, and none has lost a tenth of its models."""

import json
from collections.abc import Iterator, Mapping, Sequence

from auditor.errors import UsageError
from auditor.formats.text import counted
from auditor.messages import listed, quoted
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Night

_MOST = 10  # a selection may lose one of ten models
_IDS = "ids"
_WAYS = "correct it, or repeat with --force if meant"

Described = Mapping[str, object]  # a selection, as the store records it


def require_models(selection: Described, count: int) -> None:
    """Raise UsageError if a selection has no model."""
    if not count:
        raise UsageError(f"the selection {_in_words(selection)} has no model; {_WAYS}")


def require_no_losses(
    ledger: StoreWriter, plan: int, selections: Sequence[Described], earlier: Sequence[Night]
) -> None:
    """Raise UsageError if a selection of the plan has lost more than a tenth of its models.

    It is compared with the last of the earlier nights that has the selection. Every list of ids
    counts as the same selection, unless most of its ids are new. The first N models of the Hub's
    list and a list of ids may lose as many models as they gain.
    """
    for place, selection in enumerate(selections):
        is_list = _IDS in selection
        for night, at in _earlier_places(selection, earlier):
            losses = ledger.losses((night.plan or 0, at), (plan, place))
            if is_list and 2 * losses.new > losses.now:
                continue  # another list
            replaced = losses.new if is_list or "top" in selection else 0
            if (losses.lost - replaced) * _MOST > losses.models:
                lost = listed(losses.examples)
                if more := losses.lost - len(losses.examples):
                    lost = f"{lost} and {more:,} more"
                now = counted(losses.models - losses.lost + losses.new, "model")
                raise UsageError(
                    f"the selection {_in_words(selection)} has {now}, and had {losses.models:,} in "
                    f"the night {quoted(night.night)}; lost are {lost}; {_WAYS}"
                )
            break


def _earlier_places(selection: Described, earlier: Sequence[Night]) -> Iterator[tuple[Night, int]]:
    """Yield each night that has the selection, the latest first, with the selection's place."""
    wanted = _without_ids(json.loads(json.dumps(selection)))
    for night in sorted(earlier, key=lambda row: (row.finished, row.night), reverse=True):
        try:
            tables = json.loads(night.selection)
        except ValueError:
            continue
        for at, table in enumerate(tables):
            if _without_ids(table) == wanted:
                yield night, at


def _without_ids(selection: Described) -> Described:
    return {**selection, _IDS: ""} if _IDS in selection else selection


def _in_words(selection: Described) -> str:
    texts = (
        f"{key} {' '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for key, value in selection.items()
    )
    return quoted(", ".join(texts))
