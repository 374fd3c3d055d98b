"""The audit of one model: the tensors that its config implies, compared with the stored ones."""

from collections.abc import Collection, Iterator
from functools import partial
from typing import NamedTuple

from msgspec.structs import asdict, replace

from auditor.analytic import Config, Expectation
from auditor.analytic.config_classes.relations import broken_relations
from auditor.analytic.target import AS_TAKES, Refusal, TargetChoice
from auditor.audit.custom_code import custom_code, if_comparable
from auditor.audit.declaration import (
    Declaration,
    declared_by_config,
    is_gguf,
    module_of,
    where,
)
from auditor.audit.expected import (
    Implied,
    NotImplied,
    Opinion,
    classes_of_type,
    config_faults,
    config_reasons,
    expectation_of,
    expectation_of_module,
    library_class,
    second_opinion,
)
from auditor.audit.implied import class_tree, implied_shapes, name_forms
from auditor.audit.options import Options, TrialOptions
from auditor.audit.other_programs import (
    PROGRAMS,
    STATIC,
    implied_by_other_program,
    is_of_mlx,
    mlx_faults,
    textual_inversion,
)
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
from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.checkpoint.training_files import state_alone
from auditor.containers.manifest import ManifestEntry
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.findings import BadConfig, ConfigOverwritten, MetadataContradiction, OfFile
from auditor.layouts import OF_MLX, unknown_quantization, unpack_tensors, written_tensors
from auditor.layouts.declared import declaration
from auditor.layouts.fused import separated
from auditor.layouts.packing import PLAIN, Declared, split_off_unread
from auditor.messages import named, quoted
from auditor.reconciler.contents import Contents, pipeline_file, unindexed_files
from auditor.reconciler.loading.stored_form import expected_as_stored
from auditor.reconciler.matching import places, shapes_of
from auditor.reconciler.other_model import OTHER_NAMES, drafting_notes, listed_size_rule
from auditor.reconciler.reconcile import FamilyExpectations
from auditor.reconciler.repository_rules import repository_findings
from auditor.reconciler.single_files import (
    denoiser_notes,
    single_file_notes,
    training_notes,
)
from auditor.reconciler.training_rules import has_parts, own_names
from auditor.report import Report, Unaudited, expected_side
from auditor.tensors import StoredTensor


def examine_model(
    snapshot: Snapshot,
    options: Options,
    entry: ManifestEntry | None = None,
) -> Report | Unaudited:
    """Audit one model and diagnose its findings; `entry` is its entry in the manifest, if any."""
    outcome = _diagnose(snapshot, options, entry)
    if options.values is None:
        return outcome
    return options.values(outcome, snapshot, options.ignore)


def _diagnose(
    snapshot: Snapshot,
    options: Options,
    entry: ManifestEntry | None,
) -> Report | Unaudited:
    outcome = examine_undiagnosed(snapshot, options, entry)
    if outcome.verdict == "clean" or not options.weights:
        return outcome
    from auditor.diagnosis import diagnose  # noqa: PLC0415 - most models are clean

    def again(changed: Snapshot, target: str | None) -> Report | Unaudited:
        trial = TrialOptions(**asdict(options) | {"target": target, "depth": 0})
        return examine_undiagnosed(changed, trial, entry)

    diagnosis = diagnose(
        outcome,
        snapshot,
        again,
        target=options.target,
        classes=classes_of_type,
        implied=partial(implied_shapes, entry=entry),
        tree=partial(class_tree, entry=entry),
        forms=partial(name_forms, entry=entry),
    )
    if diagnosis:  # a guess is not needed beside a cause
        notes = tuple(note for note in outcome.notes if not note.endswith(OTHER_NAMES))
        outcome = replace(outcome, notes=notes)
    return replace(outcome, diagnosis=diagnosis)


def examine_undiagnosed(
    snapshot: Snapshot, options: Options, entry: ManifestEntry | None = None
) -> Report | Unaudited:
    """Audit one model without diagnosing its findings."""
    case = begin_audit(snapshot, options, options.target or module_of(entry))
    if snapshot.config is not None and snapshot.config.name == ADAPTER_CONFIG:
        return _adapter(case)
    return _model(case, entry)


def declaration_of(snapshot: Snapshot, entry: ManifestEntry | None = None) -> Declaration | None:
    """Return the declaration in config.json or in GGUF metadata; None if both are absent.

    Raise CheckpointError, or SourceError for an unknown GGUF type.
    """
    if not is_gguf(snapshot):
        return declared_by_config(snapshot, entry)
    from auditor.audit.gguf_declaration import declared_by_gguf  # noqa: PLC0415 - few are GGUF

    return declared_by_gguf(snapshot)


def _model(case: ModelAudit, entry: ManifestEntry | None) -> Report | Unaudited:
    """Audit a model of transformers or a module of sentence-transformers."""
    if entry is None:
        in_training = training_notes(case.snapshot)
        case = case.with_outcome(notes=(*case.outcome.notes, *in_training))
    module = module_of(entry)
    declared: Declaration | None = None
    try:
        # Read what the repository declares.
        outcome = _projector(case) if is_gguf(case.snapshot) else None
        declared = None if outcome else declaration_of(case.snapshot, entry)
        if declared is None:
            return outcome or _undeclared(case)
        declared = _as_requested(declared, case.options)
        config, custom = declared.config, declared.custom_class
        case = case.with_findings(*declared.findings, *_unindexed(case.snapshot, declared))
        if any(ConfigOverwritten.describes(finding) for finding in declared.findings):
            return without_expectation(case)
        stated = declared.stated or config
        case = case.with_outcome(
            declared=stated.architectures,
            model_type=stated.model_type,
            notes=(*case.outcome.notes, *declared.notes, *_drafting_notes(case, config)),
        )
        if module is None and (of_library := library_class(config)):
            alone = tuple(denoiser_notes(of_library.name)) if entry is None else ()
            notes = (*case.outcome.notes, *alone)
            case = case.with_outcome(target=of_library.name, notes=notes)
        # Choose the class, and derive its tensors from the config.
        implied = _implied_by(case, declared, module)
        case = case.with_choice(implied.choice)
        if isinstance(implied, NotImplied):
            return _without_expected(case, declared, implied.error)
        target = implied.expectation.target
        of_program = (PROGRAMS[target],) if target in PROGRAMS else ()
        case = case.with_outcome(target=target, notes=(*case.outcome.notes, *of_program))
        is_checked = not (custom or is_gguf(case.snapshot))  # GGUF has rules of its own
        relations = broken_relations(config.values) if is_checked else ()
        case = case.with_contradictions(*config_faults(implied.expectation), *relations)
        if entry is None and case.options.target is None:
            case = case.with_contradictions(*_untyped(config, implied.choice))
        # Read in which form and dtype they are stored.
        quantization = declared.quantization or _quantization(config, case.snapshot)
        dtype = None if has_parts(case.snapshot) else config.dtype  # joining may convert them
    except (CheckpointError, SourceError) as error:
        return _without_expected(case, declared, error)
    expectation = implied.expectation
    by_config = not (case.options.target or declared.loader or module)
    is_by_architectures = by_config and bool(config.architectures)
    case = replace(case.with_expected(expectation, config), is_by_architectures=is_by_architectures)
    # Check the companion files.
    if module is None or module == STATIC:
        case = _with_companions(case, declared, expectation)
    # Ask the library for its expectation, if that is requested.
    opinion = (
        second_opinion(config, expectation) if case.options.oracle and not module else Opinion()
    )
    # Compare both sides.
    outcome = _compare(case, _Expected(implied, dtype, quantization, opinion))
    if custom is None:
        return outcome
    return if_comparable(case, outcome, expectation, custom, is_twin=declared.stated is not None)


def _projector(case: ModelAudit) -> Report | Unaudited | None:
    """Audit a GGUF projector; return None for another GGUF file.

    Raise CheckpointError and SourceError like `projector`.
    """
    from auditor.analytic.gguf_projector import ARCHITECTURE, projector  # noqa: PLC0415 - few
    from auditor.audit.gguf_declaration import first_header  # noqa: PLC0415 - likewise

    header = first_header(case.snapshot)
    if header is None or header.text("general.architecture") != ARCHITECTURE:
        return None
    expectation, faults = projector(header)
    bad = (
        MetadataContradiction(
            says=((header.file, "clip.projector_type", expectation.target),),
            reason=f"{named(header.file)} {fault}",
            fix="convert the projector again, with convert_hf_to_gguf.py --mmproj",
        )
        for fault in faults
    )
    case = case.with_findings(*bad).with_outcome(
        target=expectation.target, expected=expected_side(expectation)
    )
    family = FamilyExpectations(declared=expectation, siblings=lambda: ())
    layout = Declared(method="gguf", settings={"model_type": ARCHITECTURE}, where=header.file)
    return _compare(case, _Expected(Implied(expectation, family), None, layout, Opinion()))


def _as_requested(declared: Declaration, options: Options) -> Declaration:
    """Apply the user's options; a requested class replaces one in the repository's own code."""
    custom = None if options.target else declared.custom_class
    config = replace(declared.config, arguments=options.arguments)
    if custom is not None:  # the repository's config class may accept other values
        config = replace(config, checked=False)
    return declared._replace(config=config, custom_class=custom)


def _drafting_notes(case: ModelAudit, config: Config) -> tuple[str, ...]:
    """Return notes about declared drafting layers that no file stores; () if a file is unread."""
    weights = case.contents
    return () if weights.unread else tuple(drafting_notes(config, weights.tensors))


def _untyped(config: Config, choice: TargetChoice | None) -> Iterator[str]:
    """Yield a sentence if AutoConfig refuses a config because it names no model type."""
    if choice is not None and "model_type" not in config.values:
        yield (
            "it has no model_type, and AutoConfig and all auto classes refuse it; "
            f"{quoted(choice.model_type)} is that of {choice.target}"
        )


def _with_companions(
    case: ModelAudit, declared: Declaration, expectation: Expectation | None
) -> ModelAudit:
    """Add the findings about the config and the companion files, if the model has weights."""
    if case.contents.empty or is_gguf(case.snapshot):
        return case
    try:
        checked = repository_findings(
            case.snapshot,
            case.contents.tensors,
            declared.config,
            expectation,
            is_custom=declared.custom_class is not None,
        )
    except CheckpointError:  # the types in the config are wrong, which is another finding
        return case
    case = case.with_outcome(checked=checked.checked).with_findings(*checked.findings)
    return replace(case, unchecked=checked.unchecked)


def _without_expected(
    case: ModelAudit, declared: Declaration | None, error: CheckpointError | SourceError
) -> Report | Unaudited:
    """Return the outcome for a model whose expected tensors are unknown."""
    custom = None
    if declared is not None:
        case, custom = _with_companions(case, declared, None), declared.custom_class
    if isinstance(error, SourceError):
        if custom is not None:
            return custom_code(case, custom, str(error), error.reason)
        detail = str(error)
        if declared is not None:
            notes = tuple(_type_notes(case, declared.config.model_type))
            case = case.with_outcome(notes=(*case.outcome.notes, *notes))
            if case.contents.tensors:  # the note names the class that has the names
                detail = detail.partition(AS_TAKES)[0]
        return unaudited_outcome(case, error.reason, detail)
    if custom is not None:
        return custom_code(case, custom, str(error))
    bad = (BadConfig(file=where(case.snapshot), reason=reason) for reason in config_reasons(error))
    return without_expectation(case, *bad)


def _type_notes(case: ModelAudit, declared: str | None) -> Iterator[str]:
    """Yield a note with the class that has the stored names, for a config of an unknown class."""
    from auditor.analytic.likeness import class_by_names  # noqa: PLC0415 - rare

    stored = (one.name for one in case.contents.tensors)
    if found := class_by_names(stored, declared):
        names = "the names are" if found.alike == 1 else "most names are"
        compares = f"; --as {found.target} compares them" if found.model_type == declared else ""
        yield f"{names} those of {found.target}, of model_type {quoted(found.model_type)}{compares}"


class _Expected(NamedTuple):
    """The expectation of the config, with the layout and dtype of the stored tensors."""

    implied: Implied
    dtype: str | None
    quantization: Declared | None
    opinion: Opinion


def _implied_by(
    case: ModelAudit, declared: Declaration, module: str | None
) -> Implied | NotImplied:
    """Return the expectation for the requested class, else for the loader's or declared class."""
    requested = case.options.target
    if requested is None or module:
        other = implied_by_other_program(declared.config, module, case.contents.tensors)
        if other is not None:
            return other
    if module:
        return expectation_of_module(declared.config, module)
    implied = expectation_of(
        declared.config,
        requested or declared.target,
        loader=declared.loader,
        stored=partial(_stored_names, case.contents),
    )
    if declared.names is None or isinstance(implied, NotImplied):
        return implied
    own = declared.names.of(implied.expectation)
    family = replace(implied.family, declared=own, siblings=tuple)
    return implied._replace(expectation=own, family=family)


def _unindexed(snapshot: Snapshot, declared: Declaration) -> tuple[OfFile, ...]:
    """Return a finding for several weight files without an index, else ()."""
    if snapshot.index is not None or len(snapshot.headers) == 1:
        return ()
    quantization = declared.quantization or _quantization(declared.config, snapshot)
    return tuple(unindexed_files(snapshot, quantization))


def _quantization(config: Config, snapshot: Snapshot) -> Declared | None:
    return declaration(config.values, snapshot.packing)


def _stored_names(weights: Contents) -> Collection[str] | None:
    """Return the names of the stored tensors, including unread ones; None if there are no files."""
    if weights.empty:
        return None
    unread_names = (name for item in weights.unread for name in item.names or ())
    return {*(tensor.name for tensor in weights.tensors), *unread_names}


def _compare(case: ModelAudit, expected: _Expected) -> Report | Unaudited:
    implied, quantization = expected.implied, expected.quantization
    # Stop if there are no weights, or if their layout is unknown.
    if case.contents.empty:
        detail = f"{case.snapshot.model} is a config alone: there are no weights to compare it with"
        if alone := state_alone(file.name for file in case.snapshot.files):
            detail = f"{case.snapshot.model} has no weights: {alone}"
        files = () if quantization else case.snapshot.files
        sizes = listed_size_rule(files, implied.expectation, expected.dtype)
        findings = (*expected.opinion.findings, *sizes)
        return no_weights(case, implied.expectation, detail, *findings)
    packer = unknown_quantization(quantization) if quantization is not None else None
    if packer is not None:
        detail = f"the weights are packed by {packer}: its layout is not known here"
        return unaudited_outcome(case, Reason.UNKNOWN_LAYOUT, detail)
    if has_parts(case.snapshot) and (detail := own_names(case.contents.tensors)):
        return unaudited_outcome(case, Reason.UNKNOWN_ARCHITECTURE, detail)
    # Unpack the weights.
    try:
        packing = _unpack(case, implied.expectation, quantization)
    except CheckpointError as error:
        file = quantization.where if quantization else where(case.snapshot)
        return without_expectation(case, BadConfig(file=file, reason=str(error)))
    if packing.method == OF_MLX:
        note = "MLX wrote the files: mlx_lm or mlx-vlm loads them, transformers does not"
        case = case.with_outcome(notes=(*case.outcome.notes, note))
    # Expect tensors that loading converts in the form in which the files store them.
    if not packing.method:
        implied = _as_stored(case, implied, packing)
        case = case.with_outcome(expected=expected_side(implied.expectation))
    return compared_outcome(case, expected.dtype, implied, packing, expected.opinion)


def _unpack(
    case: ModelAudit, expectation: Expectation, quantization: Declared | None
) -> PackedWeights:
    """Unpack the stored tensors; raise CheckpointError for broken settings of the quantization."""
    weights = case.contents
    tensors, shapes = _all_tensors(weights), shapes_of(expectation)
    is_of_mlx = any(head.framework == "mlx" for head in case.snapshot.headers)
    on_disk = {one.name: one.shape for one in expectation.tensors} if is_of_mlx else None
    mlx_shape = None if on_disk is None else on_disk.get
    unpacked = unpack_tensors(tensors, quantization, shapes, of_mlx=mlx_shape)
    method = quantization.method if quantization else None
    method = method if unpacked is PLAIN else unpacked.layout
    listed = expectation.listed
    needed = listed.learned + sum(not one.role.optional for one in listed.others)
    if len(tensors) < needed:  # else no tensor contains several, and names need not be compared
        unpacked = separated(unpacked, tensors, shapes)
    by_names = weights.without_header or weights.names_only
    return PackedWeights(
        split_off_unread(unpacked, weights.without_header, holds_unknown=weights.holds_unknown),
        written_tensors(tensors, quantization, shapes) if by_names else {},
        method,
        frozenset() if method else frozenset(one.stored.name for one in unpacked.tensors),
    )


def _all_tensors(weights: Contents) -> tuple[StoredTensor, ...]:
    """Return the stored tensors, including tensors that only the index names."""
    unread = weights.without_header
    return (*weights.tensors, *unread) if unread else weights.tensors


def _as_stored(case: ModelAudit, implied: Implied, packing: PackedWeights) -> Implied:
    """Return the expectation with the names that the files use, on disk or in memory."""
    if not implied.expectation.loading.converters:
        return implied
    names = {tensor.name for tensor in _all_tensors(case.contents)} - packing.holders
    where, family = places(implied.expectation, names), implied.family
    expectation = expected_as_stored(implied.expectation, names, case.depth, where)
    if expectation is implied.expectation:
        return implied._replace(where=where)
    is_target = family.declared is implied.expectation
    declared = expectation if is_target else expected_as_stored(family.declared, names, case.depth)
    return Implied(expectation, replace(family, declared=declared))


def _adapter(case: ModelAudit) -> Report | Unaudited:
    """Audit an adapter, whose config and base imply its tensors."""
    # Most checkpoints are complete models.
    from auditor.audit.adapter import adapted, chosen_modules, scale_findings  # noqa: PLC0415
    from auditor.audit.adapter_layers import half_modules, method_findings  # noqa: PLC0415

    config = case.snapshot.config
    if config is not None and is_of_mlx(config.values):
        return _adapter_of_mlx(case, config)
    if config is not None:
        case = case.with_findings(
            *scale_findings(config.name, config.values),
            *method_findings(config.name, config.values.get("peft_type"), case.contents.tensors),
        )
    try:
        answer = adapted(case.snapshot, case.contents.tensors, case.options.target)
    except CheckpointError as error:
        return without_expectation(case, BadConfig(file=where(case.snapshot), reason=str(error)))
    if isinstance(answer, Refusal):
        values = config.values if config is not None else {}
        halves = half_modules(case.contents.tensors, values, chosen_modules(case.snapshot))
        case = case.with_findings(*halves)
        return unaudited_outcome(case, answer.reason, answer.detail)
    expectation = answer.implied.expectation
    case = case.with_outcome(
        target=expectation.target,
        model_type=expectation.model_type,
        expected=replace(expected_side(expectation), base=answer.base_parameters),
        notes=(*case.outcome.notes, *answer.notes),
    )
    if case.contents.empty:
        detail = f"{case.snapshot.model} is an adapter's config alone: there are no weights"
        return no_weights(case, expectation, detail)
    return compared_outcome(
        case, None, answer.implied, UNPACKED, Opinion(unchecked=answer.unchecked)
    )


def _adapter_of_mlx(case: ModelAudit, config: TextFile) -> Report | Unaudited:
    """Compare an adapter of mlx_lm with its settings; its base is not read."""
    from auditor.audit.adapter_layers import half_modules  # noqa: PLC0415 - as above

    tensors = case.contents.tensors
    faults = (
        *mlx_faults(config.name, config.values, tensors),
        *half_modules(tensors, config.values),
    )
    if faults:
        return without_expectation(case.with_findings(*faults))
    detail = f"an adapter of mlx_lm: its names fit {config.name}, and its base is not read"
    return unaudited_outcome(case, Reason.UNKNOWN_ARCHITECTURE, detail)


def _undeclared(case: ModelAudit) -> Report | Unaudited:
    """Return the outcome for a model without a config; its names may be those of a known model."""
    if is_gguf(case.snapshot):
        return without_expectation(case)
    model = case.snapshot.model
    tensors = case.contents.tensors
    if case.snapshot.config is None and case.options.target is None and tensors:
        from auditor.audit.single_file import single_file  # noqa: PLC0415 - most have a config

        implied, notes = single_file(tensors)
        case = case.with_outcome(notes=(*case.outcome.notes, *notes))
        if implied is not None:
            expected = expected_side(implied.expectation)
            case = case.with_outcome(target=implied.expectation.target, expected=expected)
            case = replace(case, unchecked=("the config: the repository has none",))
            return _compare(case, _Expected(implied, None, None, Opinion()))
    case = case.with_outcome(notes=(*case.outcome.notes, *single_file_notes(tensors)))
    if detail := textual_inversion(tensors):
        return unaudited_outcome(case, Reason.UNKNOWN_ARCHITECTURE, detail)
    if name := pipeline_file(case.snapshot):
        detail = f"{name} of {model} is for a pipeline of diffusers that nothing here names"
        return unaudited_outcome(
            case, Reason.UNKNOWN_ARCHITECTURE, f"{detail}: its tensors are counted, not compared"
        )
    detail = f"{model} has no config.json: nothing says what its tensors should be"
    return unaudited_outcome(case, Reason.NO_CONFIG, detail)
