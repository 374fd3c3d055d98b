"""What is audited where the user names a file or a folder of a repository. Pure."""

import re
from collections.abc import Collection

from msgspec.structs import replace

from auditor.checkpoint.gguf_sets import ENDING, shards_of
from auditor.checkpoint.model_folders import components, found_in
from auditor.checkpoint.selecting import ADAPTER_CONFIG, ADAPTERS, is_readable, is_weights, select
from auditor.checkpoint.selection import CONFIG, FileSelection
from auditor.containers.manifest import PIPELINE
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

_SHARD = re.compile(r"-\d+-of-0*(?P<of>\d+)\.\w+$", re.ASCII)
_INDEX = ".index.json"


def select_place(names: Collection[str], where: str, place: str) -> FileSelection:
    """The weight file or the folder that is named; of any other file the model that it is of.

    Of a shard it is the model that it is a part of. Raises SourceError where nothing is there.
    """
    place = place.rstrip("/")
    if place not in names:
        return _folder(names, where, place)
    folder, _, last = place.rpartition("/")
    shard = _SHARD.search(last)
    if last.lower().endswith(ENDING):
        config = _config(names, folder, CONFIG)
        return FileSelection(config=config, shards=shards_of(place, names))
    if last.endswith(_INDEX) and is_weights(place):
        return FileSelection(config=_config(names, folder, CONFIG), index=place)
    if is_readable(place) and not (shard and shard["of"] != "1"):
        config = _config(names, folder, ADAPTER_CONFIG if last in ADAPTERS else CONFIG)
        return FileSelection(config=config, weights=place)
    return _folder(names, where, folder) if folder else select(names, where)


def _config(names: Collection[str], folder: str, name: str) -> str | None:
    """The config beside a file; else that of the repository."""
    beside = f"{folder}/{name}" if folder else name
    return next((one for one in (beside, name) if one in names), None)


def _folder(names: Collection[str], where: str, folder: str) -> FileSelection:
    """The model in a folder of the repository."""
    inside = {name for name in names if name.startswith(f"{folder}/")}
    if not inside:
        raise SourceError(Reason.NOT_FOUND, f"{where} has no file or folder {quoted(folder)}")
    parts = [part for part in components(inside, PIPELINE, None) if part.folder == folder]
    if not parts or not found_in({name.rpartition("/")[2] for name in inside}, None):
        raise SourceError(Reason.NO_WEIGHTS, f"{quoted(folder)} of {where} holds no weights")
    return replace(parts[0].selection)
