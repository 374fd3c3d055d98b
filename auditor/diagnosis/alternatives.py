"""The other values, classes and types that fit the files as well as those that a proposal states.

Law 10: a value is stated only if no other value fits. Otherwise the values that fit are listed, the
summary says that the shapes do not decide, and `audit fix` writes none of them. Shapes do not
decide either whether a flag is wrong or the tensors that it adds were lost.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from auditor.analytic.adapters import FILE
from auditor.analytic.config_keys import NULL, changed, stated_keys
from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.causes import config_field, other_architecture
from auditor.diagnosis.solving import limits
from auditor.diagnosis.solving.candidates import KeyChange, plausibility
from auditor.diagnosis.solving.open_keys import other_solutions
from auditor.messages import shown

_SHOWN = 6  # alternatives that a summary lists

Values = Mapping[str, Any]  # by dotted path


def decided(
    case: Case,
    proposal: Proposal,
    rivals: Sequence[Proposal],
    lost: Collection[str],
    fits: Callable[[Values], bool],
) -> Proposal:
    """Return the proposal with only the values in place of which no others fit.

    `rivals` are changes of its cause that are as good. `lost` are keys whose declared values fit
    if the tensors that they add were lost. `fits` audits the files with other values.
    """
    if proposal.values:
        rows = _fitting(case, proposal.values, [one.values for one in rivals], fits)
        return _with_determined_values(case, proposal, rows, lost)
    if not (rivals and proposal.fields):
        return proposal
    beginning, fix = proposal.undecided
    every = (proposal, *rivals)
    texts = [one.either for one in every]
    if proposal.cause == other_architecture.CAUSE:
        texts.append("perhaps others")  # only the most similar types are tried
    return replace(
        proposal,
        fields=(),
        undetermined=tuple((key, declared) for key, declared, _ in proposal.fields),
        alternatives=tuple({key: held for key, _, held in one.fields} for one in every),
        summary=f"{beginning}; {_undecided(texts)}",
        fix=fix,
        evidence=(),
    )


def _with_determined_values(
    case: Case, proposal: Proposal, rows: Sequence[Values], lost: Collection[str]
) -> Proposal:
    keys = stated_keys(rows[0], case.config)
    several = [path for path in keys if len({repr(row[path]) for row in rows}) > 1]
    lost = [path for path in keys if path in lost and path not in several]
    if not (several or lost):
        return proposal
    is_adapter = case.is_adapter
    whose, file = ("adapter", FILE) if is_adapter else ("model", "config.json")
    fields = tuple(one for one in proposal.fields if one[0] not in {*several, *lost})
    summary = [config_field.sentence(KeyChange(keys[path], held)) for path, _, held in fields]
    remedies = [f"set {path} = {shown(held)} in {file}" for path, _, held in fields]
    for path in lost:
        declared, held = shown(keys[path].value), shown(_plain(rows[0][path]))
        summary.append(
            f"{path} is {declared}, and tensors that this adds are not stored: either they were "
            f"lost or {path} was {held}, and the shapes do not decide"
        )
        remedies.append(
            f"save the {whose} again with all of its tensors; set {path} = {held} in {file} only "
            "if it never had them"
        )
    if several:
        names = "/".join(several)
        values = ["/".join(shown(_plain(row[path])) for path in several) for row in rows]
        declared = ", ".join(f"{path} {shown(keys[path].value)}" for path in several)
        summary.append(f"the files do not fit {declared}; {_undecided(values, f'{names} = ')}")
        remedies.append(
            f"take {', '.join(several)} from the {file} of the {whose} whose weights these are, "
            f"or upload weights of a model with {declared}"
        )
    stated = {*several, *lost}
    others = tuple(one for one in proposal.undetermined if one[0] not in stated)
    if others:
        summary.append(f"the shapes do not determine {', '.join(path for path, _ in others)}")
    return replace(
        proposal,
        fields=fields,
        undetermined=(*((path, keys[path].value) for path in keys if path in stated), *others),
        alternatives=tuple(
            {path: _plain(row[path]) for path in keys if path in stated} for row in rows
        ),
        summary="; ".join(summary),
        fix="; ".join(remedies),
        evidence=(),
    )


def _plain(value: Any) -> Any:
    return None if value is NULL else value


def _undecided(texts: Sequence[str], names: str = "") -> str:
    """Return the clause that the shapes do not decide between alternatives, which it lists."""
    *first, last = texts if len(texts) <= _SHOWN else [*texts[:_SHOWN], "others"]
    return f"the shapes do not decide between {names}{', '.join(first)} and {last}"


def _fitting(
    case: Case, values: Values, others: Sequence[Values], fits: Callable[[Values], bool]
) -> list[dict[str, Any]]:
    """Return all solutions with the values of the same keys, the likeliest first after `values`."""
    further: tuple[Values, ...] = ()
    if not case.is_adapter:
        trees, trials = config_field.trees_of(case), config_field.trials_of(case)
        most = config_field.most_trees(case, limits.OTHER_TREES)
        further = tuple(
            one for one in other_solutions(case.config, values, trees, trials, most) if fits(one)
        )
    every = (values, *others, *further)
    keys = stated_keys(sorted({path for one in every for path in one}), case.config)
    rows = [{path: one.get(path, key.value) for path, key in keys.items()} for one in every]
    rows = list({repr(row): row for row in rows}.values())

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        changes = [KeyChange(keys[path], value) for path, value in row.items()]
        return plausibility(changed(case.config, row), changes)

    return [rows[0], *sorted(rows[1:], key=order)]
