"""The parser of a manifest, the file that lists a repository's models with folder and class."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from auditor.bounded.json_text import converted, lfs_fault, parse_object
from auditor.containers.index import shard_fault
from auditor.errors import CheckpointError
from auditor.messages import described, named, quoted

PIPELINE = "model_index.json"  # of diffusers
MODULES = "modules.json"  # of sentence-transformers
CONFIG = "config.json"
MANIFESTS = (PIPELINE, MODULES)

SENTENCE = "sentence_transformers"  # the library, as modules.json has it
# The modules that have weights; modules that pool or normalise have at most a config.
TRANSFORMERS = ("Transformer", "MLMTransformer", "CLIPModel")  # their config names the class
LEARNING = (
    *(*TRANSFORMERS, "Dense", "LayerNorm", "LSTM", "CNN", "WeightedLayerPooling"),
    *("WordEmbeddings", "StaticEmbedding", "SparseAutoEncoder"),
)
# The settings files of which a module's folder needs one, because its class requires them. Other
# modules have defaults for all settings, and most repositories have no folder 2_Normalize.
NEEDED_FILES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("Pooling", "Dense", "LayerNorm", "WeightedLayerPooling", "SparseAutoEncoder"), (CONFIG,)
    ),
    **dict.fromkeys(("BoW", "WordWeights"), (CONFIG,)),
    **dict.fromkeys(("Router", "Asym"), ("router_config.json", CONFIG)),
    "LSTM": ("lstm_config.json",),
    "CNN": ("cnn_config.json",),
    "WordEmbeddings": ("wordembedding_config.json",),
    "StaticEmbedding": ("tokenizer.json",),
}
# Settings that only a module's config.json contains, never a transformer's config.
MODULE_KEYS: Mapping[str, tuple[str, ...]] = {
    "Pooling": ("word_embedding_dimension", "pooling_mode", "pooling_mode_mean_tokens"),
    "Dense": ("in_features", "out_features"),
    "Transformer": ("max_seq_length", "do_lower_case"),
    "LayerNorm": ("dimension",),
    "WordWeights": ("unknown_word_weight",),
    "WeightedLayerPooling": ("layer_start",),
}

# The settings of a module that wraps a transformer, in its folder; the first existing file counts.
SETTINGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)

MAX_MANIFEST = 1024 * 1024  # bytes; manifests on the Hub have 200 to 1,500

# The largest pipeline known (AudioLDM 2) has eleven components, eight of them with weights.
MAX_COMPONENTS = 64


class ManifestEntry(NamedTuple):
    """A component as the manifest declares it."""

    folder: str  # "" for the repository's root
    library: str
    kind: str  # the name of the class


class Manifest(NamedTuple):
    """The contents of a manifest, not compared with the files."""

    file: str
    target: str | None  # the class of the complete model
    entries: tuple[ManifestEntry, ...]  # sorted by folder; folders are distinct


def parse_manifest(file: str, content: bytes) -> Manifest:
    """Parse a manifest; raise CheckpointError for an impossible folder."""
    parse = _modules if file == MODULES else _pipeline
    manifest = parse(file, content)
    if len(manifest.entries) > MAX_COMPONENTS:
        raise CheckpointError(
            f"{named(file)} names {len(manifest.entries):,} components, "
            f"expected at most {MAX_COMPONENTS}"
        )
    for entry in manifest.entries:
        if entry.folder and (fault := shard_fault(entry.folder)):
            raise CheckpointError(f"{named(file)}: the folder {quoted(entry.folder)} {fault}")
    return manifest


def _pipeline(file: str, content: bytes) -> Manifest:
    """Parse a model_index.json: `{"_class_name": ..., "vae": ["diffusers", "AutoencoderKL"]}`.

    [null, null] stands for a component that is left out; any other value is an option, such as
    `"requires_aesthetics": false`. The class of a custom pipeline is [module, class].
    """
    document = parse_object(content, file)
    match document.get("_class_name"):
        case (str() | None) as target:
            pass
        case [str(), str(target)]:
            pass
        case class_name:
            raise CheckpointError(
                f"{named(file)}: _class_name is {described(class_name)}, expected a string or "
                "[module, class]"
            )
    entries: list[ManifestEntry] = []
    for name, value in document.items():
        match value:
            case [str(library), str(kind)] if not name.startswith("_"):
                entries.append(ManifestEntry(name, library, kind))
            case [str() as first, second] | [first, str() as second] if not name.startswith("_"):
                raise CheckpointError(
                    f"{named(file)}: {quoted(name)} is [{described(first)}, "
                    f"{described(second)}], expected [library, class]"
                )
    return Manifest(file=file, target=target, entries=tuple(sorted(entries)))


class _Module(Struct):
    path: str
    type: str


def _modules(file: str, content: bytes) -> Manifest:
    """Parse a modules.json: `[{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]`.

    A path "" or "." is the repository's root. Modules without weights may share a folder.
    """
    if fault := lfs_fault(named(file), content):
        raise CheckpointError(fault)
    wrapped = parse_object(b'{"modules":' + content + b"}", file)
    if len(wrapped) > 1:
        raise CheckpointError(f"{named(file)} is several values, expected a list")
    modules = converted(wrapped["modules"], list[_Module], named(file))
    entries: dict[str, ManifestEntry] = {}
    for entry in sorted(map(_module_entry, modules)):
        previous = entries.get(entry.folder)
        if previous is not None and _has_weights(previous) and _has_weights(entry):
            folder = quoted(entry.folder)
            raise CheckpointError(f"{named(file)} has two modules in the folder {folder}")
        if previous is None or _has_weights(entry):
            entries[entry.folder] = entry
    ordered = tuple(sorted(entries.values()))
    return Manifest(file=file, target="SentenceTransformer", entries=ordered)


def _has_weights(entry: ManifestEntry) -> bool:
    """Return whether a module has weights, by its class."""
    return entry.library != SENTENCE or entry.kind in LEARNING


def _module_entry(module: _Module) -> ManifestEntry:
    folder = "/".join(part for part in module.path.split("/") if part not in {"", "."})
    return ManifestEntry(folder, module.type.partition(".")[0], module.type.rpartition(".")[2])
