"""other-size: the config of a smaller or larger model of the type; several keys differ at once.

All keys are solved for together, lists with an item a layer included. Keys that no shape gives
(numbers of heads where no head_dim is declared) are named without a value.

To do: Take the whole config.json of the model whose weights these are. Setting the keys that can be
read off is not enough if others are named that cannot: the model would load and compute something
else.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes import _of_adapters, config_field
from auditor.diagnosis.changes import NULL, value_at, with_values
from auditor.diagnosis.solving.candidates import WIDTHS, KeyChange
from auditor.diagnosis.solving.joint import (
    JointSolution,
    is_heads,
    solve,
    stated_keys,
    undetermined,
)

CAUSE = "other-size"
_FEWEST = 3  # keys; fewer are a slip in the config, which config-field names
_RANKS = (2, 4, 8, 16)
_MOST_SHOWN = 12  # keys of a summary


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the values of all keys with which no tensor differs."""
    solution = case.once(CAUSE, lambda: _solution(case))
    if solution is None or solution.remains.differ or _is_divided(case.config, solution.values):
        return
    yield from _undoing(case, solution)


def fits(case: Case) -> bool:
    """Whether the declared class fits with other values of its keys."""
    solution = case.once(CAUSE, lambda: _solution(case))
    return solution is not None and not solution.remains.differ


def _solution(case: Case) -> JointSolution | None:
    if case.report.expected is None or case.report.expected.by == "oracle" or case.is_strange:
        return None
    if _of_adapters.is_adapter(case) or config_field.no_symptom(case):
        return None
    trials = config_field.trials_of(case)
    if as_it_is := config_field.tree_with(case, {}):
        trials.excuse(as_it_is)
    return solve(case.config, partial(config_field.tree_with, case), trials)


def _is_divided(config: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether every key is declared so many times as large: one rank of tensor parallelism."""
    numbers = [(value_at(config, path), value) for path, value in values.items()]
    ratios = {
        declared / value if type(declared) is int and type(value) is int and value else 0
        for declared, value in numbers
    }
    wide = any(path.rpartition(".")[2] in WIDTHS for path in values)
    return not wide and len(ratios) == 1 and ratios <= set(_RANKS)


def _undoing(case: Case, solution: JointSolution) -> Iterator[Undoing]:
    open_keys = undetermined(case.config, solution)
    keys = stated_keys(solution.values, case.config)
    changes = tuple(
        KeyChange(keys[path], None if value is NULL else value)
        for path, value in sorted(solution.values.items())
        if path not in open_keys and value != keys[path].value
    )
    lists = any(isinstance(value, list) for value in solution.values.values())
    snapshot = with_values(case.snapshot, solution.values)
    open_values = tuple(sorted(open_keys.items()))
    unread = f"; the shapes do not give {', '.join(sorted(open_keys))}" if open_keys else ""
    heads = any(is_heads(path.rpartition(".")[2]) for path in open_keys)
    if len(changes) < (2 if heads else _FEWEST):
        if changes and (lists or case.is_large):  # else config_field names what fits as well
            slip = config_field.undoing_of(case, changes)
            yield replace(
                slip,
                summary=f"{slip.summary}{unread}",
                snapshot=snapshot,
                undetermined=open_values,
            )
        return
    sentences = [*map(config_field.sentence, changes[:_MOST_SHOWN])]
    if more := len(changes) - len(sentences):
        sentences.append(f"and {more} more keys differ")
    yield Undoing(
        cause=CAUSE,
        snapshot=snapshot,
        fields=tuple((one.key.path, one.key.value, one.value) for one in changes),
        undetermined=open_values,
        summary=f"the config is that of another size of {case.config.get('model_type')}: "
        f"{'; '.join(sentences)}{unread}",
        fix="take the whole config.json of the model whose weights these are",
        evidence=(f"with these {len(changes)} values every tensor is expected as it is stored",),
    )
