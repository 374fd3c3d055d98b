"""Functions for the diagnosis and `audit fix` that compute what a config implies."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from auditor.analytic import Config, Expectation, Role, catalogue, generated
from auditor.analytic.target import Refusal, choose
from auditor.audit.declaration import declared_by_config
from auditor.audit.expected import (
    Implied,
    LibraryClass,
    classes_of_type,
    expectation_of,
    library_class,
)
from auditor.audit.options import Options
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.manifest import ManifestEntry
from auditor.errors import CheckpointError, SourceError
from auditor.report import Outcome

if TYPE_CHECKING:
    from auditor.analytic.name_forms import NameForms
    from auditor.analytic.outline import ClassTree
    from auditor.diagnosis.case import Case


def implied_shapes(
    snapshot: Snapshot, target: str | None, entry: ManifestEntry | None
) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes that must be stored, by name; None if the config implies no tensors."""
    expectation = _implied(snapshot, target, entry)
    if expectation is None:
        return None
    needed = (Role.PARAMETER, Role.BUFFER)
    return {one.name: one.shape for one in expectation.tensors if one.role in needed}


def case_of(snapshot: Snapshot, options: Options, entry: ManifestEntry | None) -> "Case":
    """Return the case of a snapshot that is not audited: its config, its class and its tensors."""
    from auditor.diagnosis.case import Case  # noqa: PLC0415 - with `diagnose`

    target = options.target
    return Case(
        snapshot=snapshot,
        report=Outcome.begin(snapshot, options.requested).as_report(None),
        target=target,
        classes=classes_of_type,
        implied=partial(implied_shapes, target=target, entry=entry),
        tree=partial(class_tree, target=target, entry=entry),
        forms=partial(name_forms, target=target, entry=entry),
    )


def name_forms(
    snapshot: Snapshot,
    tree: "Callable[[], ClassTree | None]",
    target: str | None,
    entry: ManifestEntry | None,
) -> "NameForms":
    """Return the map between names on disk and names in memory of the config's tensors.

    `tree` returns the tree of the class; it is called if the config implies tensors.
    """
    from auditor.analytic.name_forms import NameForms, forms_of  # noqa: PLC0415

    implied = _implied(snapshot, target, entry)
    if implied is None:
        return NameForms(())
    expected = tree()
    return forms_of(implied, expected and expected.tree)


def _implied(
    snapshot: Snapshot, target: str | None, entry: ManifestEntry | None
) -> Expectation | None:
    """Return the config's expectation; None if the config implies no tensors."""
    try:
        declared = declared_by_config(snapshot, entry)
    except CheckpointError:
        return None
    if declared is None:
        return None
    implied = expectation_of(declared.config, target or declared.target, loader=declared.loader)
    return implied.expectation if isinstance(implied, Implied) else None


def class_tree(
    snapshot: Snapshot, target: str | None, entry: ManifestEntry | None
) -> "ClassTree | None":
    """Return the tree of blocks that the config implies; None if its class has no form.

    Raise CheckpointError for a config that implies no tensors.
    """
    from auditor.analytic.outline import ClassTree  # noqa: PLC0415 - with `diagnose`

    try:
        declared = declared_by_config(snapshot, entry)
        if declared is None:
            return None
        if of := library_class(declared.config):
            return _tree_of_library(declared.config, of)
    except SourceError:
        return None
    for source in (catalogue, generated):
        with suppress(SourceError):
            choice = choose(declared.config, target or declared.target, source, declared.loader)
            if not isinstance(choice, Refusal):
                tree = source.block_tree(choice.kind.config, choice.target)
                return ClassTree(tree, source.family(choice.model_type).prefix)
    return None


def _tree_of_library(config: Config, of: LibraryClass) -> "ClassTree | None":
    """Return the tree of a class of diffusers or timm; None for another library."""
    from auditor.analytic import diffusion, timm_table  # noqa: PLC0415 - few are of diffusers
    from auditor.analytic.outline import ClassTree  # noqa: PLC0415 - likewise

    is_learned = of.name not in diffusion.CLASSES and generated.types(of.name)
    trees = {
        "diffusers": generated.block_tree if is_learned else diffusion.component_tree,
        "timm": timm_table.network,
    }
    build = trees.get(of.library)
    return ClassTree(build(config, of.name), "") if build else None
