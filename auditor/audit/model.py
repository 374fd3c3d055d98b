"""One model: what its config implies, what its files hold, and both compared."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from auditor.analytic import Config, Expectation, Role, catalogue
from auditor.analytic.target import Refusal, choose
from auditor.audit.custom_code import custom_code, if_comparable
from auditor.audit.declaration import Declaration, declared_by_config, is_gguf, module_of, where
from auditor.audit.expected import (
    Implied,
    Opinion,
    classes_of_type,
    config_faults,
    config_reasons,
    expectation_of,
    expectation_of_module,
    refusal_of_diffusers,
    second_opinion,
)
from auditor.audit.options import Options
from auditor.audit.outcome import (
    UNPACKED,
    ModelAudit,
    PackedWeights,
    begin_audit,
    compared_outcome,
    no_weights,
    unaudited_outcome,
    without_expectation,
)
from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.manifest import ManifestEntry
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.findings import BadConfig, BadIndex
from auditor.layouts import unknown_quantization, unpack_tensors, written_tensors
from auditor.layouts.declared import declaration
from auditor.layouts.fused import separated
from auditor.layouts.packing import PLAIN, Declared, split_off_unread
from auditor.reconciler.contents import pipeline_file, unindexed_files
from auditor.reconciler.loading.stored_form import expected_as_stored
from auditor.reconciler.matching import shapes_of
from auditor.reconciler.other_model import drafting_notes, listed_size_rule
from auditor.reconciler.repository_rules import repository_findings
from auditor.report import Outcome, Report, Unaudited, expected_side
from auditor.tensors import StoredTensor

if TYPE_CHECKING:
    from auditor.diagnosis.case import Undoing
    from auditor.diagnosis.solving.forms import NameForms
    from auditor.diagnosis.solving.trials import ClassTree


def examine_model(
    snapshot: Snapshot,
    options: Options,
    entry: ManifestEntry | None = None,
    keep: "Callable[[Undoing], None]" = lambda _: None,
) -> Report | Unaudited:
    """Audit one model, and say why it differs; `entry` is its entry in the manifest, if any.

    `keep` gets the undoings of what is said, for whoever would mend it.
    """
    outcome = _diagnosed(snapshot, options, entry, keep)
    if options.values is None:
        return outcome
    return options.values(outcome, snapshot, options.ignore)


def _diagnosed(
    snapshot: Snapshot,
    options: Options,
    entry: ManifestEntry | None,
    keep: "Callable[[Undoing], None]",
) -> Report | Unaudited:
    outcome = examine_undiagnosed(snapshot, options, entry)
    if outcome.verdict == "clean" or is_gguf(snapshot) or not options.weights:
        return outcome
    from auditor.diagnosis import diagnose  # noqa: PLC0415 - most models are clean

    def again(changed: Snapshot, target: str | None) -> Report | Unaudited:
        return examine_undiagnosed(changed, replace(options, target=target, depth=0), entry)

    found = diagnose(
        outcome,
        snapshot,
        again,
        target=options.target,
        classes=classes_of_type,
        implied=partial(_implied_shapes, entry=entry),
        tree=partial(_class_tree, entry=entry),
        forms=partial(_name_forms, entry=entry),
        keep=keep,
    )
    return replace(outcome, diagnosis=found)


def _implied_shapes(
    snapshot: Snapshot, target: str | None, entry: ManifestEntry | None
) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes that must be stored, by name; None if nothing follows from the config."""
    found = _implied(snapshot, target, entry)
    if found is None:
        return None
    return {one.name: one.shape for one in found.tensors if one.role is Role.PARAMETER}


class SizeRead(NamedTuple):
    """A size of the config, as it declares it, and as the stored shapes determine it."""

    declared: int
    stored: int


def sizes_determined(
    snapshot: Snapshot, options: Options, entry: ManifestEntry | None, given: Mapping[str, int]
) -> dict[str, SizeRead]:
    """The sizes in the config that the stored shapes leave no choice of, by path; some are `given`.

    Return nothing if no closed form of the class is known, or nothing follows from the config.
    """
    from auditor.diagnosis.case import Case  # noqa: PLC0415 - with `diagnose`
    from auditor.diagnosis.solving.determined import determined_sizes  # noqa: PLC0415 - likewise
    from auditor.diagnosis.solving.keys import key_at  # noqa: PLC0415 - likewise

    target = options.target
    case = Case(
        snapshot=snapshot,
        report=Outcome.begin(snapshot, options.requested).as_report(None),
        target=target,
        classes=classes_of_type,
        implied=partial(_implied_shapes, target=target, entry=entry),
        tree=partial(_class_tree, target=target, entry=entry),
        forms=partial(_name_forms, target=target, entry=entry),
    )
    try:
        expected = case.tree(snapshot)
        if expected is None:
            return {}
        found = determined_sizes(expected, case.holdings, given)
    except CheckpointError:
        return {}
    return {
        key_at(case.config, symbol.key, value).path: SizeRead(symbol.value, value)
        for symbol, value in found.items()
    }


def _name_forms(snapshot: Snapshot, target: str | None, entry: ManifestEntry | None) -> "NameForms":
    """How the tensors that the config implies are called on disk, and in memory."""
    from auditor.diagnosis.solving.forms import NameForms, forms_of  # noqa: PLC0415

    found = _implied(snapshot, target, entry)
    if found is None:
        return NameForms(())
    known = _class_tree(snapshot, target, entry)
    return forms_of(found, known and known.tree)


def _implied(
    snapshot: Snapshot, target: str | None, entry: ManifestEntry | None
) -> Expectation | None:
    try:
        declared = declared_by_config(snapshot, entry)
        if declared is None:
            return None
        found = expectation_of(
            declared.config,
            target or declared.target,
            lambda _: None,
            loader=declared.loader,
        )
    except (CheckpointError, SourceError):
        return None
    return None if isinstance(found, Refusal) else found.expectation


def _class_tree(
    snapshot: Snapshot, target: str | None, entry: ManifestEntry | None
) -> "ClassTree | None":
    """The blocks that the config implies; None: no closed form is known for its class.

    Raises CheckpointError for a config from which nothing follows.
    """
    from auditor.diagnosis.solving.trials import ClassTree  # noqa: PLC0415 - with `diagnose`

    try:
        declared = declared_by_config(snapshot, entry)
        if declared is None:
            return None
        found = choose(declared.config, target or declared.target, catalogue, declared.loader)
        if isinstance(found, Refusal):
            return None
        tree = catalogue.block_tree(found.kind.config, found.target)
    except SourceError:
        return None
    return ClassTree(tree, catalogue.family(found.model_type).prefix)


def examine_undiagnosed(
    snapshot: Snapshot, options: Options, entry: ManifestEntry | None = None
) -> Report | Unaudited:
    """Audit one model, and do not ask why it differs."""
    case = begin_audit(snapshot, options, options.target or module_of(entry))
    if snapshot.config is not None and snapshot.config.name == ADAPTER_CONFIG:
        return _adapter(case)
    return _model(case, entry)


def _model(case: ModelAudit, entry: ManifestEntry | None) -> Report | Unaudited:
    """A model of transformers, or a module of sentence-transformers."""
    module = module_of(entry)
    custom: str | None = None
    declared: Declaration | None = None
    try:
        declared = _declaration(case.snapshot, entry)
        if declared is None:
            return _undeclared(case)
        custom = None if case.options.target else declared.custom_class
        if custom is not None:  # its own config class may take what that of transformers refuses
            declared = declared._replace(config=replace(declared.config, checked=False))
        case.add_findings((*declared.findings, *_unindexed(case.snapshot, declared)))
        found = _expected(case, declared, module)
    except (CheckpointError, SourceError) as error:
        _add_beside(case, declared, None, custom)
        return _without_expected(case, error, custom)
    if isinstance(found, Refusal):
        _add_beside(case, declared, None, custom)
        return _without_expected(case, SourceError(found.reason, found.detail), custom)
    if module is None:
        _add_beside(case, declared, found.implied.expectation, custom)
    outcome = _compared(case, found)
    if custom is None:
        return outcome
    return if_comparable(case, outcome, found.implied.expectation, custom)


def _add_beside(
    case: ModelAudit,
    declared: Declaration | None,
    expectation: Expectation | None,
    custom: str | None,
) -> None:
    """Add the findings of the config and the companion files, if the model has weights."""
    if declared is None or case.found.empty or is_gguf(case.snapshot):
        return
    with suppress(CheckpointError):  # of a config whose types are wrong, which is a finding already
        found = repository_findings(
            case.snapshot,
            case.found.tensors,
            declared.config,
            expectation,
            is_custom=custom is not None,
        )
        case.add_findings(found.findings)
        case.beside = found.unchecked


def _declaration(snapshot: Snapshot, entry: ManifestEntry | None) -> Declaration | None:
    """Raises CheckpointError, and SourceError for an architecture of GGUF that is not known."""
    if not is_gguf(snapshot):
        return declared_by_config(snapshot, entry)
    from auditor.audit.gguf_declaration import declared_by_gguf  # noqa: PLC0415 - few are GGUF

    return declared_by_gguf(snapshot)


def _without_expected(
    case: ModelAudit, error: CheckpointError | SourceError, custom: str | None
) -> Report | Unaudited:
    """Nothing follows from the config; `custom` is the class of the repository's own code."""
    if isinstance(error, SourceError):
        if custom is not None:
            return custom_code(case, custom, str(error), error.reason)
        return unaudited_outcome(case, error.reason, str(error))
    if custom is not None:
        return custom_code(case, custom, str(error))
    bad = (BadConfig(file=where(case.snapshot), reason=reason) for reason in config_reasons(error))
    return without_expectation(case, *bad)


class _Expected(NamedTuple):
    """The declared config, and what follows from it."""

    implied: Implied
    dtype: str | None
    quantization: Declared | None
    opinion: Opinion


def _expected(case: ModelAudit, declared: Declaration, module: str | None) -> _Expected | Refusal:
    """Derive the expected tensors; raise CheckpointError for a config that implies none."""
    config = replace(declared.config, arguments=case.options.arguments)
    # State what the config declares, before anything that may fail.
    drafts = () if case.found.unread else drafting_notes(config, case.found.tensors)
    case.known = replace(
        case.known,
        declared=config.architectures,
        model_type=config.model_type,
        notes=(*case.found.notes, *declared.notes, *drafts),
    )
    # Choose the class, and derive its tensors from the config.
    implied = _implied_by(case, config, declared, module)
    if isinstance(implied, Refusal):
        return implied
    expectation = implied.expectation
    case.contradictions += config_faults(expectation)
    case.is_by_architectures = bool(config.architectures) and not (
        case.options.target or declared.loader or module
    )
    # Compare them with those of the library, if that is requested.
    requested = case.options.oracle and not module
    opinion = second_opinion(config, expectation) if requested else Opinion()
    # Read in which form and dtype they are stored.
    quantization = declared.quantization or _quantization(config, case.snapshot)
    dtype = config.dtype
    case.set_expected(expectation, config.values)
    return _Expected(implied, dtype, quantization, opinion)


def _implied_by(
    case: ModelAudit, config: Config, declared: Declaration, module: str | None
) -> Implied | Refusal:
    """Return what the class implies; its name becomes known as soon as it is chosen."""
    if module:
        return expectation_of_module(config, module)
    if refusal := refusal_of_diffusers(config):
        case.known = replace(case.known, target=str(config.values["_class_name"]))
        return refusal
    return expectation_of(
        config,
        case.options.target or declared.target,
        partial(case.set_choice, notes=case.known.notes),
        loader=declared.loader,
        stored=partial(_stored_names, case),
    )


def _unindexed(snapshot: Snapshot, declared: Declaration) -> tuple[BadIndex, ...]:
    """A finding if several files have no index; checked only where there is more than one."""
    if snapshot.index is not None or len(snapshot.headers) == 1:
        return ()
    quantization = declared.quantization or _quantization(declared.config, snapshot)
    return tuple(unindexed_files(snapshot, quantization))


def _quantization(config: Config, snapshot: Snapshot) -> Declared | None:
    files = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
    return declaration(config.values, files)


def _stored_names(case: ModelAudit) -> Collection[str] | None:
    """The names of what is stored, in files that were read or not; None: nothing is here."""
    if case.found.empty:
        return None
    hidden = (name for item in case.found.unread for name in item.names or ())
    return {*(tensor.name for tensor in case.found.tensors), *hidden}


def _compared(case: ModelAudit, found: _Expected) -> Report | Unaudited:
    expectation, quantization = found.implied.expectation, found.quantization
    # Stop if there are no weights, or if nothing here knows their layout.
    if case.found.empty:
        detail = f"{case.snapshot.model} is a config alone: there are no weights to compare it with"
        files = () if quantization else case.snapshot.files
        sizes = listed_size_rule(files, expectation, found.dtype)
        return no_weights(case, expectation, detail, *found.opinion.findings, *sizes)
    packer = unknown_quantization(quantization) if quantization is not None else None
    if packer is not None:
        detail = f"the weights are packed by {packer}: its layout is not known here"
        return unaudited_outcome(case, Reason.UNKNOWN_LAYOUT, detail)
    # Unpack the weights.
    try:
        packing = _unpacked(case, expectation, quantization)
    except CheckpointError as error:
        file = quantization.where if quantization else where(case.snapshot)
        return without_expectation(case, BadConfig(file=file, reason=str(error)))
    # Expect converted tensors in the form in which they are stored.
    implied = found.implied if packing.method else _as_stored(case, found.implied, packing)
    return compared_outcome(case, found.dtype, implied, packing, found.opinion)


def _unpacked(
    case: ModelAudit, expectation: Expectation, quantization: Declared | None
) -> PackedWeights:
    """Read what packed tensors contain; raise CheckpointError for settings that are broken."""
    found, shapes = case.found, shapes_of(expectation)
    tensors = _all_tensors(case)
    unpacked = unpack_tensors(tensors, quantization, shapes)
    method = quantization.method if quantization else None
    method = method if unpacked is PLAIN else unpacked.layout
    listed = expectation.listed
    needed = listed.learned + sum(not one.role.optional for one in listed.others)
    if len(tensors) < needed:  # else no tensor can contain several, and no name has to be looked at
        unpacked = separated(unpacked, tensors, shapes)
    by_names = found.without_header or found.names_only
    return PackedWeights(
        split_off_unread(unpacked, found.without_header, holds_unknown=found.holds_unknown),
        written_tensors(tensors, quantization, shapes) if by_names else {},
        method,
        frozenset() if method else frozenset(one.stored.name for one in unpacked.tensors),
    )


def _all_tensors(case: ModelAudit) -> tuple[StoredTensor, ...]:
    """Return the stored tensors, with those of which only the names are known."""
    hidden = case.found.without_header
    return (*case.found.tensors, *hidden) if hidden else case.found.tensors


def _as_stored(case: ModelAudit, implied: Implied, packing: PackedWeights) -> Implied:
    """Return the expectation in the form of the stored tensors, on disk or in memory."""
    if not implied.expectation.loading.converters:
        return implied
    names = {tensor.name for tensor in _all_tensors(case)} - packing.holders
    expectation, family = expected_as_stored(implied.expectation, names, case.depth), implied.family
    if expectation is implied.expectation:
        return implied
    case.known = replace(case.known, expected=expected_side(expectation))
    whole = family.declared is implied.expectation
    declared = expectation if whole else expected_as_stored(family.declared, names, case.depth)
    return Implied(expectation, replace(family, declared=declared))


def _adapter(case: ModelAudit) -> Report | Unaudited:
    """Audit an adapter; its config and its base's imply what it should hold."""
    from auditor.audit.adapter import adapted  # noqa: PLC0415 - most are whole models

    try:
        found = adapted(case.snapshot, case.found.tensors, case.options.target)
    except CheckpointError as error:
        return without_expectation(case, BadConfig(file=where(case.snapshot), reason=str(error)))
    if isinstance(found, Refusal):
        return unaudited_outcome(case, found.reason, found.detail)
    expectation = found.implied.expectation
    case.known = replace(
        case.known,
        target=expectation.target,
        model_type=expectation.model_type,
        expected=expected_side(expectation),
    )
    case.add_notes(*found.notes)
    if case.found.empty:
        detail = f"{case.snapshot.model} is an adapter's config alone: there are no weights"
        return no_weights(case, expectation, detail)
    return compared_outcome(case, None, found.implied, UNPACKED, Opinion(unchecked=found.unchecked))


def _undeclared(case: ModelAudit) -> Report | Unaudited:
    """No file declares what to expect, or the file that does is broken."""
    if is_gguf(case.snapshot):
        return without_expectation(case)
    model = case.snapshot.model
    if name := pipeline_file(case.snapshot):
        detail = f"{name} of {model} is for a pipeline of diffusers that nothing here names"
        return unaudited_outcome(
            case, Reason.UNKNOWN_ARCHITECTURE, f"{detail}: it is tallied, not reconciled"
        )
    detail = f"{model} has no config.json: nothing says what its tensors should be"
    return unaudited_outcome(case, Reason.NO_CONFIG, detail)
