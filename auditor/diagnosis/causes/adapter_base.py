"""resized-base: an adapter stores word embeddings for more words, or fewer, than its base has.

other-base: an adapter has tensors for modules of other lengths than its base has, or for modules
that its base does not have.

older-names: an adapter names the modules as transformers did before it renamed them.

To do: Load the base as it was when the adapter was trained: resized with
`model.resize_token_embeddings(...)`, or by the version of transformers that was used for training;
or name the base on which it was trained in adapter_config.json.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from msgspec.structs import replace

from auditor.analytic.adapters.own_names import is_own, module_of
from auditor.analytic.adapters.saved_modules import IN_BASE
from auditor.analytic.adapters.settings import TRAINED_BY_TASK
from auditor.analytic.config_keys import changed, value_at
from auditor.analytic.name_forms import NameForms
from auditor.checkpoint.change import Change, renamed
from auditor.checkpoint.json_edits import json_edits
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.case import Case, Proposal, differing_axes
from auditor.diagnosis.causes.head_not_saved import CAUSE as HEAD_NOT_SAVED
from auditor.diagnosis.causes.other_class import CAUSE as OTHER_CLASS
from auditor.findings import MatchedPair
from auditor.messages import quoted
from auditor.names.kinds import members
from auditor.tensors import StoredTensor

# Start of names in a multimodal model -> start in its language model.
_FORMS = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.", ""),
)
_RANKS = {"lora_A.weight": 0, "lora_B.weight": 1, "lora_embedding_A": 0, "lora_embedding_B": 1}
_uncertain = partial(Proposal, certain=False)  # another base may explain the findings as well
_MOST = 12  # the most classes that are tried


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield proposals with another base on which the adapter may have been trained."""
    base = case.snapshot.base
    if not case.is_adapter or base is None or base.config is None:
        return
    of_base = replace(case.snapshot, config=base.config, base=None)
    values = base.config.object
    yield from _resized(case, values)
    yield from _of_other_lengths(case)
    yield from _of_other_modules(case, of_base)
    has_no_target = {one.kind for one in case.alarms} == {"bad-config"}
    if (case.missing and case.unexpected) or has_no_target:
        audited = (case.report.target or "").rpartition(" ")[2]
        tree = partial(case.tree, of_base, target=audited or None)
        yield from _with_older_names(case, case.forms(of_base, tree, target=audited or None))
        known = values.get("architectures")
        first = known[0] if isinstance(known, list) and known else "model of another class"
        declared = audited or str(first)
        if case.target is None:
            yield from _of_other_class(case, values, declared)
        yield from _of_model_around(case, declared)
    yield from _without_head(case)


def _resized(case: Case, values: Mapping[str, Any]) -> Iterator[Proposal]:
    """Yield the base with the adapter's vocabulary size, if this size explains every mismatch."""
    rows = {lengths for pair in case.mismatched for lengths in differing_axes(pair).values()}
    if len(rows) != 1 or 0 in next(iter(rows)):
        return
    ((stored, declared),) = rows
    is_nested = isinstance(values.get("text_config"), dict)
    key = "text_config.vocab_size" if is_nested else "vocab_size"
    yield _uncertain(
        cause="resized-base",
        change=Change(base=tuple(json_edits(values, changed(values, {key: stored})))),
        summary=f"the base has {declared:,} rows, the adapter {stored:,}: the base was resized "
        "before the training, and PEFT refuses other shapes",
        fix=f"resize the base to {stored:,} first, with model.resize_token_embeddings({stored}), "
        "and then let PEFT load the adapter",
        evidence=tuple(pair.stored.name for pair in case.mismatched[:2]),
    )


def _of_other_lengths(case: Case) -> Iterator[Proposal]:
    """Yield the findings that another base explains, if its modules have other lengths.

    The length of A or B that is not the rank is that of the module on which it was trained. Layers
    that only the adapter has, or only the base, are also explained.
    """
    lengths_by_name = {
        pair.stored.name: _lengths(pair) for pair in case.mismatched if is_own(pair.stored.name)
    }
    name = next((name for name in lengths_by_name if any(members(name))), None)
    if name is None or not all(lengths_by_name.values()):
        return
    observed, expected = lengths_by_name[name]
    stored, missing, unexpected = (
        {layer.number for name in names for layer in islice(members(name), 1)}
        for names in (
            case.shapes.keys() - set(case.unexpected.names),
            case.missing.names,
            case.unexpected.names,
        )
    )
    kinds = {"mismatched"}
    kinds |= {"missing"} if stored.isdisjoint(missing) else set()
    kinds |= {"unexpected"} if (stored | missing).isdisjoint(unexpected) else set()
    verb = "takes" if _rank_axis(name) == 0 else "gives"
    yield _on_other_base(
        case,
        kinds,
        f"{_in_base(name)} {verb} {observed:,} numbers there, and {expected:,} in this one",
        f"{len(lengths_by_name):,} tensors have lengths of other modules, and the right rank",
    )


def _lengths(pair: MatchedPair) -> tuple[int, ...]:
    """Return the stored and the expected length, if they are the only difference, not the rank."""
    different = differing_axes(pair)
    has_same_axes = len(pair.stored.shape or ()) == len(pair.expected.shape)
    if not has_same_axes or len(different) != 1 or _rank_axis(pair.stored.name) in different:
        return ()
    [(stored, expected)] = different.values()
    return (stored, expected) if stored else ()


def _rank_axis(name: str) -> int | None:
    return next((axis for end, axis in _RANKS.items() if name.endswith(end)), None)


def _of_other_modules(case: Case, of_base: Snapshot) -> Iterator[Proposal]:
    """Yield the unexpected tensors as proven, if the base has none of the modules they change."""
    names = () if case.missing or case.mismatched else case.unexpected.names
    if not names or not all(map(is_own, names)):
        return
    of_modules = case.implied(of_base)
    if not of_modules or any(f"{_in_base(name)}.weight" in of_modules for name in names):
        return
    module, count = _in_base(names[0]), f"{len(names):,} tensors are for"
    what = f"{count} modules that this one does not have, such as {quoted(module)}"
    proposal = _on_other_base(case, {"unexpected"}, what, "every other tensor fits this base")
    ends = {name.rpartition(".lora_")[2]: case.shapes[name] or (0,) for name in names}
    lengths = (ends.get("B.weight", (0,))[0], ends.get("A.weight", (0,))[-1])
    alike = [path.removesuffix(".weight") for path in of_modules if of_modules[path] == lengths]
    if alike and {module} == set(map(_in_base, names)):
        proposal = replace(
            proposal,
            cause="moved-names",
            summary=f"{count} {quoted(module)}, which the base does not have; its lengths are "
            f"those of {' or '.join(alike[:2])}",
            fix=f"write the base's name for {module}, also in target_modules; or {proposal.fix}",
        )
    yield proposal


def _on_other_base(case: Case, kinds: set[str], difference: str, evidence: str) -> Proposal:
    """Return the alarms of these kinds as proven by another base."""
    return _uncertain(
        cause="other-base",
        proven=tuple(one for one in case.alarms if one.kind in kinds),
        summary=f"the adapter was trained on another base: {difference}",
        fix="name the model on which it was trained in base_model_name_or_path of "
        "adapter_config.json, or train it on this one",
        evidence=(evidence,),
    )


def _with_older_names(case: Case, forms: NameForms) -> Iterator[Proposal]:
    """Yield the adapter with its modules renamed to their current names, if it has older names."""
    path_by_name = {name: _in_base(name) for name in case.shapes}
    current = {
        path: forms.in_memory(f"{path}.weight").removesuffix(".weight")
        for path in path_by_name.values()
    }
    renames = {
        name: f"{IN_BASE}{current[path]}{name.removeprefix(IN_BASE + path)}"
        for name, path in path_by_name.items()
        if current[path] != path
    }
    if not renames or len(set(renames.values())) < len(renames):
        return
    # Older name of a module's last part -> current name.
    ends = {old.rpartition(".")[2]: new.rpartition(".")[2] for old, new in current.items()}
    values = {"target_modules": sorted(set(ends.values()))}
    other = {old: new for old, new in ends.items() if old != new}
    first, new_first = next(iter(renames.items()))
    settings = ", ".join(f"{new} for {old}" for old, new in other.items())
    yield _uncertain(
        cause="older-names",
        change=Change(renames=renames, edits=case.edits(values) if other else ()),
        summary="the adapter was trained with an older version of transformers, whose names PEFT "
        f"does not translate: {_in_base(first)} is {_in_base(new_first)} now",
        fix="load it with the version of transformers that it was trained with, or rename "
        f"{len(renames):,} tensors" + (f" and write {settings} in target_modules" if other else ""),
        evidence=(f"{len(renames):,} of {len(case.shapes):,} names are older ones",),
    )


def _in_base(name: str) -> str:
    """Return the module of the base to which a tensor of an adapter belongs."""
    return module_of(name).removeprefix(IN_BASE)


def _of_other_class(case: Case, values: Mapping[str, object], declared: str) -> Iterator[Proposal]:
    """Yield proposals with another class of the base's type, or of its language model's type."""
    types = (value_at(values, "text_config.model_type"), value_at(values, "model_type"))
    names = [name for one in types if isinstance(one, str) for name in case.classes(one)]
    names.sort(key=lambda name: not name.endswith("ForCausalLM"))  # the class of most adapters
    for name in [one for one in dict.fromkeys(names) if one != declared][:_MOST]:
        yield _uncertain(
            cause=OTHER_CLASS,
            target=name,
            summary=f"the adapter was trained on a {name}, and its base is a {declared}: the names "
            "are those of other modules, and loading applies no tensor",
            fix=f"load the base as a {name} before PEFT loads the adapter, or train it on the "
            f"{declared}",
            evidence=(f"all tensors of an adapter of {name} are stored, and no others",),
            exact=True,
        )


def _of_model_around(case: Case, declared: str) -> Iterator[Proposal]:
    """Yield the adapter with only language model tensors, if it is for a multimodal model."""
    instead: dict[str, tuple[StoredTensor, ...]] = {}
    for tensor in case.unmatched:
        names = (tensor.name.replace(old, new, 1) for old, new in _FORMS)
        expected = [one for one in names if one in case.missing.by_name]
        instead[tensor.name] = tuple(renamed(tensor, one) for one in expected[:1])
    change = case.replacing(instead)
    renames = change.new_names
    if renames and case.missing.by_name.keys() <= set(renames.values()):
        yield _uncertain(
            cause=OTHER_CLASS,
            change=change,
            summary="the adapter was trained on a model with parts beside its language model, and "
            f"its base is a {declared}, the language model alone",
            fix=f"name the complete model as the base, or train the adapter on the {declared}",
            evidence=tuple(renames)[:2],
        )


def _without_head(case: Case) -> Iterator[Proposal]:
    """Yield the adapter without its task type, if only the head of that task is missing."""
    task, heads = case.config.get("task_type"), {_in_base(name) for name in case.missing.names}
    of_task = TRAINED_BY_TASK.get(task, ()) if isinstance(task, str) else ()
    if not (heads and of_task) or not all(head.endswith(of_task) for head in heads):
        return
    yield _uncertain(
        cause=HEAD_NOT_SAVED,
        change=case.setting({"task_type": None, "modules_to_save": None}),
        summary=f"{' and '.join(sorted(heads)[:2])} is not stored, which PEFT trains for {task} "
        "and needs to load",
        fix="save the adapter again with its head, or set task_type to the task of the class on "
        "which it was trained",
        evidence=(f"nothing else of an adapter for {task} is missing",),
        exact=True,
    )
