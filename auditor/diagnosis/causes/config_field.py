"""config-field: one value of the config (two at most) closes every shape and name.

The keys are those of the closed form's formulas, which are solved for them, and others that its
family reads; of an adapter those of its adapter_config.json that choose modules, layers and ranks.
Where only the oracle knows the class, lengths are tried for the keys that have them.

To do: Set the key to what the files hold, or upload the weights of the model that the config
describes: one of the two is of another model.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice, product
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from auditor.analytic.adapters import FILE
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes import _of_adapters, _of_totals
from auditor.diagnosis.causes.other_class import holds_another_head
from auditor.diagnosis.changes import value_at, with_values
from auditor.diagnosis.name_kinds import kinds_of, name_pattern
from auditor.diagnosis.solving.candidates import KeyChange
from auditor.diagnosis.solving.holdings import module_counts
from auditor.diagnosis.solving.keys import Key, config_with
from auditor.diagnosis.solving.search import KeySearch, Solution
from auditor.diagnosis.solving.trials import ClassTree, Trials
from auditor.messages import described

CAUSE = "config-field"
_MOST_AUDITED = 3  # of those with which nothing differs, or of those that leave least
_MOST_SHOWN = 4  # items of a list
_LONG = 10**21  # from here on digits are not told apart by threes, and cut
_TIE = "tie_word_embeddings"
_SYMPTOMS = frozenset(
    {"missing", "unexpected", "mismatched", "bad-config", "bad-quantization", "duplicate"}
)


def undoings(case: Case) -> Iterator[Undoing]:
    """The keys and values with which most of what differs would be expected as it is stored."""
    by_total = [(change,) for change in _of_totals.changes_by_total(case)]
    for changes in by_total:
        yield undoing_of(case, changes, tuple(other for other in by_total if other is not changes))
    if no_symptom(case):
        return
    if case.report.expected is not None and case.report.expected.by == "oracle":
        for symbol, value in _suggested(case):
            yield undoing_of(case, (KeyChange(symbol, value),), ())
        return
    if case.is_strange:
        return
    yield from _untied(case)
    found = list(islice(_solutions(case), _MOST_AUDITED))
    if found and found[0].differ and case.is_large:
        found = found[:1]
    for one in found:
        for change in one.changes if len(one.changes) > 1 else ():
            yield undoing_of(case, (change,), ())  # the others may be for what is left unused
        alone = one.differ or all(map(_is_spelt, one.changes))
        others = () if alone else tuple(other.changes for other in found if other is not one)
        yield undoing_of(case, one.changes, others)


def no_symptom(case: Case) -> bool:
    """Whether no alarm is of a kind that a wrong value in a config brings about."""
    return _SYMPTOMS.isdisjoint(finding.kind for finding in case.alarms)


def of_adapter(case: Case) -> Iterator[Undoing]:
    """The keys of an adapter_config.json with the values that the adapter's file shows."""
    if _of_adapters.is_adapter(case):
        for changes in _of_adapters.changes_of_adapter(case):
            yield undoing_of(case, changes)


def _untied(case: Case) -> Iterator[Undoing]:
    """A head of its own beside embeddings that the config ties it to."""
    declared = value_at(case.config, _TIE)
    if declared is not False and any(finding.kind == "duplicate" for finding in case.alarms):
        stated = _TIE in case.config
        tied = Key(_TIE, declared if stated else True, default=not stated)
        of_key = undoing_of(case, (KeyChange(tied, value=False),))
        omitted = " (the class's default)" if not stated else ""
        yield replace(
            of_key,
            summary=f"{_TIE} is {_shown(tied.value)}{omitted}, and the head is stored beside the "
            "embeddings all the same",
            fix=f"set {_TIE} = false in config.json if the head has values of its own (audit "
            "--values tells); if it has the same ones, save_pretrained stores them once",
        )


def _solutions(case: Case) -> Iterator[Solution]:
    """Those of the search, but for a tie in the place of a head that is stored instead."""
    for one in search(case).solutions():
        if not (any(map(_ties, one.changes)) and holds_another_head(case)):
            yield one


def _ties(change: KeyChange) -> bool:
    return change.key.path.endswith(_TIE) and change.value is True


def search(case: Case) -> KeySearch:
    faults = " ".join(one.reason for one in case.alarms if one.kind == "bad-config")
    return KeySearch(case.config, partial(tree_with, case), trials_of(case), faults)


def trials_of(case: Case) -> Trials:
    """Return the comparisons of the stored tensors with trees of the config."""
    alarming = None if case.report.expected is None else _alarming(case)
    return Trials(case.holdings, alarming)


def tree_with(case: Case, values: Mapping[str, Any]) -> ClassTree | None:
    """Return the class's tree under these values; None if the config is not JSON."""
    try:
        return case.tree(with_values(case.snapshot, values))
    except ValueError:
        return None


def _alarming(case: Case) -> set[str]:
    """The patterns of the names that differ, as they are on disk.

    What another class of the family has with other shapes (the pooler, beside a language model)
    may be what is left unused once the rest fits: it counts where nothing else differs.
    """
    named = {kind.pattern for kind in (*case.missing_kinds, *kinds_of(case.unknown))}
    named.update(name_pattern(pair.expected.name) for pair in case.mismatched)
    named = named or {kind.pattern for kind in case.unexpected_kinds}
    return {one for name in named for one in case.patterns_on_disk(name)}


def undoing_of(
    case: Case,
    changes: tuple[KeyChange, ...],
    others: tuple[tuple[KeyChange, ...], ...] = (),
) -> Undoing:
    """The config with these values; `others` would explain as much."""
    values: dict[str, Any] = {}
    for change in changes:
        values.update(config_with(case.config, change.key.path, change.value))
    as_much = _as_much(others)
    names = " and ".join(f"{change.key.path} = {_shown(change.value)}" for change in changes)
    declared = " and ".join(_shown(change.key.value) for change in changes)
    adapter = _of_adapters.is_adapter(case)
    whose, file = ("an adapter", FILE) if adapter else ("a model", "config.json")
    instead = f", or upload weights of {whose} with {declared}"
    return Undoing(
        cause=CAUSE,
        snapshot=with_values(case.snapshot, values),
        fields=tuple((change.key.path, change.key.value, change.value) for change in changes),
        summary="; ".join(map(sentence, changes)) + as_much,
        fix=f"set {names} in {file}{'' if all(map(_is_misspelt, changes)) else instead}",
        evidence=(f"with {names}, what it concerns is expected as it is stored",),
    )


def sentence(change: KeyChange) -> str:
    omitted = " (the class's default)" if change.key.default else ""
    declared = _shown(change.key.value)
    return f"{change.key.path} is {declared}{omitted}, the files hold {_shown(change.value)}"


def _is_misspelt(change: KeyChange) -> bool:
    """Whether no model can have the value that is declared: a number as a string, say."""
    declared, held = change.key.value, change.value
    if isinstance(declared, bool) or isinstance(held, bool):
        return type(declared) is not type(held)
    return isinstance(declared, str | float) and isinstance(held, int | list)


def _is_spelt(change: KeyChange) -> bool:
    """Whether the config has that value as a string: "false", "12"."""
    declared = change.key.value
    return isinstance(declared, str) and declared.lower() == str(change.value).lower()


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
            return f"{value:,}" if abs(value) < _LONG else described(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() if len(value) > 2 * _MOST_SHOWN:
            return f"[{', '.join(map(str, value[:_MOST_SHOWN]))}, ...]"
        case list():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


# --- where only the oracle knows the class: lengths, as they are stored ---------------------------
#
# The library takes 50 ms and more for each config, so that few are asked about.

_MOST_ASKED = 6


def _suggested(case: Case) -> Iterator[tuple[Key, int]]:
    """The keys and values that close most, best first."""
    every = len(case.missing) + len(case.unexpected) + len(case.mismatched)
    judged: list[tuple[int, Key, int]] = []
    for key, value in islice(_values(case), _MOST_ASKED):
        closed = _closed(case, key, value)
        judged.append((closed, key, value))
        if closed == every:
            break
    judged.sort(key=itemgetter(0), reverse=True)
    yield from ((key, value) for closed, key, value in judged[:2] if closed)


def _values(case: Case) -> Iterator[tuple[Key, int]]:
    differ = [*sorted(_counts(case)), *sorted(_lengths(case))]
    seen: set[tuple[str, int]] = set()
    for key, (due, found) in product(_numbers(case.config, ""), differ):
        if key.value == due and found > 0 and (key.path, found) not in seen:
            seen.add((key.path, found))
            yield key, found


def _numbers(values: Mapping[str, Any], within: str) -> Iterator[Key]:
    for name, value in values.items():
        if type(value) is int and value > 0 and not name.endswith("_token_id"):
            yield Key(f"{within}{name}", value, default=False)
        elif isinstance(value, Mapping) and name.endswith("_config"):
            yield from _numbers(value, f"{within}{name}.")


def _closed(case: Case, key: Key, value: int) -> int:
    """How many names would no longer differ, by what the config implies; 0 if others would."""
    shapes = case.implied(with_values(case.snapshot, config_with(case.config, key.path, value)))
    if shapes is None:
        return 0
    stored = {case.on_disk(name): shape for name, shape in case.shapes.items()}
    missing, unexpected = _on_disk(case, case.missing), _on_disk(case, case.unexpected)
    good = sum(shapes.get(one.expected.name) == one.stored.shape for one in case.mismatched)
    good += sum(name not in shapes for name in missing)
    good += sum(name in shapes and shapes[name] == stored[name] for name in unexpected)
    alarming = {*missing, *(one.expected.name for one in case.mismatched)}
    opened = any(
        name not in alarming and name in stored and stored[name] != shape
        for name, shape in shapes.items()
    )
    return 0 if opened else good


def _on_disk(case: Case, names: tuple[str, ...]) -> list[str]:
    return [case.on_disk(name) for name in names]


def _lengths(case: Case) -> set[tuple[int, int]]:
    """(expected, stored) lengths of the axes that differ."""
    found = set()
    for pair in case.mismatched:
        stored, due = pair.stored.shape, pair.expected.shape
        if stored is not None and len(stored) == len(due):
            found |= {(one, other) for one, other in zip(due, stored, strict=True) if one != other}
    return found


def _counts(case: Case) -> set[tuple[int, int]]:
    """(expected, stored) numbers of modules in lists of which names are missing or too many."""
    missing, unexpected = _on_disk(case, case.missing), _on_disk(case, case.unexpected)
    have, more = case.holdings.counts, module_counts(kinds_of(unexpected))
    lacking = module_counts(kinds_of(missing))
    due = {place: max(count, have.get(place, 0)) for place, count in lacking.items()}
    found = {(count, have.get(place, 0)) for place, count in due.items()}
    for place in more:
        numbers = (
            int(name[len(place) + 1 :].partition(".")[0])
            for name in unexpected
            if name.startswith(f"{place}.") and name[len(place) + 1].isdecimal()
        )
        found.add((min(numbers, default=0), have.get(place, 0)))
    return {(one, other) for one, other in found if one != other and other}
