"""A repository of several models, taken apart: each as a snapshot of its own."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from auditor.checkpoint.filenames import is_in_folder
from auditor.checkpoint.selecting import is_weights
from auditor.checkpoint.snapshot import Component, Fetched, RepoFile, Snapshot
from auditor.containers.manifest import (
    LEARNING,
    MODULES,
    PIPELINE,
    SENTENCE,
    Manifest,
    ManifestEntry,
    parse_manifest,
)
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.reconciler.findings import BadConfig, Finding, MissingComponent, OtherWeights
from auditor.reconciler.other_weights import (
    other_weights_by_kind,
    unread_pickles,
    unsafe_pickles,
)
from auditor.tensors import natural_key

ROOT = "."  # how the repository's own folder is called where it is one of several


class ComponentAudit(NamedTuple):
    """One model of several: what was fetched of it, and its entry in the manifest."""

    folder: str  # "" for the repository's own
    entry: ManifestEntry | None
    snapshot: Snapshot

    @property
    def component(self) -> str:
        return self.folder or ROOT

    @property
    def weights(self) -> tuple[str, ...]:
        """Its weight files, of whatever format."""
        return tuple(file.name for file in self.snapshot.files if is_weights(file.name))


class ComponentAudits(NamedTuple):
    """The components of a repository, and what is wrong with the file that names them."""

    pieces: tuple[ComponentAudit, ...]  # by folder, in natural order
    target: str | None  # the class of the whole
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]


def split_components(snapshot: Snapshot) -> ComponentAudits:
    """The models of a snapshot of several, as snapshots of their own.

    A component that is declared, and whose weights nothing here reads, is one without a head.
    """
    manifest, bad = _manifest(snapshot)
    entries = {entry.folder: entry for entry in manifest.entries} if manifest else {}
    read = {component.folder: component for component in snapshot.components}
    if snapshot.headers or snapshot.index:
        read[""] = _at_the_top(snapshot)
    found = [
        ComponentAudit(folder, entries.get(folder), _own(snapshot, read.get(folder), folder, read))
        for folder in sorted({*read, *entries}, key=natural_key)
    ]
    kept = tuple(piece for piece in found if piece.folder in read or piece.weights)
    absent = tuple(_absent(manifest, found, read)) if manifest else ()
    rest = _rest(snapshot, kept)
    partial = snapshot.partial and snapshot.commit is not None  # a cache, filled file by file
    return ComponentAudits(
        pieces=kept,
        target=manifest.target if manifest else None,
        findings=(
            *bad,
            *_other_weights(rest, kept),
            *unsafe_pickles(rest),
            *(() if partial else absent),
        ),
        unchecked=(
            *unread_pickles(rest),
            *((one.reason for one in absent) if partial else ()),
        ),
    )


def _manifest(snapshot: Snapshot) -> tuple[Manifest | None, tuple[BadConfig, ...]]:
    if snapshot.manifest is None:
        return None, ()
    try:
        return parse_manifest(snapshot.manifest.name, snapshot.manifest.content), ()
    except CheckpointError as error:
        return None, (BadConfig(file=snapshot.manifest.name, reason=str(error)),)


def _at_the_top(snapshot: Snapshot) -> Component:
    """The repository's own model."""
    return Component(
        folder="",
        config=snapshot.config,
        index=snapshot.index,
        headers=snapshot.headers,
        torch_copies=snapshot.torch_copies,
        unopened=snapshot.unopened,
        settings=snapshot.settings,
    )


def _own(
    snapshot: Snapshot, component: Component | None, folder: str, others: Iterable[str]
) -> Snapshot:
    """One component as a snapshot of its own; its files keep the folder in their names.

    What is in no other's folder is the repository's own.
    """
    inside = _outside(snapshot.files, others) if not folder else snapshot.files
    files = tuple(file for file in inside if is_in_folder(file.name, folder))
    names = {file.name for file in files}
    of = component or Component(folder=folder)
    return replace(
        snapshot,
        files=files,
        pickles=tuple(head for head in snapshot.pickles if head.name in names),
        config=of.config,
        index=of.index,
        headers=of.headers,
        torch_copies=of.torch_copies,
        unopened=of.unopened,
        settings=of.settings,
        manifest=None,
        components=(),
        fetched=Fetched(),
    )


def _rest(snapshot: Snapshot, kept: Iterable[ComponentAudit]) -> Snapshot:
    """Return the files that no component answers for."""
    names = {file.name for piece in kept for file in piece.snapshot.files}
    return Snapshot(
        model=snapshot.model,
        commit=snapshot.commit,
        source=snapshot.source,
        origin=snapshot.origin,
        files=tuple(file for file in snapshot.files if file.name not in names),
        pickles=tuple(head for head in snapshot.pickles if head.name not in names),
    )


def _outside(files: Iterable[RepoFile], folders: Iterable[str]) -> Iterator[RepoFile]:
    starts = tuple(f"{folder}/" for folder in folders if folder)
    return (file for file in files if not file.name.startswith(starts))


def _other_weights(rest: Snapshot, kept: Iterable[ComponentAudit]) -> Iterator[OtherWeights]:
    """Yield the weights that no component answers for; the root answers for all the rest."""
    if all(piece.folder for piece in kept):
        names = (file.name for file in rest.files)
        opened = frozenset(head.name for head in rest.pickles)
        yield from other_weights_by_kind(filter(is_weights, names), opened=opened)


def _absent(
    manifest: Manifest, found: Iterable[ComponentAudit], read: Collection[str]
) -> Iterator[MissingComponent]:
    """Yield the declared components that have no files in the repository, or no weights."""
    for piece in found:
        if piece.entry is None or not _needed(manifest, piece.entry) or piece.weights:
            continue
        entry, folder = piece.entry, piece.component
        what = f"{manifest.file} declares {named(entry.kind)} of {named(entry.library)} in "
        if not piece.snapshot.files:
            reason = f"{what}{named(folder)}, and there is no such folder"
        elif folder in read or manifest.file == MODULES:
            reason = f"{what}{named(folder)}, and there are no weights in it"
        else:
            continue  # a tokenizer, a scheduler
        yield MissingComponent(declared_in=manifest.file, folders=(folder,), reason=reason)


def _needed(manifest: Manifest, entry: ManifestEntry) -> bool:
    """Whether loading fails without the folder.

    Of sentence-transformers' modules many hold nothing, and git keeps no empty folder:
    `2_Normalize` is declared by most repositories and there in none.
    """
    return manifest.file == PIPELINE or (entry.library == SENTENCE and entry.kind in LEARNING)
