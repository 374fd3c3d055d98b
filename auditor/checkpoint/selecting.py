"""The selection of the files to audit from a listing, and of other weight files. No I/O."""

import re
from collections.abc import Collection, Iterable

from msgspec.structs import asdict, replace

from auditor.checkpoint.filenames import (
    CONFIG,
    Chooser,
    FileSelection,
    FoundWeights,
    SelectedComponent,
    components,
    folder_weights,
    models,
    standard_weights,
    torch_copies_in,
    torch_model_files,
    variant_of,
    variants,
    with_part_torch_copies,
)
from auditor.checkpoint.shard_names import (
    GGUF_ENDING,
    only_gguf_set,
    shards_of,
    split_of,
    tagged_gguf_set,
)
from auditor.checkpoint.snapshot import Snapshot
from auditor.checkpoint.training_files import state_alone, training_selection, training_texts
from auditor.companions.companion_files import (
    GENERATION,
    TOKENIZER_CONFIG,
    companions_of,
    template_name,
    tokenizers_of,
)
from auditor.containers.manifest import MODULES, PIPELINE, SETTINGS
from auditor.containers.other_formats import formats_by_name, is_in_parts
from auditor.containers.weight_formats import MODULES as FORMATS
from auditor.containers.weight_formats import Table
from auditor.errors import Reason, SourceError
from auditor.layouts import declared
from auditor.messages import listed, quoted
from auditor.names.parts import file_name, folder_of

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TORCH_WEIGHTS = "pytorch_model.bin"
TORCH_INDEX = "pytorch_model.bin.index.json"
FLAX = "flax_model.msgpack"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")  # the first existing file is loaded
OPEN_CLIP = "open_clip_config.json"
# Configs of weights with names of their own; the first existing file is loaded.
_OWN_WEIGHTS = {
    ADAPTER_CONFIG: (*ADAPTERS, "adapters.safetensors"),  # the last is of mlx_lm
    OPEN_CLIP: ("open_clip_model.safetensors", "open_clip_pytorch_model.bin"),
}
# Files that diffusers loads into a pipeline: LoRA, attention processors, embeddings.
PIECES = (
    "pytorch_lora_weights.safetensors",
    "pytorch_lora_weights.bin",
    "pytorch_custom_diffusion_weights.safetensors",
    "pytorch_custom_diffusion_weights.bin",
    "learned_embeds.safetensors",
    "learned_embeds.bin",
)

_WEIGHT_ENDINGS = (
    ".safetensors",
    ".safetensors.index.json",
    ".bin",
    ".bin.index.json",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".msgpack",
    ".gguf",
    ".onnx",
    ".npz",
    ".ot",
    ".distcp",
)
# Files of a trainer that have endings of weight files.
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "tokenizer")
_PACKED_BY_NAME = ("quantize_config.json", "quant_config.json")
_HINTED = (".safetensors", ".bin", ".pt", ".index.json")
_INDEXES = (".safetensors.index.json", ".bin.index.json")
_MLX = re.compile(r"model[^/]*\.safetensors")
_PAPERWORK = ("readme", "license", "licence", "notice", "use_policy")
_LONGEST_NAME = 4096  # characters; PATH_MAX of Linux


def select(names: Collection[str], where: str, variant: str | None = None) -> FileSelection:
    """Select the files that `from_pretrained` loads: safetensors, else torch; a file, else shards.

    For a pipeline these are the files of every component; otherwise those of the repository's root
    and of the other modules of sentence-transformers. If these do not exist, the order is: the
    adapter, open_clip's model, the file that a config names, the GGUF model, the models in folders,
    the files that only some loaders find. Raise SourceError, which lists the existing files, if
    there is no such file, or if there are several and the user has to name one.
    """
    if PIPELINE in names and (parts := components(names, PIPELINE, variant)):
        return _select_parts(parts, PIPELINE, where, variant)
    config = CONFIG if CONFIG in names else None
    root = _root_weights({name for name in names if "/" not in name}, where, variant)
    manifest = MODULES if MODULES in names else None
    parts = components(names, MODULES, variant) if manifest else ()
    if root:
        return FileSelection(
            config=config,
            **asdict(root),
            packing=next((name for name in declared.FILES if name in names), None),
            settings=next((name for name in SETTINGS if manifest and name in names), None),
            manifest=manifest,
            parts=parts,
        )
    if own := _select_own(names):
        return own

    def select_unusual() -> FileSelection:
        if shards := only_gguf_set(names, where):
            return FileSelection(config=config, shards=shards)
        if model_parts := parts or models(names, variant):
            return _select_parts(model_parts, manifest, where, variant)
        return _select_rare(names, where, config)

    hints = _hints(names, config) if variant is None else ()
    if not hints:
        return select_unusual()
    try:
        otherwise: FileSelection | SourceError = select_unusual()
    except SourceError as error:
        otherwise = error
    packing = next((name for name in declared.FILES if name in names), None)
    return FileSelection(
        config=config,
        packing=packing,
        hints=hints,
        otherwise=otherwise,
        manifest=manifest,
        parts=parts,
    )


def _select_own(names: Collection[str]) -> FileSelection | None:
    """Return weights with unusual names and their config, or None without such weights."""
    for config, files in _OWN_WEIGHTS.items():
        weights = next((name for name in files if name in names), None)
        if weights and config in names:
            return FileSelection(config=config, weights=weights)
    piece = next((name for name in PIECES if name in names), None)
    return FileSelection(config=None, weights=piece) if piece else None


def _hints(names: Collection[str], config: str | None) -> tuple[str, ...]:
    """Return the config files that may name a weight file, the most specific file first."""
    if not any("/" not in name and name.endswith(_HINTED) and is_weights(name) for name in names):
        return ()
    packing = (name for name in _PACKED_BY_NAME if name in names)
    return (*packing, *((config,) if config else ()))


def _select_rare(names: Collection[str], where: str, config: str | None) -> FileSelection:
    """Select files that only some loaders find: the only index (accelerate), shards (mlx_lm).

    Torch shards without an index are selected too: their numbers show whether some are absent. A
    single weight file without a config was written for ComfyUI, kohya or Mistral.
    """
    if is_in_parts(names):
        raise _no_weights_error(names, where)
    if training := training_selection(names, where):
        return training
    root_names = {name for name in names if "/" not in name}
    indexes = [name for name in root_names if name.endswith(_INDEXES)]
    if len(indexes) == 1:
        return FileSelection(config=config, index=indexes[0])
    shards = tuple(sorted(name for name in root_names if _MLX.fullmatch(name)))
    shards = shards or torch_model_files(root_names)
    if shards and config:
        return FileSelection(config=config, shards=shards)
    readable = [name for name in names if is_readable(name)]
    if len(readable) == 1 and (
        readable[0].lower().endswith(".ckpt")  # Lightning's
        or (not config and _may_be_lone(file_name(readable[0])))
    ):
        return FileSelection(config=config, weights=readable[0])
    raise _no_weights_error(names, where)


def _may_be_lone(name: str) -> bool:
    """Return whether a file may be the weights of a repository without a config.

    The usual names of a model's or an adapter's weights are excluded, because they need a config,
    and so is `.bin`, which may contain anything.
    """
    is_usual = name in ADAPTERS or standard_weights([name]) is not None
    return not is_usual and not name.lower().endswith(".bin")


def _root_weights(names: set[str], where: str, variant: str | None) -> FoundWeights | None:
    """Return the root's weights, of the requested or else the only variant; None if it has none.

    Raise SourceError if the root lacks the requested variant but has other weights, or if it has
    several variants and none is requested.
    """
    if weights := standard_weights(names, variant):
        return weights
    variant_names = variants(names)
    if variant is not None:
        if variant_names or standard_weights(names):
            raise SourceError(Reason.NO_SAFETENSORS, _no_variant(where, variant, variant_names))
        return None
    if len(variant_names) > 1:
        shown = listed(variant_names)
        detail = f"{where} has its weights only as variants, {shown}; name one with --variant"
        raise SourceError(Reason.NO_SAFETENSORS, detail)
    return standard_weights(names, variant_names[0]) if variant_names else None


def _select_parts(
    parts: tuple[SelectedComponent, ...], manifest: str | None, where: str, variant: str | None
) -> FileSelection:
    """Select the parts; raise SourceError if none of them has weights of the variant."""
    if variant is not None:
        weight_names = (part.selection.weights or part.selection.index for part in parts)
        if variant not in {variant_of(name) for name in weight_names if name}:
            raise SourceError(Reason.NO_SAFETENSORS, _no_variant(where, variant, ()))
    return FileSelection(config=None, manifest=manifest, parts=parts)


def _no_variant(where: str, variant: str, other_variants: tuple[str, ...]) -> str:
    alternatives = f"; its variants are {listed(other_variants)}" if other_variants else ""
    return f"{where} has no weights of the variant {quoted(variant)}{alternatives}"


def select_tagged(names: Collection[str], where: str, tag: str) -> FileSelection:
    """Select the GGUF model that a tag names, even if other weights exist."""
    config = CONFIG if CONFIG in names else None
    return FileSelection(config=config, shards=tagged_gguf_set(names, where, tag))


def with_torch_copies(
    names: Collection[str], where: str, choose: Chooser = select
) -> FileSelection:
    """Add to the selection of `choose` the torch files that repeat its safetensors."""
    return _with_torch_copies(choose(names, where), names)


def _with_torch_copies(selection: FileSelection, names: Collection[str]) -> FileSelection:
    if isinstance(selection.otherwise, FileSelection):
        selection = replace(selection, otherwise=_with_torch_copies(selection.otherwise, names))
    root = FoundWeights(weights=selection.weights, index=selection.index)
    root_names = (name for name in names if "/" not in name)
    selection = replace(selection, torch_copies=torch_copies_in(root_names, root))
    return with_part_torch_copies(selection, names)


def with_flax(names: Collection[str], where: str, choose: Chooser) -> FileSelection:
    """Select as `choose` does on this machine, or Flax's weights if there are no others.

    They take a read for each tensor, so that they are read of a folder and not of the Hub.
    """
    try:
        selection = choose(names, where)
    except SourceError:
        if not {FLAX, CONFIG} <= set(names):
            raise
        return FileSelection(config=CONFIG, weights=FLAX)
    if isinstance(selection.otherwise, SourceError) and {FLAX, CONFIG} <= set(names):
        return replace(selection, otherwise=FileSelection(config=CONFIG, weights=FLAX))
    return selection


def select_compared(names: Collection[str], where: str) -> FileSelection:
    """Select as `select` does, and the files of which a comparison shows the differences."""
    templates = (name for name in sorted(names) if template_name(name) is not None)
    texts = (GENERATION, TOKENIZER_CONFIG, *templates)
    return replace(select(names, where), companions=tuple(one for one in texts if one in names))


def with_companions(names: Collection[str], where: str, choose: Chooser = select) -> FileSelection:
    """Add the companion files of a model in the root, or of a pipeline's tokenizers."""
    selection = choose(names, where)
    if PIPELINE in names:
        return replace(selection, companions=tokenizers_of(names) or None)
    of_training = training_texts(names, selection.weights)
    if selection.config != CONFIG and MODULES not in names:
        return replace(selection, companions=of_training) if of_training else selection
    return replace(selection, companions=(*companions_of(names), *of_training))


def select_config(names: Collection[str], where: str) -> FileSelection:
    """Select only the config, or an adapter's config if there is no other; ignore the weights."""
    for config in (CONFIG, ADAPTER_CONFIG, OPEN_CLIP):
        if config in names:
            return FileSelection(config=config)
    ending = f"/{CONFIG}"
    folders = sorted(name.removesuffix(ending) for name in names if name.endswith(ending))
    inside = f"; there is one in {listed(folders)}; name such a folder" if folders else ""
    raise SourceError(Reason.NO_CONFIG, f"{where} has no {CONFIG}{inside}")


def select_describing(names: Collection[str], where: str) -> FileSelection:
    """Select the files that describe a model: its config, else GGUF files (for metadata)."""
    configs = {CONFIG, ADAPTER_CONFIG, OPEN_CLIP}
    if configs.isdisjoint(names) and (shards := only_gguf_set(names, where)):
        return FileSelection(config=None, shards=shards)
    return select_config(names, where)


def is_weights(name: str) -> bool:
    """Return whether a file contains or indexes weights, judged by its name alone."""
    last = file_name(name).lower()
    if last.startswith(_NOT_WEIGHTS):
        return False
    return last.endswith(_WEIGHT_ENDINGS) or variant_of(last) is not None


def is_readable(name: str) -> bool:
    """Return whether a file contains or indexes weights in a format that this package reads."""
    return is_weights(name) and name.lower().endswith((".safetensors", *FORMATS))


def what_to_do(names: Collection[str]) -> str:
    """Return what to do with weight files that cannot be audited under these names."""
    readable = [name for name in names if is_readable(name)]
    if len(readable) == 1 and readable[0].endswith(".safetensors"):
        return "rename it to model.safetensors, or name it to audit it alone"
    if readable:
        return "name one of them to audit it alone"
    for row, _ in formats_by_name(names):
        return row.to_do
    return "the formats that can be audited are safetensors, torch's and GGUF"


def other_weight_files(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the weight files of the repository that are not part of the audited set, sorted."""
    if snapshot.index is None and not snapshot.headers:
        return ()  # only a config was read: there is no audited set
    audited = {head.name for head in snapshot.headers} | set(snapshot.unopened)
    audited |= {head.name for head in snapshot.torch_copies}  # torch copies are compared
    tables = (head.parsed for head in snapshot.headers)
    audited |= {one.path for table in tables if isinstance(table, Table) for one in table.needs}
    if snapshot.index is not None:
        audited.add(snapshot.index.name)
    names = (file.name for file in snapshot.files)
    return tuple(sorted(name for name in names if is_weights(name) and name not in audited))


def name_fault(name: str) -> str | None:
    """Return why a name from a listing cannot be a file of a repository, else None."""
    if not name or len(name) > _LONGEST_NAME or "\0" in name:
        return f"{quoted(name)} is not a file's name"
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return f"{quoted(name)} leaves the repository"
    return None


def _no_weights_error(names: Iterable[str], where: str) -> SourceError:
    paperwork = (".git", *_PAPERWORK)
    files = sorted(name for name in names if not file_name(name).lower().startswith(paperwork))
    if not files:
        return SourceError(Reason.EMPTY_REPO, f"{where} is empty: it has no model files")
    weights = [name for name in files if is_weights(name)]
    if not weights:
        detail = f"{where} holds no weights (it holds {listed(files)})"
        if alone := state_alone(files):
            detail += f"; {alone}"
        return SourceError(Reason.NO_WEIGHTS, detail)
    usual_names = f"{WEIGHTS}, {TORCH_WEIGHTS} or index of them"
    detail = f"{where} has no {usual_names}; its weights are {listed(weights)}"
    return SourceError(Reason.NO_SAFETENSORS, f"{detail}; {what_to_do(weights)}")


# --- a file or a folder that the user names -------------------------------------------------------


def select_place(names: Collection[str], where: str, place: str) -> FileSelection:
    """Select a weight file, a folder's model, or the model to which another file belongs.

    For a shard, its complete model is selected. Raise SourceError if the place does not exist.
    """
    place = place.rstrip("/")
    if place not in names:
        return _select_folder(names, where, place)
    folder, _, last = place.rpartition("/")
    split = split_of(last)
    if last.lower().endswith(GGUF_ENDING):
        config = _config(names, folder, CONFIG)
        return FileSelection(config=config, shards=shards_of(place, names))
    if last.endswith(".index.json") and is_weights(place):
        return FileSelection(config=_config(names, folder, CONFIG), index=place)
    if is_readable(place) and (split is None or split.total == 1):
        return FileSelection(config=_config(names, folder, config_of(last)), weights=place)
    return _select_folder(names, where, folder) if folder else select(names, where)


def config_of(weights: str) -> str:
    """Return the name of the config beside a weight file."""
    return next((name for name, files in _OWN_WEIGHTS.items() if weights in files), CONFIG)


def _config(names: Collection[str], folder: str, name: str) -> str | None:
    """Return the path of the config in the folder, else in the root; None if both lack it."""
    inside = f"{folder}/{name}" if folder else name
    return next((path for path in (inside, name) if path in names), None)


def _select_folder(names: Collection[str], where: str, folder: str) -> FileSelection:
    """Select the model in a folder of the repository."""
    inside = {name for name in names if name.startswith(f"{folder}/")}
    if not inside:
        raise SourceError(Reason.NOT_FOUND, f"{where} has no file or folder {quoted(folder)}")
    parts = [part for part in components(inside, PIPELINE, None) if part.folder == folder]
    if not parts or not folder_weights({file_name(name) for name in inside}, None):
        if training := training_selection(inside, f"{quoted(folder)} of {where}"):
            return training
        raise SourceError(Reason.NO_WEIGHTS, f"{quoted(folder)} of {where} holds no weights")
    return parts[0].selection


def index_name(file: str) -> str:
    """Return the file name under which transformers or diffusers looks for the shards' index."""
    index = TORCH_INDEX if file.endswith(".bin") else INDEX
    if file_name(file).startswith("diffusion_"):
        index = f"diffusion_pytorch_model{index[index.index('.') :]}"
    return f"{folder_of(file)}{index}"
