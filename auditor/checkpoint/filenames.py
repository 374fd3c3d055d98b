"""The names of weight files, and the selection of weights from a listing. No I/O.

`from_pretrained(..., variant="fp16")` of transformers and of diffusers loads
`model.fp16.safetensors`, or `model.safetensors.index.fp16.json` and its shards.

transformers loads the file that `transformers_weights` of config.json names, even if other weight
files exist. AutoGPTQ loads the base name in its own config (`model_file_base_name`), else
`gptq_model-4bit-128g` for 4 bits in groups of 128, as GPTQModel does. The names are untrusted: a
base name is a file in the config's folder, never a path.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.checkpoint.snapshot import TextFile
from auditor.containers.index import shard_fault
from auditor.containers.manifest import LEARNING, PIPELINE, SETTINGS
from auditor.errors import SourceError, UsageError
from auditor.messages import quoted
from auditor.names.parts import file_name

# The usual names in search order: safetensors first, transformers' names first.
_WEIGHTS = (
    "model.safetensors",
    "diffusion_pytorch_model.safetensors",
    "pytorch_model.bin",
    "diffusion_pytorch_model.bin",
)
_INDEX = ".index.json"

_STEM = r"(?:diffusion_)?(?:pytorch_)?model"
_SHARD = r"-\d{5}-of-\d{5}"
_VARIANT = re.compile(
    rf"(?P<stem>{_STEM})(?:"
    rf"\.(?P<file>(?!\d+\.)\w+)(?:{_SHARD})?\.(?:safetensors|bin)"  # model.fp16.safetensors, shards
    rf"|{_SHARD}\.(?P<shard>\w+)\.(?:safetensors|bin)"  # model-00001-of-00002.fp16.safetensors
    rf"|\.(?:safetensors|bin)\.index\.(?P<index>\w+)\.json)",
    re.ASCII,
)


CONFIG = "config.json"


class FileSelection(Struct, frozen=True, kw_only=True):
    """The files of one listing that an audit reads; never both `weights` and `index`."""

    config: str | None
    weights: str | None = None  # the one weight file
    index: str | None = None
    packing: str | None = None  # the file that declares the packing, beside the config
    settings: str | None = None  # the file of settings for sentence-transformers
    shards: tuple[str, ...] = ()  # one model's files without an index, sorted: GGUF
    # Configs that may name the weights if no weights have a usual name; they are read first. If
    # they name none, the files of `otherwise` are read, or the error states why no file is read.
    hints: tuple[str, ...] = ()
    otherwise: "FileSelection | SourceError | None" = None
    torch_copies: tuple[str, ...] = ()  # the torch files that repeat the weights, sorted
    manifest: str | None = None  # the file that lists the parts to read; None: read all parts
    parts: tuple["SelectedComponent", ...] = ()  # models in separate folders, sorted by folder
    # The companion files, the most informative first; None: they are not read.
    companions: tuple[str, ...] | None = None


class SelectedComponent(NamedTuple):
    """The files of one model in a repository of several models."""

    folder: str
    selection: FileSelection  # names are relative to the folder


Chooser = Callable[
    [Collection[str], str], FileSelection
]  # takes the file names, and the name of their place for messages


class FoundWeights(Struct, frozen=True, kw_only=True):
    """The weights of one folder: a file or an index, never both."""

    weights: str | None = None
    index: str | None = None


def standard_weights(names: Collection[str], variant: str | None = None) -> FoundWeights | None:
    """Return the weights that loading takes from a folder, of the variant if given; else None."""
    for weights in _WEIGHTS:
        file, index = _with_variant(weights, variant), _with_variant(f"{weights}{_INDEX}", variant)
        if file in names:
            return FoundWeights(weights=file)
        if index in names:
            return FoundWeights(index=index)
    return None


def variants(names: Iterable[str]) -> tuple[str, ...]:
    """Return the variants that can be loaded from one folder, sorted."""
    name_set = set(names)
    named_variants = {variant for name in name_set if (variant := variant_of(name))}
    return tuple(sorted(one for one in named_variants if standard_weights(name_set, one)))


def variant_of(path: str) -> str | None:
    """Return a path's variant, `fp16` for `unet/model.fp16.safetensors`, else None."""
    match = _VARIANT.fullmatch(file_name(path))
    return match and (match["file"] or match["shard"] or match["index"])


def dtype_of(variant: str) -> str | None:
    """Return the safetensors dtype that a variant's name means; None if it means no dtype."""
    return {"fp16": "F16", "bf16": "BF16", "fp32": "F32"}.get(variant)


def checked_variant(variant: str) -> str:
    """Return the variant if it is valid as a part of a file name; else raise UsageError."""
    if not re.fullmatch(r"\w{1,64}", variant, re.ASCII):
        raise UsageError(f"{quoted(variant)} is not a variant: a variant is a word such as fp16")
    return variant


def _with_variant(name: str, variant: str | None) -> str:
    """Put the variant before the last ending: `model.fp16.safetensors`."""
    if variant is None:
        return name
    stem, _, ending = name.rpartition(".")
    return f"{stem}.{variant}.{ending}"


# This pattern is compiled on first use: few repositories have torch shards.
_TORCH = ("pytorch_model.bin", "diffusion_pytorch_model.bin")
_TORCH_SHARD = r"(?:diffusion_)?pytorch_model-[0-9]{5}-of-[0-9]{5}\.bin"


def torch_model_files(names: Iterable[str]) -> tuple[str, ...]:
    """Return the torch files of a complete model: one file, else all shards, else ()."""
    name_set = set(names)
    if single := next((name for name in _TORCH if name in name_set), None):
        return (single,)
    return tuple(sorted(name for name in name_set if re.fullmatch(_TORCH_SHARD, name)))


def is_in_folder(name: str, folder: str) -> bool:
    """Return whether a file is in a folder, at any depth; the folder "" contains every file."""
    return not folder or name.startswith(f"{folder}/")


_NAMED = "transformers_weights"
_SAFE = (
    ".safetensors",
    ".safetensors.index.json",
)  # the endings that transformers accepts in transformers_weights
_BASENAMES = ("model_file_base_name", "model_basename")
_GROUP = "group_size"
_ENDINGS = (".safetensors", ".bin", ".pt")  # in search order
_LONGEST = 200  # the most characters of a base name


def named_weights(config: TextFile | None, names: Collection[str]) -> FoundWeights | None:
    """Return the file that the config names for transformers; None if there is no such file.

    The config names files relative to its own folder.
    """
    if config is None or _NAMED.encode() not in config.content:
        return None
    name = config.values.get(_NAMED)
    if not isinstance(name, str) or not name.endswith(_SAFE) or shard_fault(name):
        return None
    path = f"{config.name[: config.name.rfind('/') + 1]}{name}"
    if path not in names:
        return None
    return FoundWeights(index=path) if path.endswith(_INDEX) else FoundWeights(weights=path)


def based_weights(config: TextFile, names: Collection[str]) -> FoundWeights | None:
    """Return the file whose base name an AutoGPTQ config states or implies; None if absent."""
    if not any(key.encode() in config.content for key in (*_BASENAMES, _GROUP)):
        return None
    for base in _base_names(config.values):
        for ending in _ENDINGS:
            if f"{base}{ending}{_INDEX}" in names:
                return FoundWeights(index=f"{base}{ending}{_INDEX}")
            if f"{base}{ending}" in names:
                return FoundWeights(weights=f"{base}{ending}")
    return None


def _base_names(values: Mapping[str, Any]) -> Iterator[str]:
    inner = values.get("quantization_config")
    settings = inner if isinstance(inner, Mapping) else values
    for key in _BASENAMES:
        base = settings.get(key)
        if isinstance(base, str) and 0 < len(base) <= _LONGEST and not ({"/", "\\"} & set(base)):
            yield base
            for ending in _ENDINGS:  # some configs contain the complete name
                if base.endswith(ending):
                    yield base.removesuffix(ending)
    bits, group = settings.get("bits"), settings.get(_GROUP)
    if type(bits) is int and type(group) is int:
        yield f"gptq_model-{bits}bit-{group}g"


# --- repositories with models in several folders --------------------------------------------------

# These patterns are compiled on first use: most repositories have one model.
_MODULE = rf"[0-9]+_(?:{'|'.join(LEARNING)})"  # a folder of sentence-transformers: 2_Dense
_SAFETENSORS = r"(?:diffusion_pytorch_)?model\.safetensors(?:\.index\.json)?"


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
    return torch_model_files(names) if re.fullmatch(_SAFETENSORS, name) else ()


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
