"""other-size: the config of a smaller or larger model of the type; several keys differ at once.

All keys are solved for together, including lists with an item for each layer. Keys that no shape
determines (numbers of heads if no head_dim is declared) are named without a value.

To do: Take the complete config.json of the model that the weights belong to. If keys are named
without a value, setting only the others is not enough: the model would load and compute something
else.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.causes import config_field
from auditor.diagnosis.causes.config_field import SolvedConfig
from auditor.diagnosis.solving.candidates import KeyChange
from auditor.diagnosis.solving.size_keys import DEPTH, WIDTHS, is_heads
from auditor.messages import shown

CAUSE = "other-size"
_MOST_SHOWN = 12  # keys that a summary names


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the proposal that sets all keys to values with which no tensor differs."""
    solved = config_field.solved_config(case)
    if solved is None or solved.differ:
        return
    if config_field.is_slip(solved):
        if case.is_large:  # this would use up the few audits of a large model
            yield from config_field.of_few_keys(case)
        return
    first, *others = sorted(solved.changes, key=lambda one: isinstance(one.value, list | dict))
    keys = [_first(first), *map(_short, others[: _MOST_SHOWN - 1])]
    if len(solved.changes) > _MOST_SHOWN:
        keys.append("...")
    count = f" ({len(solved.changes)} keys)" if len(solved.changes) > 1 else ""
    yield Proposal(
        cause=CAUSE,
        change=case.setting(solved.values),
        fields=config_field.fields_of(solved.changes),
        undetermined=solved.open_keys,
        summary=f"this is the config of {_kind_of_model(solved)}: {', '.join(keys)}{count}"
        f"{_cannot_be_read(solved)}",
        fix="take the config.json of the model whose weights these are",
        evidence=(
            f"with these {len(solved.changes)} values every tensor is expected as it is stored",
        ),
    )


def fits(case: Case) -> bool:
    """Whether the declared class fits with other values of its keys."""
    solved = config_field.solved_config(case)
    return solved is not None and not solved.differ


def _first(change: KeyChange) -> str:
    declared, held = map(shown, (change.key.value, change.value))
    omitted = " (the class's default)" if change.key.default else ""
    return f"{change.key.path} {declared}{omitted} where the files hold {held}"


def _short(change: KeyChange) -> str:
    declared, held = map(shown, (change.key.value, change.value))
    return f"{change.key.path} {declared} / {held}"


def _kind_of_model(solved: SolvedConfig) -> str:
    """Return how the described model compares with the stored one: smaller, larger, or other."""
    words = []
    for pattern, larger, smaller in (
        (DEPTH.search, "deeper", "shallower"),
        (lambda name: name in WIDTHS, "wider", "narrower"),
    ):
        steps = {
            change.key.value > change.value
            for change in solved.changes
            if pattern(change.key.name)
            and type(change.key.value) is int
            and type(change.value) is int
        }
        if len(steps) == 1:
            words.append(larger if steps.pop() else smaller)
    return f"a {' and '.join(words)} model" if words else "a model of another size"


def _cannot_be_read(solved: SolvedConfig) -> str:
    paths = [path for path, _ in solved.open_keys]
    others = [path for path in paths if not is_heads(path)]
    if any(is_heads(change.key.path) for change in solved.changes):
        others = paths
    heads = ["heads"] if len(others) < len(paths) else []
    return f"; the shapes do not determine {', '.join((*heads, *others))}" if paths else ""
