"""The selection of the files that a distributed training left. No I/O.

One file describes all tensors, and names the files that have the numbers. Layouts: `.metadata`
beside its `.distcp` files (torch, torchtitan, torchtune), `pytorch_model_fsdp_N/` (Trainer and
accelerate, whose optimizer is in `optimizer_N/`), `global_stepN/` of DeepSpeed, and verl's
`model_world_size_N_rank_R.pt`. `pytorch_model_fsdp.bin` is accelerate's complete state dict.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from auditor.checkpoint.filenames import CONFIG, FileSelection
from auditor.companions.companion_files import LATEST, TRAINER_STATE
from auditor.containers.rank_names import main_file
from auditor.containers.weight_formats import METADATA, PART
from auditor.errors import Reason, SourceError
from auditor.messages import listed, quoted
from auditor.names.parts import file_name, folder_of

_STATE = re.compile(r"(.*/)?(optimizer\.(pt|bin)|(optim|optimizer)(_\d+)?/\.metadata)", re.DOTALL)
_OPTIMIZER = re.compile(r"(.*/)?(optim|optimizer)(_\d+)?/", re.DOTALL)
_OF_MEGATRON = ("common.pt", "metadata.json")  # beside the .metadata of torch_dist
_OF_FSDP = re.compile(r"(^|/)pytorch_model_fsdp_\d+/")
_STEP = re.compile(r"(.*/|)global_step(\d{1,12})/", re.DOTALL)
_FULL = re.compile(r"pytorch_model_fsdp(_\d+)?\.bin")
# Files of ranks whose tensors are not put together here -> what they are, and what to do.
_UNJOINED = {
    r"shard-\d{5}-[\w-]+-of-\d{5}\.safetensors": (
        "shards of HuggingFaceStorageWriter; join them with consolidate_safetensors_files_on_every_"
        "rank of torch.distributed.checkpoint, which unpickles nothing, and audit what that writes"
    ),
    r"pytorch_model_fsdp(_\d+)?_rank\d+\.bin": (
        "FSDP's files of ranks (LOCAL_STATE_DICT), in which each flat_param is a part of many "
        "tensors; load them in the training program, and save with FULL_STATE_DICT"
    ),
}
_CONFIG_FOLDERS = ("", "huggingface/")  # the second is verl's


def training_selection(names: Collection[str], where: str) -> FileSelection | None:
    """Return the selection of the only checkpoint of a training, or None without one.

    Raise SourceError, which names them, if there are several.
    """
    mains = sorted({*_distributed(names), *_of_ranks(names)})
    if not mains:
        for pattern, advice in _UNJOINED.items():
            if any(re.fullmatch(pattern, file_name(name)) for name in names):
                raise SourceError(Reason.NO_SAFETENSORS, f"{where} has {advice}")
        return None
    if len(mains) > 1:
        folders = listed([folder_of(main).rstrip("/") or "." for main in mains])
        detail = f"{where} has several checkpoints of a training, {folders}; name one of them"
        raise SourceError(Reason.NO_SAFETENSORS, detail)
    return FileSelection(config=_config(names, folder_of(mains[0])), weights=mains[0])


def training_texts(names: Collection[str], weights: str | None) -> tuple[str, ...]:
    """Return the files that name the step of a checkpoint: Trainer's, DeepSpeed's."""
    texts = [TRAINER_STATE]
    if weights and main_file([weights]):
        texts.append(f"{folder_of(folder_of(weights).rstrip('/'))}{LATEST}")
    return tuple(text for text in texts if text in names)


def state_alone(names: Iterable[str]) -> str:
    """Return a clause about the state of an optimizer without a model; "" without such a state."""
    state = next((name for name in sorted(names) if _STATE.fullmatch(name)), None)
    if state is None:
        return ""
    return (
        f"{quoted(state)} is the state of a training alone, from which no model can be loaded: "
        "look for the weights that were saved with it"
    )


def _distributed(names: Collection[str]) -> Iterator[str]:
    """Yield the .metadata files of models, or a .distcp file of a folder without .metadata."""
    folders = {folder_of(name) for name in names if name.endswith(PART)}
    mains: dict[str, str] = {}
    for name in sorted(names):
        folder = folder_of(name)
        is_ours = folder in folders or _OF_FSDP.search(folder)
        is_megatron = any(f"{folder}{one}" in names for one in _OF_MEGATRON)
        if is_megatron or not is_ours or _OPTIMIZER.fullmatch(folder):
            continue
        if file_name(name) == METADATA or (name.endswith(PART) and folder not in mains):
            mains[folder] = name
    yield from mains.values()


def _of_ranks(names: Collection[str]) -> Iterator[str]:
    """Yield the files that describe a model whose ranks have files of their own.

    Of several steps of DeepSpeed the last one is taken.
    """
    by_folder: dict[str, list[str]] = {}
    for name in names:
        by_folder.setdefault(folder_of(name), []).append(name)
        if _FULL.fullmatch(file_name(name)):
            yield name
    steps: dict[str, tuple[int, str]] = {}
    for folder, inside in by_folder.items():
        if main := main_file(inside):
            step = _STEP.fullmatch(folder)
            above, number = (step[1], int(step[2])) if step else (folder, 0)
            steps[above] = max(steps.get(above, (0, "")), (number, main))
    yield from (main for _, main in steps.values())


def _config(names: Collection[str], folder: str) -> str | None:
    """Return the config of the model in a folder: beside its files, or in a folder above them."""
    while True:
        for inner in _CONFIG_FOLDERS:
            if f"{folder}{inner}{CONFIG}" in names:
                return f"{folder}{inner}{CONFIG}"
        if not folder:
            return None
        folder = folder_of(folder.rstrip("/"))
