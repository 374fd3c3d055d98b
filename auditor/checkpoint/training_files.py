"""The selection of the files that a training left: distributed checkpoints of torch. No I/O.

One file describes all tensors, and names the files that have the numbers. Layouts: `.metadata`
beside its `.distcp` files (torch, torchtitan, torchtune), `pytorch_model_fsdp_N/` (Trainer and
accelerate, whose optimizer is in `optimizer_N/`).
"""

import re
from collections.abc import Collection, Iterator

from auditor.checkpoint.filenames import CONFIG, FileSelection
from auditor.containers.weight_formats import METADATA
from auditor.errors import Reason, SourceError
from auditor.messages import listed
from auditor.names.parts import file_name, folder_of

_OPTIMIZER = re.compile(r"(.*/)?(optim|optimizer)(_\d+)?/", re.DOTALL)
_CONFIG_FOLDERS = ("", "huggingface/")  # the second is verl's


def training_selection(names: Collection[str], where: str) -> FileSelection | None:
    """Select the only checkpoint of a training; None if there is none.

    Raise SourceError, which names them, if there are several.
    """
    mains = sorted(set(_distributed(names)))
    if not mains:
        return None
    if len(mains) > 1:
        folders = listed([folder_of(main).rstrip("/") or "." for main in mains])
        detail = f"{where} has several checkpoints of a training, {folders}; name one of them"
        raise SourceError(Reason.NO_SAFETENSORS, detail)
    return FileSelection(config=_config(names, folder_of(mains[0])), weights=mains[0])


def _distributed(names: Collection[str]) -> Iterator[str]:
    """Yield the .metadata files of models, which have .distcp files beside them."""
    folders = {folder_of(name) for name in names if name.endswith(".distcp")}
    for name in names:
        is_metadata = file_name(name) == METADATA and folder_of(name) in folders
        if is_metadata and not _OPTIMIZER.fullmatch(folder_of(name)):
            yield name


def _config(names: Collection[str], folder: str) -> str | None:
    """Return the config of the model in a folder: beside its files, or in a folder above them."""
    while True:
        for inner in _CONFIG_FOLDERS:
            if f"{folder}{inner}{CONFIG}" in names:
                return f"{folder}{inner}{CONFIG}"
        if not folder:
            return None
        folder = folder_of(folder.rstrip("/"))
