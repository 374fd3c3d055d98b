"""config-field: one value of the config, or two at most, explains every wrong shape and name.

All keys are solved for together (`auditor/diagnosis/solving/joint.py`); if more than two differ,
the cause is other-size. If several values fit, they are listed and none is stated. For an adapter,
the keys are those in its adapter_config.json that choose modules, layers and ranks.

To do: Set the key to the value that fits the files, or upload the weights of the model that the
config describes: either config or weights belong to another model. If several values fit, take the
value from the config of the model that the weights belong to.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.analytic.adapters import FILE
from auditor.analytic.config_keys import (
    NULL,
    Key,
    changed,
    every_key,
    name_of,
    stated_keys,
)
from auditor.analytic.outline import ClassTree
from auditor.checkpoint.change import with_config
from auditor.diagnosis.case import Case, Proposal, once
from auditor.diagnosis.causes import _of_adapters
from auditor.diagnosis.causes.other_class import holds_another_head
from auditor.diagnosis.solving import limits
from auditor.diagnosis.solving.candidates import KeyChange
from auditor.diagnosis.solving.joint import (
    NOTHING,
    JointSolution,
    solve,
)
from auditor.diagnosis.solving.open_keys import ids_beyond, open_keys
from auditor.diagnosis.solving.probing import Formula, probed_formulas, tree_of_shapes
from auditor.diagnosis.solving.size_keys import HEAD_SIZES, WIDTHS, is_width
from auditor.diagnosis.solving.trials import Trees, Trials
from auditor.errors import CheckpointError
from auditor.findings import Unexpected
from auditor.messages import shown
from auditor.names.kinds import kinds_of, name_pattern

CAUSE = "config-field"
_MOST_AUDITED = 3  # solutions that leave no difference
_FEWEST = 3  # differing keys of a config of another size; fewer are a slip in the config
_RANKS = (2, 4, 8, 16)  # numbers of ranks in tensor parallelism
_SURE = 10  # an oracle's solution explains all but one in so many differing tensors
_TIE, VOCABULARY = "tie_word_embeddings", "vocab_size"
_SYMPTOMS = frozenset(
    {"missing", "unexpected", "mismatched", "bad-config", "bad-quantization", "duplicate"}
)


class SolvedConfig(NamedTuple):
    """Values of the config with which the fewest stored tensors differ."""

    values: Mapping[str, Any]  # by dotted path
    changes: tuple[KeyChange, ...]  # keys whose value the shapes determine
    open_keys: tuple[tuple[str, Any], ...]  # (key, declared) without a determined value
    differ: int  # number of tensors that still differ


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the proposals that set keys so that most of the differing tensors are expected."""
    if no_symptom(case) or case.is_of_other_names:
        return
    yield from _untied(case)
    yield from of_few_keys(case)


def of_few_keys(case: Case) -> Iterator[Proposal]:
    """Yield the solved config and its alternatives, unless the config is another model's."""
    solutions = _solutions(case)[:_MOST_AUDITED]
    solved = solved_config(case)
    if solved is None or not solved.changes or not (solved.differ or is_slip(solved)):
        return
    if len(solutions) > 1:
        for changes in (_changes_of(case, solution) for solution in solutions):
            yield proposal_of(case, changes)
            if all(map(_is_spelt, changes)):
                return
        return
    has_list = any(isinstance(change.value, list) for change in solved.changes)
    if len(solved.changes) == 2 and not (solved.open_keys or has_list):  # noqa: PLR2004 - a pair
        for change in solved.changes:  # the other key may only concern unused tensors
            yield proposal_of(case, (change,))
    proposal = proposal_of(case, solved.changes)
    # Heads follow from a width that is stated, and that no shape confirms.
    given = [one for one in solved.open_keys if name_of(one[0]) in HEAD_SIZES]
    names = ", ".join(path for path, _ in solved.open_keys if path not in dict(given))
    condition = "".join(f" if {path} is {shown(width)} as stated" for path, width in given[:1])
    yield replace(
        proposal,
        change=case.setting(solved.values),
        values=solved.values,
        summary=proposal.summary
        + condition
        + (f"; {names} do not follow from the shapes" if names else ""),
        undetermined=solved.open_keys,
    )


@once
def solved_config(case: Case) -> SolvedConfig | None:
    """Return the config values that leave the fewest differences.

    Return None if that is the declared config, or if the files are one rank's share of the model.
    """
    best = next(iter(_solutions(case)), None)
    if best is None or not best.values or _is_divided(case, best):
        return None
    unread = open_keys(case.config, best.values, trees_of(case), trials_of(case))
    changes = tuple(change for change in _changes_of(case, best) if change.key.path not in unread)
    beyond = ids_beyond(case.config, best.values)
    values = {**best.values, **dict.fromkeys(beyond, 0)}
    return SolvedConfig(values, changes, (*unread.items(), *beyond.items()), best.remains.differ)


def is_slip(solved: SolvedConfig) -> bool:
    """Whether few enough keys differ for a mistake, rather than the config of another model."""
    wide = any(is_width(change.key.path) for change in solved.changes)
    return len(solved.changes) < (2 if solved.open_keys and wide else _FEWEST)


def _is_divided(case: Case, solution: JointSolution) -> bool:
    """Whether each declared size is the stored size times the number of tensor-parallel ranks.

    Ranks divide the vocabulary too, and neither widths nor depths.
    """
    changes = [one for one in _changes_of(case, solution) if one.key.value is not None]
    names = {key.name for key, _ in changes}
    if len(changes) < 2 or VOCABULARY not in names or not names.isdisjoint(WIDTHS):  # noqa: PLR2004
        return False
    return any(
        all(
            type(key.value) is type(size) is int and key.value == ranks * size
            for key, size in changes
        )
        for ranks in _RANKS
    )


def _changes_of(case: Case, solution: JointSolution) -> tuple[KeyChange, ...]:
    keys = stated_keys(solution.values, case.config)
    return tuple(
        KeyChange(keys[path], None if value is NULL else value)
        for path, value in sorted(solution.values.items())
    )


@once
def _solutions(case: Case) -> tuple[JointSolution, ...]:
    return tuple(_searched(case))


def _searched(case: Case) -> Iterator[JointSolution]:
    """Yield the search's solutions, except solutions that tie a head which is stored."""
    if case.is_adapter or case.is_of_other_names or no_symptom(case):
        return
    trials, trees = trials_of(case), trees_of(case)
    faults = " ".join(one.reason for one in case.alarms if one.kind == "bad-config")
    most = most_trees(case, limits.TREES)
    solutions = solve(case.config, trees, trials, faults=faults, most_trees=most)
    for solution in solutions:
        if by_oracle(case) and _SURE * solution.remains.differ > _of(case, {}).remains.differ:
            continue  # a probed formula may be wrong: then many tensors still differ
        ties = any(path.endswith(_TIE) and value is True for path, value in solution.values.items())
        if ties and len(solution.values) == 2:  # noqa: PLR2004 - a tie and one other key
            # The head may also have been lost: the cause head-not-saved names both remedies.
            others = {path: one for path, one in solution.values.items() if not path.endswith(_TIE)}
            yield _of(case, others)
        elif solution.values and _is_untied(case):
            yield solution._replace(values={**solution.values, **_untying(case)})
        elif not (ties and holds_another_head(case)):
            yield solution


def most_trees(case: Case, most: int) -> int:
    """Return the limit of trees for a search; an oracle's take longer."""
    if not by_oracle(case):
        return most
    return max(1, min(limits.ORACLE_TREES, limits.ORACLE_TENSORS // case.size))


def _of(case: Case, values: Mapping[str, Any]) -> JointSolution:
    """Return the solution with these values, compared with the stored tensors."""
    tree = tree_with(case, values)
    return JointSolution(values, trials_of(case).compare(tree) if tree else NOTHING)


def by_oracle(case: Case) -> bool:
    """Whether the expected tensors come from the oracle, without formulas."""
    return case.report.expected is not None and case.report.expected.by == "oracle"


def trees_of(case: Case) -> Trees:
    """Return the function from values of keys to the class's tree with these values."""
    return partial(tree_with, case)


def tree_with(case: Case, values: Mapping[str, Any]) -> ClassTree | None:
    """Return the class's tree under these values; None if the config is not JSON.

    Raise CheckpointError if they imply no tensors.
    """
    try:
        config = changed(case.config, values)
        snapshot = with_config(case.snapshot, config)
        if by_oracle(case):
            shapes = case.implied(snapshot)
            return tree_of_shapes(shapes, config, _formulas(case)) if shapes else None
        return case.tree(snapshot)
    except ValueError:
        return None


@once
def _formulas(case: Case) -> Mapping[tuple[str, int | None], Formula]:
    """Return the formulas of lengths by which the oracle's tensors depend on keys."""

    def implied(values: Mapping[str, Any]) -> Mapping[str, tuple[int, ...]] | None:
        with suppress(CheckpointError, ValueError):
            return case.implied(with_config(case.snapshot, changed(case.config, values)))
        return None

    return probed_formulas(case.config, implied)


@once
def trials_of(case: Case) -> Trials:
    """Return the object that compares the stored tensors with trees of changed configs."""
    alarming = None if case.report.expected is None else _alarming(case)
    trials = Trials(case.unpacked_on_disk, alarming)
    with suppress(CheckpointError):
        if as_it_is := tree_with(case, {}):
            trials.excuse(as_it_is)
    return trials


def no_symptom(case: Case) -> bool:
    """Whether no alarming finding is of a kind that a wrong config value causes."""
    return _SYMPTOMS.isdisjoint(finding.kind for finding in case.alarms)


def of_adapter(case: Case) -> Iterator[Proposal]:
    """Yield proposals that set keys of adapter_config.json so that they fit the adapter's file."""
    if case.is_adapter:
        for changes in _of_adapters.changes_of_adapter(case):
            yield proposal_of(case, changes)


def _is_untied(case: Case) -> bool:
    """Whether the config ties a head that is stored beside the embeddings."""
    return case.config.get(_TIE) is not False and any(
        one.kind == "duplicate" for one in case.alarms
    )


def _untying(case: Case) -> dict[str, bool]:
    """Return the values that untie the head: of the complete model, and of each part with a tie."""
    keys = every_key(case.config, shaping=False)
    ties = (key.path for key in keys if key.name == _TIE and key.value is True and not key.default)
    return dict.fromkeys((_TIE, *ties), False)


def _untied(case: Case) -> Iterator[Proposal]:
    """Yield the untied config, if a tied head is stored beside the embeddings."""
    if _is_untied(case):
        tied = Key(_TIE, case.config.get(_TIE, True), default=_TIE not in case.config)
        declared, _, _ = sentence(KeyChange(tied, value=False)).partition(",")
        yield replace(
            proposal_of(case, (KeyChange(tied, value=False),)),
            summary=f"{declared}, and the head is stored beside the embeddings all the same",
            fix=f"set {_TIE} = false in config.json if the head has values of its own (audit "
            "--values tells); if it has the same ones, save_pretrained stores them once",
        )


def _alarming(case: Case) -> set[str]:
    """Return the patterns of the differing names as written by save_pretrained.

    A tensor that only another class of the family has (the pooler, for a language model) may be
    unused once the rest fits. Such tensors count only if nothing else differs.
    """
    found = (one for one in case.report.findings if Unexpected.describes(one))
    unknown = [name for one in found if not (one.known_to or one.silent) for name in one.names]
    named = {kind.pattern for kind in (*case.missing.kinds, *kinds_of(unknown))}
    named.update(name_pattern(pair.expected.name) for pair in case.mismatched)
    named = named or {kind.pattern for kind in case.unexpected.kinds}
    return {one for name in named for one in case.patterns_on_disk(name)}


def proposal_of(case: Case, changes: tuple[KeyChange, ...]) -> Proposal:
    """Return the proposal that sets these values."""
    values = {change.key.path: change.value for change in changes}
    names = " and ".join(f"{change.key.path} = {shown(change.value)}" for change in changes)
    declared = " and ".join(
        f"{change.key.path.rpartition('.')[2]} {shown(change.key.value)}" for change in changes
    )
    adapter = case.is_adapter
    whose, file = ("an adapter", FILE) if adapter else ("a model", "config.json")
    upload = f", or upload weights of {whose} with {declared}"
    return Proposal(
        cause=CAUSE,
        change=case.setting(values),
        values=values,
        fields=fields_of(changes),
        summary="; ".join(map(sentence, changes)),
        fix=f"set {names} in {file}{'' if all(map(_is_misspelt, changes)) else upload}",
        instead="" if adapter else f"take the {file} of the model whose weights these are{upload}",
        evidence=(f"with {names}, what it concerns is expected as it is stored",),
        either=names,
    )


def fields_of(changes: tuple[KeyChange, ...]) -> tuple[tuple[str, Any, Any], ...]:
    """Return (key, declared value, value that the files show) for each change."""
    return tuple((change.key.path, change.key.value, change.value) for change in changes)


def sentence(change: KeyChange) -> str:
    omitted = " (the class's default)" if change.key.default else ""
    declared = shown(change.key.value)
    return f"{change.key.path} is {declared}{omitted}, the files hold {shown(change.value)}"


def is_choice(case: Case, declared: Any, held: Any) -> bool:
    """Whether a value chooses modules, such as a flag, a word or null, and does not count them."""
    if _is_misspelt(KeyChange(Key("", declared, default=False), held)):
        return False
    items = held if isinstance(held, list) and not case.is_adapter else [held]
    return not any(type(item) in {int, float} and item for item in items)


def _is_misspelt(change: KeyChange) -> bool:
    """Whether the declared value is of an impossible type, such as a number as a string."""
    declared, held = change.key.value, change.value
    if isinstance(declared, bool) or isinstance(held, bool):
        return type(declared) is not type(held)
    return isinstance(declared, str | float) and isinstance(held, int | list)


def _is_spelt(change: KeyChange) -> bool:
    """Whether the config states a number or a boolean as a string: "false", "12"."""
    declared = change.key.value
    return isinstance(declared, str) and declared.lower() == str(change.value).lower()
