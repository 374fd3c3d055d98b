"""Which files of a listing are audited, and which weight files stand beside. Pure."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from auditor.containers.words import quoted
from auditor.downloader.gguf_sets import tagged, the_one
from auditor.downloader.snapshot import Snapshot
from auditor.downloader.words import listed
from auditor.errors import Reason, SourceError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TORCH_WEIGHTS = "pytorch_model.bin"
TORCH_INDEX = "pytorch_model.bin.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")  # the first is loaded

_TORCH_SHARD = re.compile(r"pytorch_model-\d{5}-of-\d{5}\.bin", re.ASCII)

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
)
# What a trainer writes beside the model under the same endings.
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "tokenizer")
_PAPERWORK = ("readme", "license", "licence", "notice", "use_policy")
_LONGEST_NAME = 4096  # characters; PATH_MAX of Linux


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The files of one listing that an audit reads; never both `weights` and `index`."""

    config: str | None
    weights: str | None = None  # the one weight file
    index: str | None = None
    shards: tuple[str, ...] = ()  # of one model, named by no index, sorted: GGUF files
    twins: tuple[str, ...] = ()  # files that hold the same weights in another format, sorted


Chooser = Callable[[Collection[str], str], Selection]  # of the names, and where they are


def select(names: Collection[str], where: str) -> Selection:
    """What `from_pretrained` would load: safetensors, else torch files; alone, else by an index.

    Where there are none of these, the adapter, else the GGUF model, if there is one. Raises
    SourceError where there is no such file, naming what is there instead, or where there are
    several GGUF models.
    """
    config = CONFIG if CONFIG in names else None
    for weights, index in ((WEIGHTS, INDEX), (TORCH_WEIGHTS, TORCH_INDEX)):
        if weights in names:
            return Selection(config=config, weights=weights)
        if index in names:
            return Selection(config=config, index=index)
    adapter = next((weights for weights in ADAPTERS if weights in names), None)
    if adapter and ADAPTER_CONFIG in names:
        return Selection(config=ADAPTER_CONFIG, weights=adapter)
    shards = the_one(names, where)
    if shards:
        return Selection(config=config, shards=shards)
    raise _nothing(names, where)


def select_tagged(names: Collection[str], where: str, tag: str) -> Selection:
    """The GGUF model that a tag means, whatever other weights there are."""
    config = CONFIG if CONFIG in names else None
    return Selection(config=config, shards=tagged(names, where, tag))


def with_twins(names: Collection[str], where: str, choose: Chooser = select) -> Selection:
    """What `choose` chooses; and where that is safetensors, the torch files that stand beside."""
    selection = choose(names, where)
    if selection.weights == WEIGHTS or selection.index == INDEX:
        return replace(selection, twins=twins(names))
    return selection


def twins(names: Iterable[str]) -> tuple[str, ...]:
    """The torch files among names that hold a whole model: the one, or else all its shards."""
    found = set(names)
    if TORCH_WEIGHTS in found:
        return (TORCH_WEIGHTS,)
    return tuple(sorted(name for name in found if _TORCH_SHARD.fullmatch(name)))


def config_alone(names: Collection[str], where: str) -> Selection:
    """The config, whatever weights there are, if any; of a repository without one an adapter's."""
    for config in (CONFIG, ADAPTER_CONFIG):
        if config in names:
            return Selection(config=config)
    raise SourceError(Reason.NO_CONFIG, f"{where} has no {CONFIG}")


def is_weights(name: str) -> bool:
    """Whether a file holds (or indexes) weights, judged by its name alone."""
    last = PurePosixPath(name).name.lower()
    return last.endswith(_WEIGHT_ENDINGS) and not last.startswith(_NOT_WEIGHTS)


def beside(snapshot: Snapshot) -> tuple[str, ...]:
    """The weight files of the repository that are no part of the audited set, sorted."""
    if snapshot.index is None and not snapshot.heads:
        return ()  # a bare config: no set to stand beside
    audited = {head.name for head in snapshot.heads} | set(snapshot.unopened)
    audited |= {head.name for head in snapshot.twins}  # what is said of these is said elsewhere
    if snapshot.index is not None:
        audited.add(snapshot.index.name)
    names = (file.name for file in snapshot.files)
    return tuple(sorted(name for name in names if is_weights(name) and name not in audited))


def name_fault(name: str) -> str | None:
    """Why a name cannot be a file of a repository; the rule for listings from elsewhere."""
    if not name or len(name) > _LONGEST_NAME or "\0" in name:
        return f"{quoted(name)} is not a file's name"
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return f"{quoted(name)} leaves the repository"
    return None


def _nothing(names: Iterable[str], where: str) -> SourceError:
    files = sorted(name for name in names if not _is_paperwork(name))
    if not files:
        return SourceError(Reason.EMPTY_REPO, f"{where} is empty: it holds no model files")
    weights = [name for name in files if is_weights(name)]
    if not weights:
        detail = f"{where} holds no weights (it holds {listed(files)})"
        return SourceError(Reason.NO_WEIGHTS, detail)
    known = f"{WEIGHTS}, {TORCH_WEIGHTS} and their indexes"
    detail = f"{where} has none of {known}; its weights are {listed(weights)}"
    return SourceError(Reason.NO_SAFETENSORS, detail)


def _is_paperwork(name: str) -> bool:
    last = PurePosixPath(name).name.lower()
    return last.startswith((".git", *_PAPERWORK))
