"""config-field: one value of the config (two at most) closes every shape and name.

The keys are those of the closed form's formulas, which are solved for them, and others that its
family reads. Where only the oracle knows the class, lengths are tried for the keys that have them.

To do: Set the key to what the files hold, or upload the weights of the model that the config
describes: one of the two is of another model.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes import _asked_values, _of_totals
from auditor.diagnosis.changes import value_at, with_values
from auditor.diagnosis.name_kinds import kinds_of, name_pattern
from auditor.diagnosis.solving.candidates import KeyChange
from auditor.diagnosis.solving.keys import Key, config_with
from auditor.diagnosis.solving.search import KeySearch
from auditor.diagnosis.solving.trials import ClassTree, Trials

CAUSE = "config-field"
_MOST_AUDITED = 3  # of those with which nothing differs, or of those that leave least
_MOST_SHOWN = 4  # items of a list
_SYMPTOMS = frozenset(
    {"missing", "unexpected", "mismatched", "bad-config", "bad-quantization", "duplicate"}
)


def undoings(case: Case) -> Iterator[Undoing]:
    """The keys and values with which most of what differs would be expected as it is stored."""
    by_total = [(change,) for change in _of_totals.changes_by_total(case)]
    for changes in by_total:
        yield _undoing(case, changes, tuple(other for other in by_total if other is not changes))
    if _SYMPTOMS.isdisjoint(finding.kind for finding in case.alarms):
        return
    if case.report.expected is not None and case.report.expected.by == "oracle":
        for symbol, value in _asked_values.suggested(case):
            yield _undoing(case, (KeyChange(symbol, value),), ())
        return
    if case.is_strange:
        return
    yield from _untied(case)
    found = list(islice(search(case).solutions(), _MOST_AUDITED))
    if found and found[0].differ and case.is_large:
        found = found[:1]
    for one in found:
        for change in one.changes if len(one.changes) > 1 else ():
            yield _undoing(case, (change,), ())  # the others may be for what is left unused
        others = () if one.differ else tuple(other.changes for other in found if other is not one)
        yield _undoing(case, one.changes, others)


def certain(case: Case) -> Iterator[Undoing]:
    """Of a large model the first value with which nothing at all would differ, if there is one.

    An audit of it takes a second, so that what others merely propose would use up the tries.
    """
    if not case.is_large or _SYMPTOMS.isdisjoint(finding.kind for finding in case.alarms):
        return
    if case.report.expected is not None and case.report.expected.by == "oracle":
        return
    if case.is_strange:
        return
    for one in islice(search(case).solutions(), 1):
        if not one.differ:
            if len(one.changes) > 1:  # the second may be for what the target class leaves unused
                yield _undoing(case, one.changes[:1], ())
            yield _undoing(case, one.changes, ())


def _untied(case: Case) -> Iterator[Undoing]:
    """A head of its own beside embeddings that the config ties it to."""
    key = "tie_word_embeddings"
    declared = value_at(case.config, key)
    if declared is not False and any(finding.kind == "duplicate" for finding in case.alarms):
        stated = key in case.config
        tied = Key(key, declared if stated else True, default=not stated)
        yield _undoing(case, (KeyChange(tied, value=False),), ())


def search(case: Case) -> KeySearch:
    def trees(values: Mapping[str, Any]) -> ClassTree | None:
        try:
            return case.tree(with_values(case.snapshot, values))
        except ValueError:
            return None

    alarming = None if case.report.expected is None else _alarming(case)
    faults = " ".join(one.reason for one in case.alarms if one.kind == "bad-config")
    return KeySearch(case.config, trees, Trials(case.holdings, alarming), faults)


def _alarming(case: Case) -> set[str]:
    """The patterns of the names that differ, as they are on disk.

    What another class of the family has with other shapes (the pooler, beside a language model)
    may be what is left unused once the rest fits: it counts where nothing else differs.
    """
    named = {kind.pattern for kind in (*case.missing_kinds, *kinds_of(case.unknown))}
    named.update(name_pattern(pair.expected.name) for pair in case.mismatched)
    named = named or {kind.pattern for kind in case.unexpected_kinds}
    return {one for name in named for one in case.patterns_on_disk(name)}


def _undoing(
    case: Case, changes: tuple[KeyChange, ...], others: tuple[tuple[KeyChange, ...], ...]
) -> Undoing:
    values: dict[str, Any] = {}
    for change in changes:
        values.update(config_with(case.config, change.key.path, change.value))
    as_much = _as_much(others)
    names = " and ".join(f"{change.key.path} = {_shown(change.value)}" for change in changes)
    declared = " and ".join(_shown(change.key.value) for change in changes)
    return Undoing(
        cause=CAUSE,
        snapshot=with_values(case.snapshot, values),
        fields=tuple((change.key.path, change.key.value, change.value) for change in changes),
        summary="; ".join(map(_sentence, changes)) + as_much,
        fix=f"set {names} in config.json, or upload weights of a model with {declared}",
        evidence=(f"with {names}, what it concerns is expected as it is stored",),
    )


def _sentence(change: KeyChange) -> str:
    omitted = " (the class's default)" if change.key.default else ""
    declared = _shown(change.key.value)
    return f"{change.key.path} is {declared}{omitted}, the files hold {_shown(change.value)}"


def _as_much(others: tuple[tuple[KeyChange, ...], ...]) -> str:
    """What would explain as much."""
    if not others:
        return ""
    said = " and ".join(f"{change.key.path} = {_shown(change.value)}" for change in others[0])
    more = f", and {len(others) - 1} more" if len(others) > 1 else ""
    return f" (or {said}{more}, which would explain as much)"


def _shown(value: Any) -> str:
    match value:
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case int():
            return f"{value:,}"
        case list() if len(value) > 2 * _MOST_SHOWN:
            return f"[{', '.join(map(str, value[:_MOST_SHOWN]))}, ...]"
    return str(value)
