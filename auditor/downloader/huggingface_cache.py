"""A Hub model in the Hugging Face cache of this machine: whatever other programs left there."""

import os
from itertools import product
from pathlib import Path

from auditor.checkpoint.filenames import CONFIG, Chooser
from auditor.checkpoint.selecting import (
    ADAPTER_CONFIG,
    INDEX,
    PIECES,
    TORCH_INDEX,
    TORCH_WEIGHTS,
    WEIGHTS,
    select,
)
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.manifest import MANIFESTS
from auditor.downloader import local_folder
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

# A cache fills file by file: that one of these is not there says nothing about the repository.
_INCOMPLETE = frozenset((Reason.EMPTY_REPO, Reason.NO_WEIGHTS, Reason.NO_SAFETENSORS))

# Of these a model's own folder has one at least.
_KNOWN = (
    *(WEIGHTS, INDEX, TORCH_WEIGHTS, TORCH_INDEX, CONFIG, ADAPTER_CONFIG),
    *MANIFESTS,
    *PIECES,
)


def read(model: HubModel, choose: Chooser = select) -> Snapshot:
    """The cached snapshot of a model; raises SourceError where the cache does not have it."""
    from huggingface_hub import (  # noqa: PLC0415 - 0.1 s, only where the cache is read
        constants,
        try_to_load_from_cache,
    )

    places = product(model.aliases, _KNOWN)
    paths = (try_to_load_from_cache(*place, revision=model.revision) for place in places)
    found = next((Path(path).parent for path in paths if isinstance(path, str)), None)
    if found is None:
        revision = f" at {quoted(model.revision)}" if model.revision else ""
        where = quoted(str(constants.HF_HUB_CACHE))
        raise SourceError(Reason.NOT_CACHED, f"{model.id}{revision} is not in the cache, {where}")
    try:
        return local_folder.read(found, str(found), choose)
    except SourceError as error:
        if error.reason not in _INCOMPLETE:
            raise
        detail = f"{model.id} is in the cache without its weights: {error}"
        raise SourceError(Reason.NOT_CACHED, detail) from None


def is_in_cache(folder: Path) -> bool:
    """Whether the folder is one of the cache's own, links followed."""
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    caches = {constants.HF_HUB_CACHE, os.path.join(constants.HF_HOME, "hub")}  # noqa: PTH118 - text
    place = Path(os.path.realpath(folder))
    return any(place.is_relative_to(os.path.realpath(cache)) for cache in caches)
