"""Repositories with models in several folders: selection of the files of each model. No I/O."""

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from auditor.checkpoint.filenames import (
    CONFIG,
    FileSelection,
    FoundWeights,
    SelectedComponent,
    standard_weights,
    torch_model_files,
    variants,
)
from auditor.containers.manifest import LEARNING, PIPELINE, SETTINGS

# These patterns are compiled on first use: most repositories have one model.
_MODULE = rf"[0-9]+_(?:{'|'.join(LEARNING)})"  # a folder of sentence-transformers: 2_Dense
_SAFE = r"(?:diffusion_pytorch_)?model\.safetensors(?:\.index\.json)?"


def components(
    names: Iterable[str], manifest: str, variant: str | None
) -> tuple[SelectedComponent, ...]:
    """Return the models in folders that a manifest may list, judged by file names alone."""
    parts = _folders(names, variant)
    if manifest == PIPELINE:
        return tuple(parts)
    by_folder = _by_folder(names)
    return tuple(
        _with_settings(part, by_folder[part.folder])
        for part in parts
        if _has_weights(part) or re.fullmatch(_MODULE, part.folder)
    )


def models(names: Iterable[str], variant: str | None) -> tuple[SelectedComponent, ...]:
    """Return the models in folders that have a config and weights."""
    parts = _folders(names, variant)
    return tuple(part for part in parts if part.selection.config and _has_weights(part))


def folder_weights(names: set[str], variant: str | None) -> FoundWeights | None:
    """Return a folder's weights: the variant's, else those without one, else the only variant's."""
    weights = standard_weights(names, variant) or standard_weights(names)
    if weights is None and len(only := variants(names)) == 1:
        return standard_weights(names, only[0])
    return weights


def torch_copies_in(names: Iterable[str], weights: FoundWeights) -> tuple[str, ...]:
    """Return the torch files that repeat a folder's weights; () if these are not safetensors."""
    name = weights.weights or weights.index or ""
    return torch_model_files(names) if re.fullmatch(_SAFE, name) else ()


def with_part_torch_copies(selection: FileSelection, names: Iterable[str]) -> FileSelection:
    """Add to each part of a selection the torch files of its folder, for comparison."""
    by_folder = _by_folder(names)
    parts = (_with_torch_copies(part, by_folder[part.folder]) for part in selection.parts)
    return replace(selection, parts=tuple(parts))


def _has_weights(part: SelectedComponent) -> bool:
    return bool(part.selection.weights or part.selection.index)


def _folders(names: Iterable[str], variant: str | None) -> Iterator[SelectedComponent]:
    for folder, local_names in sorted(_by_folder(names).items()):
        weights = folder_weights(local_names, variant) or FoundWeights()
        config = CONFIG if CONFIG in local_names else None
        if folder and (config or weights.weights or weights.index):
            selection = FileSelection(
                config=config and f"{folder}/{config}",
                weights=weights.weights and f"{folder}/{weights.weights}",
                index=weights.index and f"{folder}/{weights.index}",
            )
            yield SelectedComponent(folder=folder, selection=selection)


def _with_settings(part: SelectedComponent, local_names: set[str]) -> SelectedComponent:
    """Add the part's settings file for sentence-transformers, if it exists."""
    name = next((f"{part.folder}/{name}" for name in SETTINGS if name in local_names), None)
    return part._replace(selection=replace(part.selection, settings=name))


def _with_torch_copies(part: SelectedComponent, local_names: set[str]) -> SelectedComponent:
    weights, index = (
        name and name.removeprefix(f"{part.folder}/")
        for name in (part.selection.weights, part.selection.index)
    )
    names = torch_copies_in(local_names, FoundWeights(weights=weights, index=index))
    torch_copies = tuple(f"{part.folder}/{name}" for name in names)
    return part._replace(selection=replace(part.selection, torch_copies=torch_copies))


def _by_folder(names: Iterable[str]) -> dict[str, set[str]]:
    folders: dict[str, set[str]] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        folders.setdefault(folder, set()).add(last)
    return folders
