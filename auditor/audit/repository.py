"""A repository of several models (components): each gets a snapshot and an audit of its own."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from auditor.audit.component_sums import (
    ROOT,
    expected_by,
    fetched_by,
    known_sum,
    module_rows,
    observed_in,
    unchecked_in,
)
from auditor.audit.guard import outcome_of
from auditor.audit.model import examine_model
from auditor.audit.options import Options
from auditor.audit.outcome import with_code_in_files
from auditor.checkpoint.filenames import is_in_folder
from auditor.checkpoint.selecting import is_weights
from auditor.checkpoint.snapshot import Component, Fetched, Snapshot
from auditor.companions.companion_files import CompanionFile, is_vocabulary
from auditor.companions.reading import Companions
from auditor.containers.manifest import (
    LEARNING,
    NEEDED_FILES,
    PIPELINE,
    SENTENCE,
    Manifest,
    ManifestEntry,
)
from auditor.diagnosis.repository import lost_components
from auditor.errors import CheckpointError, Reason, UsageError
from auditor.findings import (
    BadConfig,
    Finding,
    MissingComponent,
    OfFile,
    OfFiles,
    OfFolders,
    Severity,
)
from auditor.findings.ignore import split
from auditor.messages import listed, named
from auditor.names.parts import file_name, folder_of
from auditor.reconciler.other_weights import (
    other_weights_by_kind,
    unread_pickles,
    unsafe_pickles,
)
from auditor.reconciler.single_files import training_notes
from auditor.report import Outcome, Report, Unaudited, in_order
from auditor.tensors import natural_key


class ComponentAudit(NamedTuple):
    """A model in a repository of several models: its files, and its entry in the manifest."""

    folder: str  # "" for the root model
    entry: ManifestEntry | None
    snapshot: Snapshot

    @property
    def component(self) -> str:
        return self.folder or ROOT

    @property
    def weights(self) -> tuple[str, ...]:
        """The component's weight files, in any format."""
        return tuple(file.name for file in self.snapshot.files if is_weights(file.name))


class ComponentAudits(NamedTuple):
    """The components of a repository, and the findings about the manifest that names them."""

    pieces: tuple[ComponentAudit, ...]  # by folder, in natural order
    target: str | None  # the class of the pipeline
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]


def examine_repository(snapshot: Snapshot, options: Options) -> Report | Unaudited:
    """Audit each model of a snapshot and return their common outcome.

    The `target` is for the root model; raise UsageError if there is no root model. If the
    root model is the only model, its outcome is the repository's.
    """
    components = split_components(snapshot)
    root = next((piece for piece in components.pieces if not piece.folder), None)
    if options.target is not None and root is None:
        raise UsageError(f"--as names one class, and {snapshot.model} holds several models")
    if only := _only(snapshot, components):
        return examine_model(only.snapshot, options, only.entry)
    if options.values is not None:
        redirected = snapshot.fetched.redirects > 0
        shared = partial(options.values, models=len(components.pieces), redirected=redirected)
        options = replace(options, values=shared)
    pieces = components.pieces
    parts = tuple(replace(_guarded(piece, options), component=piece.component) for piece in pieces)
    return repository_outcome(snapshot, components, parts, options)


def only_model(snapshot: Snapshot) -> ComponentAudit | None:
    """Return the root model if the repository has no other model, else None."""
    return _only(snapshot, split_components(snapshot))


def _only(snapshot: Snapshot, components: ComponentAudits) -> ComponentAudit | None:
    root = next((piece for piece in components.pieces if not piece.folder), None)
    if root is None or len(components.pieces) > 1 or components.findings:
        return None
    return root._replace(snapshot=replace(snapshot, manifest=None, components=()))


def _guarded(piece: ComponentAudit, options: Options) -> Report | Unaudited:
    def crashed(detail: str) -> Unaudited:
        detail = f"{piece.component}: {detail}"
        return Outcome.begin(piece.snapshot, options.requested).as_unaudited(Reason.CRASHED, detail)

    return outcome_of(lambda: _part(piece, options), crashed, UsageError)


def _part(piece: ComponentAudit, options: Options) -> Report | Unaudited:
    snapshot, entry = piece.snapshot, piece.entry
    if not (snapshot.headers or snapshot.index) and (unread := piece.weights):
        detail = f"{piece.component} has no weights under a name that is looked for, "
        detail += f"such as model.safetensors; it has {listed(unread)}"
        outcome = replace(
            with_code_in_files(Outcome.begin(snapshot, options.requested), snapshot, options),
            target=entry.kind if entry else None,
        )
        return outcome.as_unaudited(Reason.NO_SAFETENSORS, detail)
    own_options = replace(options, target=None) if piece.folder else options
    return examine_model(snapshot, own_options, entry)


# --- the repository as a whole ----------------------------------------------------------------


def repository_outcome(
    snapshot: Snapshot,
    components: ComponentAudits,
    parts: tuple[Report | Unaudited, ...],
    options: Options,
) -> Report | Unaudited:
    """Return the outcome of all parts: a Report if one has a finding or all were reconciled.

    Counts are sums over the parts, and None if one part's count is unknown.
    """
    reported, ignored = split(components.findings, options.ignore)
    observed = observed_in(parts)
    outcome = replace(
        Outcome.begin(snapshot, options.requested),
        target=components.target,
        expected=expected_by(parts),
        observed=observed,
        modules=tuple(module_rows(parts, observed)),
        findings=in_order(reported),
        ignored=in_order(ignored),
        notes=tuple(training_notes(snapshot, [one.component for one in parts if one.component])),
        unchecked=(*components.unchecked, *unchecked_in(parts)),
        fetched=fetched_by(snapshot, parts),
        parts=parts,
    )
    report = outcome.as_report(
        known_sum(part.residual if isinstance(part, Report) else None for part in parts)
    )
    others = tuple(one for one in reported if not MissingComponent.describes(one))
    are_empty = all(isinstance(part, Unaudited) and _is_config_alone(part) for part in parts)
    if are_empty and not any(one.severity is not Severity.INFO for one in others):
        detail = f"{snapshot.model} holds no weights of the components that it names"
        outcome = replace(outcome, findings=in_order(others))
        return outcome.as_unaudited(Reason.NO_WEIGHTS, detail)
    unaudited = [part for part in parts if isinstance(part, Unaudited)]
    crashed = next((part for part in unaudited if part.reason is Reason.CRASHED), None)
    if crashed:  # even if other parts are fine: a part that crashed was not audited
        return outcome.as_unaudited(Reason.CRASHED, crashed.detail)
    if report.verdict == "findings" or not unaudited:
        return replace(report, diagnosis=tuple(lost_components(report.findings, parts)))
    reason, count = unaudited[0].reason, f"{len(unaudited)} of {len(parts)}"
    names = listed([part.component or ROOT for part in unaudited])
    detail = f"{count} components of {snapshot.model} are not audited, {names}: "
    return outcome.as_unaudited(reason, f"{detail}{unaudited[0].detail}")


def _is_config_alone(part: Unaudited) -> bool:
    return part.reason is Reason.NO_WEIGHTS and not part.alarms


# --- the components -------------------------------------------------------------------------------


def split_components(snapshot: Snapshot) -> ComponentAudits:
    """Split a snapshot of several models into a snapshot for each.

    A declared component whose weight files cannot be read has a snapshot without headers.
    """
    manifest, bad = _manifest(snapshot)
    entries = {entry.folder: entry for entry in manifest.entries} if manifest else {}
    by_folder = {component.folder: component for component in snapshot.components}
    if snapshot.headers or snapshot.index:
        by_folder[""] = _root_component(snapshot)
    candidates = [
        ComponentAudit(folder, entries.get(folder), _split_off(snapshot, folder, by_folder))
        for folder in sorted({*by_folder, *entries}, key=natural_key)
    ]
    components = tuple(piece for piece in candidates if piece.folder in by_folder or piece.weights)
    absent = tuple(_absent(manifest, candidates, by_folder)) if manifest else ()
    between = _between(snapshot, manifest, components)
    unclaimed = _unclaimed_files(snapshot, components)
    partial = snapshot.partial and snapshot.commit is not None  # in a cache, files may be missing
    return ComponentAudits(
        pieces=components,
        target=manifest.target if manifest else None,
        findings=(
            *bad,
            *_other_weights(unclaimed, components),
            *unsafe_pickles(unclaimed),
            *(() if partial else (*absent, *between.findings)),
        ),
        unchecked=(
            *between.unchecked,
            *unread_pickles(unclaimed),
            *((one.reason for one in absent) if partial else ()),
        ),
    )


class _Between(NamedTuple):
    """The findings between the components of a pipeline, and what was not checked."""

    findings: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()


def _between(
    snapshot: Snapshot, manifest: Manifest | None, components: Collection[ComponentAudit]
) -> _Between:
    """Apply the rules between the components of a pipeline; other repositories have none."""
    if manifest is None:
        return _Between()
    if manifest.file != PIPELINE:
        from auditor.reconciler.repository_rules import two_readings  # noqa: PLC0415 - few have them

        configs = {one.folder: one.snapshot.config for one in components}
        values = {folder: one.values for folder, one in configs.items() if one}
        companions = Companions.of(snapshot.companions)
        return _Between(tuple(two_readings.module_findings(manifest, values, companions)))
    from auditor.analytic.diffusion import with_defaults  # noqa: PLC0415 - few are pipelines
    from auditor.reconciler.repository_rules import pipelines  # noqa: PLC0415 - likewise

    pieces = {}
    for piece in components:
        config = piece.snapshot.config
        if piece.entry:
            pieces[piece.folder] = pipelines.PipelineComponent(
                piece.folder,
                config.name if config else f"{piece.folder}/config.json",
                with_defaults(config.values if config else {}),
                piece.weights,
            )
    tokenizers = _tokenizers(snapshot, components)
    return _Between(
        (*pipelines.pipeline_findings(manifest, pieces), *tokenizers.findings),
        (*pipelines.pipeline_notes(manifest), *tokenizers.unchecked),
    )


def _tokenizers(snapshot: Snapshot, components: Iterable[ComponentAudit]) -> _Between:
    """Compare the ids of a pipeline's tokenizers with the embeddings of their text encoders."""
    files_by_folder: dict[str, list[CompanionFile]] = {}
    for file in snapshot.companions or ():
        files_by_folder.setdefault(folder_of(file.name).rstrip("/"), []).append(file)
    if not files_by_folder:
        return _Between()
    from auditor.reconciler.repository_rules import pipelines  # noqa: PLC0415 - few are pipelines

    found = [
        pipelines.tokenizer_findings(folder, files_by_folder[folder], piece.snapshot)
        for piece in components
        if (folder := piece.folder.replace("text_encoder", "tokenizer", 1)) in files_by_folder
    ]
    return _Between(
        tuple(finding for each in found for finding in each.findings),
        tuple(line for each in found for line in each.unchecked),
    )


def _manifest(snapshot: Snapshot) -> tuple[Manifest | None, tuple[OfFile, ...]]:
    if snapshot.manifest is None:
        return None, ()
    try:
        return snapshot.manifest.as_manifest, ()
    except CheckpointError as error:
        return None, (BadConfig(file=snapshot.manifest.name, reason=str(error)),)


def _root_component(snapshot: Snapshot) -> Component:
    """Return the repository's root model as a Component."""
    return Component(
        folder="",
        config=snapshot.config,
        index=snapshot.index,
        headers=snapshot.headers,
        torch_copies=snapshot.torch_copies,
        unopened=snapshot.unopened,
        settings=snapshot.settings,
    )


def _split_off(snapshot: Snapshot, folder: str, by_folder: Mapping[str, Component]) -> Snapshot:
    """Return a component as a separate snapshot whose file names include the folder.

    Files outside every component folder belong to the root model.
    """
    files = tuple(file for file in snapshot.files if is_in_folder(file.name, folder))
    if not folder:
        starts = tuple(f"{other_folder}/" for other_folder in by_folder if other_folder)
        files = tuple(file for file in files if not file.name.startswith(starts))
    names = {file.name for file in files}
    component = by_folder.get(folder) or Component(folder=folder)
    return replace(
        snapshot,
        files=files,
        pickles=tuple(head for head in snapshot.pickles if head.name in names),
        unexamined=_only_named(snapshot.unexamined, names),
        config=component.config,
        index=component.index,
        headers=component.headers,
        torch_copies=component.torch_copies,
        unopened=component.unopened,
        settings=component.settings,
        manifest=None,
        components=(),
        companions=None if _is_pipeline(snapshot) else _companions(snapshot, folder),
        fetched=Fetched(),
    )


def _companions(snapshot: Snapshot, folder: str) -> tuple[CompanionFile, ...] | None:
    """Return the vocabulary in a component's folder, if there is one, else all companion files."""
    own = (one for one in snapshot.companions or () if folder_of(one.name) == f"{folder}/")
    inside = tuple(replace(one, name=file_name(one.name)) for one in own if is_vocabulary(one.name))
    return inside or snapshot.companions


def _is_pipeline(snapshot: Snapshot) -> bool:
    return snapshot.manifest is not None and snapshot.manifest.name == PIPELINE


def _unclaimed_files(snapshot: Snapshot, components: Iterable[ComponentAudit]) -> Snapshot:
    """Return a snapshot of the files that belong to no component."""
    names = {file.name for piece in components for file in piece.snapshot.files}
    return Snapshot(
        model=snapshot.model,
        commit=snapshot.commit,
        source=snapshot.source,
        origin=snapshot.origin,
        files=tuple(file for file in snapshot.files if file.name not in names),
        pickles=tuple(head for head in snapshot.pickles if head.name not in names),
        unexamined=_only_named(
            snapshot.unexamined, {file.name for file in snapshot.files}.difference(names)
        ),
    )


def _only_named(files: tuple[str, ...] | None, names: Collection[str]) -> tuple[str, ...] | None:
    return None if files is None else tuple(name for name in files if name in names)


def _other_weights(unclaimed: Snapshot, components: Iterable[ComponentAudit]) -> Iterator[OfFiles]:
    """Yield findings about weights outside all components, unless the root model was audited."""
    if all(piece.folder for piece in components):
        names = (file.name for file in unclaimed.files)
        pickle_names = frozenset(head.name for head in unclaimed.pickles)
        yield from other_weights_by_kind(filter(is_weights, names), opened=pickle_names)


def _absent(
    manifest: Manifest, components: Iterable[ComponentAudit], read_folders: Collection[str]
) -> Iterator[OfFolders]:
    """Yield a finding for each declared component that loading needs and that lacks files."""
    for piece in components:
        entry, folder = piece.entry, piece.component
        lack = entry and _lack(manifest, entry, piece, is_read=folder in read_folders)
        if entry and lack:
            component = f"{manifest.file} declares {named(entry.kind)} of {named(entry.library)}"
            reason = f"{component} in {named(folder)}, and {lack}"
            yield MissingComponent(declared_in=manifest.file, folders=(folder,), reason=reason)


def _lack(
    manifest: Manifest, entry: ManifestEntry, piece: ComponentAudit, *, is_read: bool
) -> str | None:
    """Return a clause about the missing files of a component; None if no file is missing."""
    of_pipeline = manifest.file == PIPELINE
    is_of_known_library = of_pipeline or entry.library == SENTENCE
    settings = () if of_pipeline else NEEDED_FILES.get(entry.kind, ())
    learns = of_pipeline or entry.kind in LEARNING
    if not is_of_known_library or not (learns or settings):
        return None
    files = {file.name for file in piece.snapshot.files}
    if not files:
        return "there is no such folder"
    if learns and not piece.weights and (is_read or not of_pipeline):
        return "there are no weights in it"  # tokenizers and schedulers have no weights
    prefix = f"{piece.folder}/" if piece.folder else ""
    if settings and files.isdisjoint(prefix + name for name in settings):
        return f"there is no {' or '.join(settings)} in it"
    return None
