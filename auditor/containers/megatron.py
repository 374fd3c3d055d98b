"""The reader of Megatron's checkpoints: the tracker, the ranks of a model, and torch_dist.

By megatron/training/checkpointing.py: the tracker names an iteration, whose folder has a file for
each tensor, pipeline and expert rank (mp_rank_TT, mp_rank_TT_PPP, mp_rank_TT_PPP_EEE); args in each
file has the numbers of ranks. torch_dist has common.pt, .metadata and .distcp files instead.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product

from auditor.bounded.pickle_machine import follow_pickle
from auditor.bounded.pickle_names import Call, PickledDict
from auditor.containers import torch_file
from auditor.containers.torch_archive import open_archive
from auditor.containers.weight_formats import (
    NeededFile,
    PartialFile,
    Table,
    UnsafeFileError,
)
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.names.parts import file_name, folder_of
from auditor.tensors import Span

_TRACKER, _DIST = "latest_checkpointed_iteration.txt", "metadata.json"
_LONGEST_TRACKER = 64  # bytes
_SIZES = ("tensor", "pipeline", "expert")
_MOST_RANKS = 100_000


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the files that a tracker, a rank or torch_dist needs, and the tensors of a rank.

    Raise UnsafeFileError for a rank that may run code.
    """
    if file_name(file) == _TRACKER:
        return _tracker(file, sparse)
    if file_name(file) == _DIST:
        names = ("common.pt", ".metadata")
        is_torch = b'"torch_dist"' in sparse.read(Span(0, min(sparse.size, 512)))
        needs = (NeededFile(f"{folder_of(file)}{name}") for name in names if is_torch)
        return Table(file=file, tensors=(), needs=tuple(needs))
    table = torch_file.parse(file, sparse)
    if table.imports:
        raise UnsafeFileError(f"{named(file)} is a checkpoint of Megatron", table.imports)
    return Table(
        file=file,
        tensors=table.tensors,
        size_faults=table.size_faults,
        faults=tuple(one for one in table.faults if one.names),
        needs=tuple(_ranks(file, _arguments(file, sparse))),
    )


def _tracker(file: str, sparse: PartialFile) -> Table:
    if sparse.size > _LONGEST_TRACKER:
        raise CheckpointError(f"it has {sparse.size:,} bytes, expected a number")
    text = sparse.read(Span(0, sparse.size)).decode(errors="replace").strip()
    if text != "release" and not (text.isascii() and text.isdigit()):
        raise CheckpointError(f"it has {quoted(text)}, expected a number or release")
    folder = folder_of(file)
    if text == "release":
        needed = NeededFile(f"{folder}release/")
    else:  # verl has a tracker of the same name
        needed = NeededFile(f"{folder}iter_{int(text):07d}/", 0, f"{folder}global_step_{text}/")
    return Table(file=file, tensors=(), needs=(needed,))


def _arguments(file: str, sparse: PartialFile) -> Mapping[object, object]:
    """Return the training's arguments in a rank's file; {} if it has none."""
    if not sparse.read(Span(0, 4)).startswith(b"PK"):
        return {}
    value = follow_pickle(open_archive(file, sparse).pickle(sparse)).value
    pairs = value.pairs if isinstance(value, PickledDict) else []
    for key, item in pairs:
        if key == "args" and isinstance(item, Call) and isinstance(item.state, PickledDict):
            return {key: size for key, size in item.state.pairs if isinstance(key, str)}
    return {}


def _ranks(file: str, arguments: Mapping[object, object]) -> Iterator[NeededFile]:
    """Yield the files of all ranks; none if args does not have their numbers."""
    sizes = [arguments.get(f"{kind}_model_parallel_size", 1) for kind in _SIZES]
    numbers = [size for size in sizes if type(size) is int and size > 0]
    match = re.fullmatch(r"(.*?)mp_rank_\d\d(?:_\d{3})*/([^/]+)", file, re.DOTALL)
    if len(numbers) < len(sizes) or match is None or not arguments:
        return
    tensor, pipeline, expert = numbers
    if tensor * pipeline * expert > _MOST_RANKS:
        raise CheckpointError(f"args has {tensor * pipeline * expert:,} ranks")
    for t, p, e in product(range(tensor), range(pipeline), range(expert)):
        stage = f"_{p:03d}" if pipeline > 1 else ""
        expert_rank = f"_{e:03d}" if expert > 1 else ""
        yield NeededFile(f"{match[1]}mp_rank_{t:02d}{stage}{expert_rank}/{match[2]}")
