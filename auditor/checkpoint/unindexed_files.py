"""The selection of weight files to read if shards that an index names are missing. No I/O.

A model that was pushed again in more shards, without a new index, cannot be loaded, although its
weights exist. They are read if their names show that they belong to the model: never a
variant, an adapter, an optimizer, or a copy of the weights in another form.
"""

from collections.abc import Collection, Iterable, Sequence

from auditor.checkpoint.filenames import torch_model_files, variant_of
from auditor.checkpoint.selecting import is_readable
from auditor.checkpoint.shard_names import Split, split_of
from auditor.names.parts import file_name, folder_of

_SAFETENSORS = ".safetensors"
_TORCH = (".bin", ".pt", ".pth", ".ckpt")
# Names of files in a model's folder that do not belong to it.
_OTHERS = ("adapter_", "consolidated.", "ema.", "ema_")


def files_not_in_index(
    index: str, shards: Collection[str], names: Collection[str]
) -> tuple[str, ...]:
    """Return the weight files to read that the index does not name; () if its shards are complete.

    The shards of another split come first: `model-00001-of-00003` instead of `-of-00002`. If the
    folder has no shard of the index, these are the files of the only other model in the folder.
    """
    if not set(shards).difference(names):
        return ()
    folder = folder_of(index)
    below = (name.removeprefix(folder) for name in names if name.startswith(folder))
    inside = sorted(name for name in below if "/" not in name)
    indexed = {shard.removeprefix(folder) for shard in shards}
    candidates = [name for name in inside if name not in indexed and _may_belong(name, index)]
    shards_there = _complete_split(candidates, _stems(index, indexed))
    if not shards_there and not set(shards).intersection(names):
        shards_there = _only_model(index, inside, candidates)
    return tuple(sorted(f"{folder}{name}" for name in shards_there))


def named_as_model(index: str, shards: Iterable[str], name: str) -> bool:
    """Return whether an unindexed file's name shows that it belongs to the index's model.

    Such a file is a shard of another split, or torch's file under its usual name.
    """
    folder = folder_of(index)
    last = name.removeprefix(folder)
    stems = _stems(index, (shard.removeprefix(folder) for shard in shards))
    split = split_of(last)
    return (split is not None and split.stem in stems) or last in torch_model_files([last])


def _may_belong(name: str, index: str) -> bool:
    """Return whether a file may contain weights of the index's model, in the index's variant."""
    variant = variant_of(index)
    return (
        is_readable(name)
        and not name.lower().startswith(_OTHERS)
        and not name.lower().endswith(".gguf")  # other tensor names, and its own config
        and (variant_of(name) == variant or variant in name.split("."))
    )


def _stems(index: str, shards: Iterable[str]) -> frozenset[str]:
    """Return the stems with which the names of the index's shards begin, such as `model-`."""
    last = file_name(index).partition(".")[0]
    splits = filter(None, map(split_of, shards))
    return frozenset((f"{last}-", f"{last}_", *(split.stem for split in splits)))


def _complete_split(names: Iterable[str], stems: frozenset[str] | None = None) -> Sequence[str]:
    """Return the shards of one model: the complete split, else the split with the most shards.

    Only names that begin with one of `stems` count; all names if it is None.
    """
    splits: dict[Split, list[str]] = {}
    for name in names:
        split = split_of(name)
        if split and (stems is None or split.stem in stems):
            splits.setdefault(split._replace(digits=0), []).append(name)
    by_completeness = sorted(
        splits, key=lambda split: (len(splits[split]) < split.total, -len(splits[split]), split)
    )
    return splits[by_completeness[0]] if splits else ()


def _only_model(index: str, names: Iterable[str], candidates: Sequence[str]) -> Sequence[str]:
    """Return the files of the folder's only model, preferably in the index's format; else ()."""
    safe: Sequence[str] = [name for name in candidates if name.endswith(_SAFETENSORS)]
    torch: Sequence[str] = [name for name in candidates if name.lower().endswith(_TORCH)]
    usual = [name for name in torch_model_files(names) if name in torch]
    safe = _complete_split(safe) or (safe if len(safe) == 1 else ())
    torch = usual or _complete_split(torch) or (torch if len(torch) == 1 else ())
    return safe or torch if ".safetensors." in index else torch or safe
