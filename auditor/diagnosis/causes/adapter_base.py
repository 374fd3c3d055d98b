"""resized-base: an adapter stores word embeddings for more words, or fewer, than its base has.

other-base: an adapter has tensors for modules of other lengths than its base has, or for modules
that its base does not have.

older-names: an adapter names the modules as transformers did before it renamed them.

To do: Load the base as it was when the adapter was trained: resized with
`model.resize_token_embeddings(...)`, or by the version of transformers that was used for training;
or name the base on which it was trained in adapter_config.json.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from auditor.analytic.adapters.settings import TRAINED_BY_TASK
from auditor.analytic.config_keys import value_at
from auditor.bounded.json_text import parse_object
from auditor.checkpoint.changes import with_names, with_tensors, with_values
from auditor.checkpoint.snapshot import BaseModel, Snapshot
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes._of_adapters import is_adapter, is_own, module_of
from auditor.diagnosis.causes.head_not_saved import CAUSE as HEAD_NOT_SAVED
from auditor.diagnosis.causes.other_class import CAUSE as OTHER_CLASS
from auditor.findings import MatchedPair
from auditor.messages import quoted
from auditor.name_kinds import members
from auditor.tensors import StoredTensor

RESIZED, OLDER, OTHER = "resized-base", "older-names", "other-base"
_BELOW = "base_model.model."
# Start of names in a multimodal model -> start in its language model.
_FORMS = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.", ""),
)
_RANKS = {"lora_A.weight": 0, "lora_B.weight": 1, "lora_embedding_A": 0, "lora_embedding_B": 1}
_NAME_IT = (
    "name the model on which it was trained in base_model_name_or_path of adapter_config.json, or "
    "train it on this one"
)
_MOST = 12  # the most classes that are tried


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield undoings with another base on which the adapter may have been trained."""
    base = case.snapshot.base
    if not is_adapter(case) or base is None or base.config is None:
        return
    of_base = replace(case.snapshot, config=base.config, base=None)
    values = parse_object(base.config.content, base.config.name)
    yield from _resized(case, base, of_base, values)
    yield from _of_other_lengths(case)
    yield from _of_other_modules(case, of_base)
    if (case.missing and case.unexpected) or _has_no_target(case):
        yield from _with_older_names(case, of_base)
        target = _class_of_base(case, values)
        if case.target is None:
            yield from _of_other_class(case, values, target)
        yield from _of_model_around(case, target)
    yield from _without_head(case)


def _has_no_target(case: Case) -> bool:
    """Whether all alarms are about the adapter's settings, such as target modules."""
    return {one.kind for one in case.alarms} == {"bad-config"}


def _class_of_base(case: Case, values: Mapping[str, object]) -> str:
    """Return the class that was audited, or the declared one if the settings fit no class."""
    declared = values.get("architectures")
    first = declared[0] if isinstance(declared, list) and declared else "model of another class"
    return (case.report.target or str(first)).rpartition(" ")[2]


def _resized(
    case: Case, base: BaseModel, of_base: Snapshot, values: Mapping[str, object]
) -> Iterator[Undoing]:
    """Yield the base with the adapter's vocabulary size, if this size explains every mismatch."""
    rows = {
        (expected, observed)
        for pair in case.mismatched
        for expected, observed in zip(pair.expected.shape, pair.stored.shape or (), strict=False)
        if expected != observed
    }
    if len(rows) != 1 or 0 in next(iter(rows)):
        return
    ((declared, stored),) = rows
    within = "text_config" if isinstance(values.get("text_config"), dict) else ""
    key = f"{within}.vocab_size".lstrip(".")
    longer = with_values(of_base, {key: stored}).config
    names = [pair.stored.name for pair in case.mismatched]
    yield Undoing(
        cause=RESIZED,
        snapshot=replace(case.snapshot, base=replace(base, config=longer)),
        summary=f"the base has {declared:,} rows, the adapter {stored:,}: the base was resized "
        "before the training, and PEFT refuses other shapes",
        fix=f"resize the base to {stored:,} first, with model.resize_token_embeddings({stored}), "
        "and then let PEFT load the adapter",
        evidence=tuple(names[:2]),
        certain=False,
    )


def _of_other_lengths(case: Case) -> Iterator[Undoing]:
    """Yield the findings that another base explains, if its modules have other lengths.

    The length of A or B that is not the rank is that of the module on which it was trained. Layers
    that only the adapter has, or only the base, are also explained.
    """
    pairs = [pair for pair in case.mismatched if is_own(pair.stored.name)]
    lengths = [_length_of_base(pair) for pair in pairs]
    of_layers = [at for at, pair in enumerate(pairs) if any(members(pair.stored.name))]
    if None in lengths or not of_layers:
        return
    pair, length = pairs[of_layers[0]], lengths[of_layers[0]]
    assert length is not None  # noqa: S101 - for mypy
    stored, missing, unexpected = (
        {layer.number for name in names for layer in islice(members(name), 1)}
        for names in (case.shapes.keys() - set(case.unexpected), case.missing, case.unexpected)
    )
    explained = {
        "mismatched": True,
        "missing": stored.isdisjoint(missing),
        "unexpected": (stored | missing).isdisjoint(unexpected),
    }
    verb = "takes" if length.is_input else "gives"
    yield Undoing(
        cause=OTHER,
        snapshot=case.snapshot,
        proven=tuple(one for one in case.alarms if explained.get(one.kind)),
        summary=f"the adapter was trained on another base: {_in_base(pair.stored.name)} {verb} "
        f"{length.stored:,} numbers there, and {length.expected:,} in this one",
        fix=_NAME_IT,
        evidence=(f"{len(pairs):,} tensors have lengths of other modules, and the right rank",),
        certain=False,
    )


class _Length(NamedTuple):
    """The length of a base's module by an adapter's tensor, and by the base's config."""

    stored: int
    expected: int
    is_input: bool


def _length_of_base(pair: MatchedPair) -> _Length | None:
    """Return the one length in which a tensor differs; None if that is its rank, or several do."""
    shapes = (pair.stored.shape or (), pair.expected.shape)
    differ = [at for at, (one, two) in enumerate(zip(*shapes, strict=False)) if one != two]
    rank = next((at for end, at in _RANKS.items() if pair.stored.name.endswith(end)), None)
    if len(set(map(len, shapes))) > 1 or len(differ) != 1 or differ[0] == rank:
        return None
    stored, expected = (shape[differ[0]] for shape in shapes)
    return _Length(stored, expected, rank == 0) if stored else None


def _of_other_modules(case: Case, of_base: Snapshot) -> Iterator[Undoing]:
    """Yield the unexpected tensors as proven, if the base has none of the modules they change."""
    names = case.unexpected
    if not names or case.missing or case.mismatched or not all(map(is_own, names)):
        return
    of_modules = case.implied(of_base) or {}
    if not of_modules or any(f"{_in_base(name)}.weight" in of_modules for name in names):
        return
    yield Undoing(
        cause=OTHER,
        snapshot=case.snapshot,
        proven=tuple(one for one in case.alarms if one.kind == "unexpected"),
        summary=f"the adapter was trained on another base: {len(names):,} tensors are for modules "
        f"that this one does not have, such as {quoted(_in_base(names[0]))}",
        fix=_NAME_IT,
        evidence=("every other tensor fits this base",),
        certain=False,
    )


def _with_older_names(case: Case, of_base: Snapshot) -> Iterator[Undoing]:
    """Yield the adapter with its modules renamed to their current names, if it has older names."""
    target = (case.report.target or "").rpartition(" ")[2] or None
    forms = case.forms(of_base, target=target)
    renames: dict[str, str] = {}
    ends: dict[str, str] = {}  # older name of a module's last part -> current name
    for name in case.shapes:
        path = _in_base(name)
        new = forms.in_memory(f"{path}.weight").removesuffix(".weight")
        if new != path:
            renames[name] = f"{_BELOW}{new}{name.removeprefix(_BELOW + path)}"
        ends[path.rpartition(".")[2]] = new.rpartition(".")[2]
    if not renames or len(set(renames.values())) < len(renames):
        return
    values = {"target_modules": sorted(set(ends.values()))}
    other = {old: new for old, new in ends.items() if old != new}
    first, new_first = next(iter(renames.items()))
    settings = ", ".join(f"{new} for {old}" for old, new in other.items())
    yield Undoing(
        cause=OLDER,
        snapshot=with_values(with_names(case.snapshot, renames), values if other else {}),
        renames=renames,
        summary="the adapter was trained with an older version of transformers, whose names PEFT "
        f"does not translate: {_in_base(first)} is {_in_base(new_first)} now",
        fix="load it with the version of transformers that it was trained with, or rename "
        f"{len(renames):,} tensors" + (f" and write {settings} in target_modules" if other else ""),
        evidence=(f"{len(renames):,} of {len(case.shapes):,} names are older ones",),
        certain=False,
    )


def _in_base(name: str) -> str:
    """Return the module of the base to which a tensor of an adapter belongs."""
    return module_of(name).removeprefix(_BELOW)


def _of_other_class(case: Case, values: Mapping[str, object], declared: str) -> Iterator[Undoing]:
    """Yield undoings with another class of the base's type, or of its language model's type."""
    types = (value_at(values, "text_config.model_type"), value_at(values, "model_type"))
    names = [name for one in types if isinstance(one, str) for name in case.classes(one)]
    names.sort(key=lambda name: not name.endswith("ForCausalLM"))  # the class of most adapters
    for name in [one for one in dict.fromkeys(names) if one != declared][:_MOST]:
        yield Undoing(
            cause=OTHER_CLASS,
            snapshot=case.snapshot,
            target=name,
            summary=f"the adapter was trained on a {name}, and its base is a {declared}: the names "
            "are those of other modules, and loading applies no tensor",
            fix=f"load the base as a {name} before PEFT loads the adapter, or train it on the "
            f"{declared}",
            evidence=(f"every tensor is one of an adapter of {name}, and none lacks",),
            exact=True,
            certain=False,
        )


def _of_model_around(case: Case, declared: str) -> Iterator[Undoing]:
    """Yield the adapter with only language model tensors, if it is for a multimodal model."""
    instead: dict[str, tuple[StoredTensor, ...]] = {}
    for tensor in case.strange:
        names = (tensor.name.replace(old, new, 1) for old, new in _FORMS)
        name = next((one for one in names if one in case.missing_names), None)
        instead[tensor.name] = (tensor._replace(name=name),) if name else ()
    renames = {name: tensors[0].name for name, tensors in instead.items() if tensors}
    if renames and not case.missing_names.difference(renames.values()):
        yield Undoing(
            cause=OTHER_CLASS,
            snapshot=with_tensors(case.snapshot, instead),
            renames=renames,
            summary="the adapter was trained on a model with parts beside its language model, and "
            f"its base is a {declared}, the language model alone",
            fix=f"name the complete model as the base, or train the adapter on the {declared}",
            evidence=tuple(renames)[:2],
            certain=False,
        )


def _without_head(case: Case) -> Iterator[Undoing]:
    """Yield the adapter without its task type, if only the head of that task is missing."""
    task, heads = case.config.get("task_type"), {_in_base(name) for name in case.missing}
    of_task = TRAINED_BY_TASK.get(task, ()) if isinstance(task, str) else ()
    if not (heads and of_task) or not all(head.endswith(of_task) for head in heads):
        return
    without = {"task_type": None, "modules_to_save": None}
    shown = " and ".join(sorted(heads)[:2])
    yield Undoing(
        cause=HEAD_NOT_SAVED,
        snapshot=with_values(case.snapshot, without),
        summary=f"{shown} is not stored, which PEFT trains for {task} and needs to load",
        fix="save the adapter again with its head, or set task_type to the task of the class on "
        "which it was trained",
        evidence=(f"nothing else of an adapter for {task} is missing",),
        exact=True,
        certain=False,
    )
