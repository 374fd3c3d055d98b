"""The audit of an adapter, whose expected tensors follow from its settings and its base's config.

The task of an adapter decides the class of its base. If no task is stated, or the number of labels
of a head is unknown, the few possible answers are compared with the file, and the answer with the
fewest contradicting tensors is used.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from auditor.analytic import Config, Expectation, Role, catalogue
from auditor.analytic.adapters import (
    FILE,
    AdaptedModel,
    AdapterSettings,
    base_model_forms,
    expect_adapter,
    is_prompt,
    read_settings,
    replaced_names,
    require_known,
    shapes_of_saved_modules,
)
from auditor.analytic.adapters.saved_modules import IN_BASE, OUTSIDE_BASE
from auditor.analytic.adapters.settings import (
    FEATURES,
    HEADS,
    OTHER_THAN_TEXT,
    unchecked_adapter,
)
from auditor.analytic.adapters.targets import Targets
from auditor.analytic.auto_classes import AUTO_MODEL
from auditor.analytic.target import Refusal
from auditor.audit.expected import Implied, NotImplied, classes_of_type, expectation_of
from auditor.checkpoint.selecting import ADAPTERS, is_weights
from auditor.checkpoint.snapshot import BaseModel, Snapshot
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.findings import ConfigContradiction, OfKeys
from auditor.messages import listed, named, quoted
from auditor.names.folding import fold
from auditor.names.parts import folder_of
from auditor.reconciler.reconcile import FamilyExpectations
from auditor.tensors import StoredTensor

_ALPHA = 8  # the default of lora_alpha in LoraConfig of peft 0.21
_Shapes = Mapping[str, tuple[int, ...] | None]  # stored shapes by name; None if unknown


class Adapted(NamedTuple):
    """The expected tensors of an adapter's file, with notes and unchecked aspects."""

    implied: Implied
    notes: tuple[str, ...]
    unchecked: tuple[str, ...]
    base_parameters: int


class _Answer(NamedTuple):
    """A possible interpretation of the settings, and the number of tensors that contradict it."""

    expectation: Expectation
    base: AdaptedModel
    labels: int | None  # number of labels, if it is not that of the base's config
    off: int  # tensors that are missing, unexpected or of another shape


def adapted(
    snapshot: Snapshot, tensors: Iterable[StoredTensor], target: str | None
) -> Adapted | Refusal:
    """Return the expected tensors of an adapter on its base; `target` is the class of the base.

    If `target` is None, the settings decide the class. Raise CheckpointError for settings from
    which no adapter of this base can be built.
    """
    if snapshot.config is None:
        raise ValueError("an adapter without its config")
    settings = read_settings(snapshot.config)
    base = snapshot.base
    try:
        require_known(settings)
        config = _base_config(settings, base)
        shapes = {tensor.name: tensor.shape for tensor in tensors}
        answer = _best(_answers(settings, config, target, shapes))
        _require_known_names(answer)
        _require_fit(answer, settings, base, shapes)
    except SourceError as error:
        return Refusal(error.reason, str(error))
    except CheckpointError:
        if base is None or not base.detail:
            raise
        return Refusal(Reason.NO_CONFIG, _misfit(settings, base))
    family = FamilyExpectations(declared=answer.expectation, siblings=lambda: ())
    return Adapted(
        Implied(answer.expectation, family),
        (*(_notes(answer, settings, base, shapes) if base else ()), *_notes_of_others(snapshot)),
        tuple(_unchecked(answer, settings)),
        answer.base.expectation.parameters,
    )


def chosen_modules(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the paths of the base that target_modules chooses; () if the base is unknown."""
    if snapshot.config is None:
        return ()
    try:
        settings = read_settings(snapshot.config)
        base, *_ = _forms(_base_config(settings, snapshot.base), None)
        return Targets(settings, base).chosen
    except (CheckpointError, SourceError):
        return ()


def scale_findings(file: str, values: Mapping[str, object]) -> Iterator[OfKeys]:
    """Report a rank without lora_alpha: PEFT then scales the update by its default."""
    rank = values.get("r")
    if values.get("peft_type") == "LORA" and "lora_alpha" not in values and type(rank) is int:
        yield ConfigContradiction(
            says=((file, "r", str(rank)), (file, "lora_alpha", "")),
            reason=f"{file} has r {rank} and no lora_alpha: PEFT takes its default, {_ALPHA}",
            fix="set lora_alpha to the value of the training",
        )


def _base_config(settings: AdapterSettings, base: BaseModel | None) -> Config:
    """Return the base's config; raise SourceError if it is not available or is broken."""
    if settings.base is None and base is None:
        detail = f"{FILE} names no base model: nothing says what its layers are"
        raise SourceError(Reason.NO_CONFIG, detail)
    name = quoted(settings.base or "")
    if base is None:
        detail = f"the base of this adapter, {name}, was not asked for"
        raise SourceError(Reason.NO_CONFIG, detail)
    if base.config is None and settings.names_path:
        detail = f"the base of this adapter, {name}, is a path on the trainer's disk; "
        detail += f"write the Hub id of the base as base_model_name_or_path of {FILE}"
        raise SourceError(base.reason or Reason.NO_CONFIG, detail)
    if base.config is None:
        detail = f"the base of this adapter, {quoted(base.model)}, cannot be read: {base.detail}"
        raise SourceError(base.reason or Reason.NO_CONFIG, detail)
    try:
        config = base.config.as_config
        _ = config.architectures, config.model_type, config.num_labels  # raises for an invalid one
    except CheckpointError as error:
        detail = f"the base of this adapter, {quoted(base.model)}, is broken: {error}"
        raise SourceError(Reason.UNREADABLE, detail) from None
    return config


# --- the possible interpretations of the settings ---------------------------------------------


def _answers(
    settings: AdapterSettings,
    config: Config,
    target: str | None,
    shapes: _Shapes,
) -> Iterator[_Answer | CheckpointError | SourceError]:
    for name in _classes(settings, config, target):
        try:
            bases = _forms(config, name)
        except SourceError as error:
            yield error
            continue
        for base in bases:
            try:
                yield _answer(settings, base, shapes)
                labels = _labels(settings, base, config, shapes)
                if labels is not None:
                    yield from _relabelled(settings, config, name, labels, shapes)
            except (CheckpointError, SourceError) as error:
                yield error


def _classes(settings: AdapterSettings, config: Config, target: str | None) -> Iterator[str | None]:
    """Yield the possible classes of the base, the likeliest first; None is the declared class.

    PEFT loads the class for the settings' task (SEQ_CLS: ...ForSequenceClassification). The class
    that the config declares is added if the task generates text, or if no class is for the task.
    AutoModel's class comes last: sentence encoders are trained without the head of their base.
    """
    if target is not None:
        yield target
        return
    class_names = classes_of_type(config.model_type or "")
    ends = HEADS.get(settings.task or "")
    task_classes = tuple(name for name in class_names if ends and name.endswith(ends))
    if settings.task is None:
        likely = tuple(name for name in class_names if name == settings.base_class)
    else:
        likely = (AUTO_MODEL, *task_classes) if settings.task == FEATURES else task_classes
    yield from likely
    declared = config.architectures[0] if config.architectures else None
    if declared not in likely and not (likely and settings.task in OTHER_THAN_TEXT):
        yield None
    if settings.task is None:
        yield AUTO_MODEL


def _forms(config: Config, target: str | None) -> tuple[AdaptedModel, ...]:
    """Return the possible forms of the base, with names in memory, with and without fused experts.

    Raise SourceError if the class is unknown, or if the config implies no base.
    """
    implied = expectation_of(config, target)
    match implied:
        case NotImplied(SourceError() as error):
            raise SourceError(error.reason, f"the base of this adapter: {error}")
        case NotImplied(error):
            raise SourceError(Reason.UNREADABLE, f"no base can be built: {error}")
    expectation, choice = implied.expectation, implied.choice
    if choice is None or not catalogue.siblings(expectation.model_type):
        return base_model_forms(expectation, None)
    return base_model_forms(
        expectation, catalogue.block_tree(choice.kind.config, expectation.target)
    )


def _answer(settings: AdapterSettings, base: AdaptedModel, stored_shapes: _Shapes) -> _Answer:
    expectation = expect_adapter(settings, base, stored_shapes)
    if not stored_shapes:  # without weights, the likeliest interpretation is the first
        return _Answer(expectation, base, None, 0)
    shapes = {tensor.name: tensor.shape for tensor in expectation.tensors}
    needed = (tensor for tensor in expectation.tensors if not tensor.role.optional)
    off = sum(stored_shapes.get(tensor.name) != tensor.shape for tensor in needed)
    return _Answer(expectation, base, None, off + sum(name not in shapes for name in stored_shapes))


def _labels(
    settings: AdapterSettings,
    base: AdaptedModel,
    config: Config,
    stored_shapes: _Shapes,
) -> int | None:
    """Return the stored head's number of labels if only this differs from the base, else None."""
    label_counts: set[int] = set()
    declared = config.num_labels.value
    for name, shape in shapes_of_saved_modules(settings, base).items():
        observed = stored_shapes.get(name)
        if observed is None or observed == shape or not shape or shape[0] != declared:
            continue
        if observed[1:] == shape[1:] and observed[0] > 0:
            label_counts.add(observed[0])
    return label_counts.pop() if len(label_counts) == 1 else None


def _relabelled(
    settings: AdapterSettings,
    config: Config,
    target: str | None,
    labels: int,
    shapes: _Shapes,
) -> Iterator[_Answer]:
    other_values = {key: value for key, value in config.values.items() if key != "id2label"}
    relabelled = replace(config, values={**other_values, "num_labels": labels})
    for base in _forms(relabelled, target):
        yield _answer(settings, base, shapes)._replace(labels=labels)


def _best(answers: Iterable[_Answer | CheckpointError | SourceError]) -> _Answer:
    """Return the answer with the fewest contradicting tensors; the first one if several are equal.

    If all answers are errors, raise the first SourceError, else the first CheckpointError.
    """
    best: _Answer | None = None
    doubts: list[SourceError] = []
    faults: list[CheckpointError] = []
    for answer in answers:
        match answer:
            case _Answer():
                best = answer if best is None or answer.off < best.off else best
                if not answer.off:
                    break
            case SourceError():
                doubts.append(answer)
            case CheckpointError():
                faults.append(answer)
    if best is not None:
        return best
    raise (*doubts, *faults)[0]


def _require_known_names(answer: _Answer) -> None:
    """Raise SourceError if it is not known whether PEFT translates the adapter's names."""
    if not answer.base.in_memory:
        whose = answer.base.expectation.target
        raise unchecked_adapter(
            f"its modules have the names that a checkpoint of {whose} has, in memory they have "
            "others, and it is not known which names PEFT translates; load it with PEFT, which "
            "warns about missing adapter keys"
        )


def _require_fit(
    answer: _Answer, settings: AdapterSettings, base: BaseModel | None, stored: _Shapes
) -> None:
    """Raise SourceError if a config that stands in for the base fits less than half the tensors."""
    expected = {tensor.name: tensor.shape for tensor in answer.expectation.tensors}
    off = sum(expected.get(name) != shape for name, shape in stored.items())
    if base is not None and base.detail and 2 * off > len(stored):
        raise SourceError(Reason.NO_CONFIG, _misfit(settings, base))


def _misfit(settings: AdapterSettings, base: BaseModel) -> str:
    whose = f"the base of this adapter, {quoted(settings.base or '')}, cannot be read"
    whose = whose if settings.base else f"{FILE} names no base model"
    return (
        f"{whose}, and the config at hand, {named(base.model)}, is that of another model; write "
        f"the Hub id of the base as base_model_name_or_path of {FILE}"
    )


# --- notes and unchecked aspects --------------------------------------------------------------


def _notes(
    answer: _Answer, settings: AdapterSettings, base: BaseModel, stored: _Shapes
) -> Iterator[str]:
    count, base_count = answer.expectation.parameters, answer.base.expectation.parameters
    share = f", {100 * count / base_count:.2f} %" if base_count else ""
    yield f"{count:,} of {base_count:,} parameters of {named(base.model)}{share}"
    commit = f" at commit {base.commit}" if base.commit else ""
    name = "" if base.model in base.origin else f"{named(base.model)}{commit}: "
    instead = f", {base.detail}" if base.detail else ""
    yield f"the base is {name}{base.origin}{instead}"  # a folder's name is its path
    prefix = OUTSIDE_BASE if is_prompt(settings) else IN_BASE
    fitting = (one for one in answer.expectation.tensors if stored.get(one.name) == one.shape)
    names = (one.name for one in fitting if one.role is Role.PARAMETER)
    if replaced := replaced_names(answer.base, prefix, names):
        tensors = "tensor replaces" if len(replaced) == 1 else "tensors replace"
        whose = f"the base's ({answer.base.expectation.target})"
        yield f"{len(replaced):,} stored {tensors} {whose}: {listed(fold(replaced))}"
    if answer.labels is not None:
        yield f"the stored head is for {answer.labels} labels; the base's config has another number"


def _notes_of_others(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note about weights beside the adapter, such as LLaVA's non_lora_trainables.bin."""
    folder = folder_of(next((head.name for head in snapshot.headers), ""))
    names = (file.name for file in snapshot.files if is_weights(file.name))
    own = {f"{folder}{name}" for name in ADAPTERS}
    others = [name for name in names if folder_of(name) == folder and name not in own]
    if others:
        yield (
            f"PEFT loads the adapter alone, and not {listed(others)}: what was trained there needs "
            "the program that wrote it"
        )


def _unchecked(answer: _Answer, settings: AdapterSettings) -> Iterator[str]:
    yield "the weights of the base: only its config is read"
    if is_prompt(settings):
        yield "whether the prompt fits the base: its shape is what the adapter's own settings say"
    if answer.labels is not None:
        yield "the number of labels: only the stored head says it"
    if not answer.base.certain:
        yield "which layers of the base are embeddings: their names alone tell"
