"""Repositories with a model in each of several folders: the files to read of each. Pure."""

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
    """Return the folders with a model that a manifest may name, judged by file names alone."""
    every = _parts(names, variant)
    if manifest == PIPELINE:
        return tuple(every)
    inside = _by_folder(names)
    return tuple(
        _with_settings(part, inside[part.folder])
        for part in every
        if _weighs(part) or re.fullmatch(_MODULE, part.folder)
    )


def models(names: Iterable[str], variant: str | None) -> tuple[SelectedComponent, ...]:
    """Return the folders with a complete model each: a config and weights."""
    return tuple(part for part in _parts(names, variant) if part.selection.config and _weighs(part))


def found_in(names: set[str], variant: str | None) -> FoundWeights | None:
    """Return the weights of one folder: of the variant, else without one, else of the only one."""
    found = standard_weights(names, variant) or standard_weights(names)
    if found is None and len(only := variants(names)) == 1:
        found = standard_weights(names, only[0])
    return found


def torch_copies_in(names: Iterable[str], found: FoundWeights) -> tuple[str, ...]:
    """Return the torch files that repeat a folder's safetensors; () if torch files are audited."""
    name = found.weights or found.index or ""
    return torch_model_files(names) if re.fullmatch(_SAFE, name) else ()


def with_part_torch_copies(selection: FileSelection, names: Iterable[str]) -> FileSelection:
    """Add to each part of a selection the torch files of its folder, to compare them."""
    inside = _by_folder(names)
    parts = (_with_torch_copies(part, inside[part.folder]) for part in selection.parts)
    return replace(selection, parts=tuple(parts))


def _weighs(part: SelectedComponent) -> bool:
    return bool(part.selection.weights or part.selection.index)


def _parts(names: Iterable[str], variant: str | None) -> Iterator[SelectedComponent]:
    for folder, inside in sorted(_by_folder(names).items()):
        found = found_in(inside, variant)
        if folder and (found or CONFIG in inside):
            yield SelectedComponent(
                folder=folder, selection=_selection(folder, inside, found or FoundWeights())
            )


def _selection(folder: str, inside: set[str], found: FoundWeights) -> FileSelection:
    def path(name: str | None) -> str | None:
        return name and f"{folder}/{name}"

    config = path(CONFIG) if CONFIG in inside else None
    return FileSelection(config=config, weights=path(found.weights), index=path(found.index))


def _with_settings(part: SelectedComponent, inside: set[str]) -> SelectedComponent:
    """Add the settings by which sentence-transformers loads the part, if there are any."""
    name = next((f"{part.folder}/{name}" for name in SETTINGS if name in inside), None)
    return part._replace(selection=replace(part.selection, settings=name))


def _with_torch_copies(part: SelectedComponent, inside: set[str]) -> SelectedComponent:
    weights, index = (
        name and name.removeprefix(f"{part.folder}/")
        for name in (part.selection.weights, part.selection.index)
    )
    found = FoundWeights(weights=weights, index=index)
    torch_copies = tuple(f"{part.folder}/{name}" for name in torch_copies_in(inside, found))
    return part._replace(selection=replace(part.selection, torch_copies=torch_copies))


def _by_folder(names: Iterable[str]) -> dict[str, set[str]]:
    folders: dict[str, set[str]] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        folders.setdefault(folder, set()).add(last)
    return folders
