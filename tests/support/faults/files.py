"""Faults of files: cut off, pointers, lost shards, another save's index; all on disk."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace
from support.faults.fault import Fault

from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader import local_folder

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize %d\n"
)


def split(folder: Path, target: Path, files: int) -> Path:
    """The model of a folder in that many shards and an index, as save_pretrained makes them."""
    if target.exists():
        return target
    import torch  # noqa: PLC0415 - takes seconds
    from huggingface_hub import save_torch_state_dict  # noqa: PLC0415 - the same
    from safetensors.torch import load_file  # noqa: PLC0415 - the same

    state = load_file(folder / WEIGHTS)
    size = sum(one.numel() * one.element_size() for one in state.values())
    assert all(isinstance(one, torch.Tensor) for one in state.values())
    target.mkdir()
    save_torch_state_dict(state, target, max_shard_size=max(1, size // files), metadata=None)
    shutil.copy(folder / CONFIG, target)
    return target


def file_faults(name: str, place: Path) -> Iterator[Fault]:
    """Every one of them for the checkpoint of that class, which is written in the folder."""
    one = place / name
    few = split(one, place / f"{name}-few", 2)
    many = split(one, place / f"{name}-many", 4)
    for sound, plants in ((one, WHOLE), (few, SHARDED)):
        for label, cause, spoil in plants:
            folder = place / f"{name}-spoilt"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(sound, folder)
            spoil(folder, many)
            read = local_folder.read(folder, name)
            yield Fault(name=f"{name}, {label}", snapshot=read, cause=cause)
            if label in ON_THE_HUB:
                yield Fault(name=f"{name}, {label}, on the Hub", snapshot=hub(read), cause=cause)


def hub(snapshot: Snapshot) -> Snapshot:
    """The same as if it were the repository itself, which lacks what it does not have."""
    return replace(snapshot, partial=False)


Spoil = Callable[[Path, Path], object]


def cut(file: str, keep: Callable[[int], int]) -> Spoil:
    def spoil(folder: Path, _other: Path) -> None:
        path = min(folder.glob(file))
        content = path.read_bytes()
        path.write_bytes(content[: keep(len(content))])

    return spoil


def point(*files: str) -> Spoil:
    def spoil(folder: Path, _other: Path) -> None:
        for file in files:
            for path in folder.glob(file):
                path.write_bytes(POINTER % path.stat().st_size)

    return spoil


def lose(*files: str, of: slice = slice(0, 1)) -> Spoil:
    def spoil(folder: Path, _other: Path) -> None:
        for file in files:
            for path in sorted(folder.glob(file))[of]:
                path.unlink()

    return spoil


def _leave_out_first(folder: Path, other: Path) -> None:
    """Remove a shard, its names in the index and its bytes in the total, as an exporter may."""
    lose("model-*")(folder, other)
    there = {path.name for path in folder.glob("model-*.safetensors")}

    def leave_out(values: dict) -> None:
        names = values["weight_map"]
        values["weight_map"] = {name: shard for name, shard in names.items() if shard in there}
        values["metadata"].pop("total_size")

    index(leave_out)(folder, other)


def _other_index(folder: Path, other: Path) -> None:
    shutil.copy(other / INDEX, folder)


def _other_shards(folder: Path, other: Path) -> None:
    """All shards of both, under the other's index, of which one is not there."""
    for path in sorted(other.glob("*.safetensors"))[:-1]:
        shutil.copy(path, folder)
    shutil.copy(other / INDEX, folder)


def _both_without_index(folder: Path, other: Path) -> None:
    for path in other.glob("*.safetensors"):
        shutil.copy(path, folder)
    (folder / INDEX).unlink()


def index(change: Callable[[dict], object]) -> Spoil:
    def spoil(folder: Path, _other: Path) -> None:
        values = json.loads((folder / INDEX).read_text("utf-8"))
        change(values)
        (folder / INDEX).write_text(json.dumps(values), "utf-8")

    return spoil


def _more_names(values: dict) -> None:
    shard = next(iter(values["weight_map"].values()))
    values["weight_map"]["layers.99.extra.weight"] = shard


def _moved(values: dict) -> None:
    names = values["weight_map"]
    shards = sorted(set(names.values()))
    values["weight_map"] = {
        name: shards[(shards.index(shard) + 1) % len(shards)] for name, shard in names.items()
    }


def _doubled(values: dict) -> None:
    values["metadata"]["total_size"] *= 2


WHOLE: tuple[tuple[str, str, Spoil], ...] = (
    ("half of the file", "truncated", cut(WEIGHTS, lambda size: size // 2)),
    ("all but one byte", "truncated", cut(WEIGHTS, lambda size: size - 1)),
    ("cut in the header", "truncated", cut(WEIGHTS, lambda _: 400)),
    ("cut in the length", "truncated", cut(WEIGHTS, lambda _: 5)),
    ("empty file", "truncated", cut(WEIGHTS, lambda _: 0)),
    ("weights are a pointer", "pointer-file", point(WEIGHTS)),
    ("config is a pointer", "pointer-file", point(CONFIG)),
    ("both are pointers", "pointer-file", point(CONFIG, WEIGHTS)),
)
SHARDED: tuple[tuple[str, str, Spoil], ...] = (
    ("half of a shard", "truncated", cut("model-*", lambda size: size // 2)),
    ("a shard cut in its header", "truncated", cut("model-*", lambda _: 200)),
    ("an empty shard", "truncated", cut("model-*", lambda _: 0)),
    ("a shard is a pointer", "pointer-file", point("model-00001-*")),
    ("all shards are pointers", "pointer-file", point("model-*")),
    ("the index is a pointer", "pointer-file", point(INDEX)),
    ("all but the config are pointers", "pointer-file", point("model-*", INDEX)),
    ("a shard is not there", "partial-upload", lose("model-*")),
    ("no shard but one is there", "partial-upload", lose("model-*", of=slice(1, None))),
    ("only the index is there", "partial-upload", lose("model-*", of=slice(None))),
    ("the index leaves out a shard", "partial-upload", _leave_out_first),
    ("no index", "partial-upload", lose(INDEX)),
    ("neither a shard nor the index", "partial-upload", lose("model-*", INDEX)),
    ("the index of another split", "stale-index", _other_index),
    ("the index names more", "stale-index", index(_more_names)),
    ("the index has other places", "stale-index", index(_moved)),
    ("total_size of another", "stale-index", index(_doubled)),
    ("two saves, one not whole", "two-saves", _other_shards),
    ("two saves without an index", "two-saves", _both_without_index),
)
ON_THE_HUB = {
    "a shard is not there",
    "no shard but one is there",
    "only the index is there",
    "the index of another split",
}
