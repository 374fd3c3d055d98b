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
_MOST_AUDITED = 3  # solutions without differences, or those with fewest
_MOST_SHOWN = 4  # items of a list
_LONG = 10**21  # numbers from here on are abbreviated instead of grouped by threes
_TIE = "tie_word_embeddings"
_SYMPTOMS = frozenset(
    {"missing", "unexpected", "mismatched", "bad-config", "bad-quantization", "duplicate"}
)


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the key changes with which most of the differing tensors would be expected."""
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
    best = list(islice(_solutions(case), _MOST_AUDITED))
    if best and best[0].differ and case.is_large:
        best = best[:1]
    for solution in best:
        for change in solution.changes if len(solution.changes) > 1 else ():
            yield undoing_of(
                case, (change,), ()
            )  # the other change may only concern unused tensors
        alone = solution.differ or all(map(_is_spelt, solution.changes))
        others = () if alone else tuple(one.changes for one in best if one is not solution)
        yield undoing_of(case, solution.changes, others)


def no_symptom(case: Case) -> bool:
    """Whether no alarm is of a kind that a wrong config value causes."""
    return _SYMPTOMS.isdisjoint(finding.kind for finding in case.alarms)


def of_adapter(case: Case) -> Iterator[Undoing]:
    """Yield the keys of an adapter_config.json with the values that fit the adapter's file."""
    if _of_adapters.is_adapter(case):
        for changes in _of_adapters.changes_of_adapter(case):
            yield undoing_of(case, changes)


def _untied(case: Case) -> Iterator[Undoing]:
    """Yield the untied config, if a tied head is stored beside the embeddings."""
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
    """Yield the search's solutions, except ones that tie the head while another is stored."""
    for solution in search(case).solutions():
        if not (any(map(_ties, solution.changes)) and holds_another_head(case)):
            yield solution


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
    """Return the patterns of the names that differ, in the form on disk.

    A tensor of another class of the family (the pooler, for a language model) may be unused once
    the rest fits. Such tensors count only if nothing else differs.
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
    """Return the undoing that sets these values; `others` are changes that explain as much."""
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
    """Whether the declared value is of an impossible type, such as a number as a string."""
    declared, held = change.key.value, change.value
    if isinstance(declared, bool) or isinstance(held, bool):
        return type(declared) is not type(held)
    return isinstance(declared, str | float) and isinstance(held, int | list)


def _is_spelt(change: KeyChange) -> bool:
    """Whether the config states the value as a string: "false", "12"."""
    declared = change.key.value
    return isinstance(declared, str) and declared.lower() == str(change.value).lower()


def _as_much(others: tuple[tuple[KeyChange, ...], ...]) -> str:
    """Return the clause about other changes that explain as much."""
    if not others:
        return ""
    first = " and ".join(f"{change.key.path} = {_shown(change.value)}" for change in others[0])
    more = f", and {len(others) - 1} more" if len(others) > 1 else ""
    return f" (or {first}{more}, which would explain as much)"


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


# --- stored lengths, for a class that only the oracle knows ---------------------------------------
#
# The library takes 50 ms or more per config, so only a few configs are tried.

_MOST_TRIED = 6


def _suggested(case: Case) -> Iterator[tuple[Key, int]]:
    """Yield the two keys and values that close most differences, best first."""
    every = len(case.missing) + len(case.unexpected) + len(case.mismatched)
    tried: list[tuple[int, Key, int]] = []
    for key, value in islice(_values(case), _MOST_TRIED):
        closed = _closed(case, key, value)
        tried.append((closed, key, value))
        if closed == every:
            break
    tried.sort(key=itemgetter(0), reverse=True)
    yield from ((key, value) for closed, key, value in tried[:2] if closed)


def _values(case: Case) -> Iterator[tuple[Key, int]]:
    differ = [*sorted(_counts(case)), *sorted(_lengths(case))]
    seen: set[tuple[str, int]] = set()
    for key, (expected, stored) in product(_numbers(case.config, ""), differ):
        if key.value == expected and stored > 0 and (key.path, stored) not in seen:
            seen.add((key.path, stored))
            yield key, stored


def _numbers(values: Mapping[str, Any], within: str) -> Iterator[Key]:
    for name, value in values.items():
        if type(value) is int and value > 0 and not name.endswith("_token_id"):
            yield Key(f"{within}{name}", value, default=False)
        elif isinstance(value, Mapping) and name.endswith("_config"):
            yield from _numbers(value, f"{within}{name}.")


def _closed(case: Case, key: Key, value: int) -> int:
    """Return how many names the value stops from differing; 0 if it makes others differ."""
    shapes = case.implied(with_values(case.snapshot, config_with(case.config, key.path, value)))
    if shapes is None:
        return 0
    stored = {case.on_disk(name): shape for name, shape in case.shapes.items()}
    missing, unexpected = _on_disk(case, case.missing), _on_disk(case, case.unexpected)
    closed = sum(shapes.get(one.expected.name) == one.stored.shape for one in case.mismatched)
    closed += sum(name not in shapes for name in missing)
    closed += sum(name in shapes and shapes[name] == stored[name] for name in unexpected)
    alarming = {*missing, *(one.expected.name for one in case.mismatched)}
    opened = any(
        name not in alarming and name in stored and stored[name] != shape
        for name, shape in shapes.items()
    )
    return 0 if opened else closed


def _on_disk(case: Case, names: tuple[str, ...]) -> list[str]:
    return [case.on_disk(name) for name in names]


def _lengths(case: Case) -> set[tuple[int, int]]:
    """Return the (expected, stored) lengths of the axes that differ."""
    lengths = set()
    for pair in case.mismatched:
        stored, expected = pair.stored.shape, pair.expected.shape
        if stored is not None and len(stored) == len(expected):
            lengths |= {(a, b) for a, b in zip(expected, stored, strict=True) if a != b}
    return lengths


def _counts(case: Case) -> set[tuple[int, int]]:
    """Return the (expected, stored) lengths of lists with missing or unexpected names."""
    missing, unexpected = _on_disk(case, case.missing), _on_disk(case, case.unexpected)
    have, more = case.holdings.counts, module_counts(kinds_of(unexpected))
    lacking = module_counts(kinds_of(missing))
    expected = {place: max(count, have.get(place, 0)) for place, count in lacking.items()}
    counts = {(count, have.get(place, 0)) for place, count in expected.items()}
    for place in more:
        numbers = (
            int(name[len(place) + 1 :].partition(".")[0])
            for name in unexpected
            if name.startswith(f"{place}.") and name[len(place) + 1].isdecimal()
        )
        counts.add((min(numbers, default=0), have.get(place, 0)))
    return {(one, other) for one, other in counts if one != other and other}
