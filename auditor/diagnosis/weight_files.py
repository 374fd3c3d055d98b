"""Stand-ins for weight files that are missing or unreadable, and the names of shards.

The name of a shard tells its place: `model-00002-of-00005.safetensors` is 2 of 5.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot, WeightHeader
from auditor.containers.index import Index
from auditor.diagnosis.case import Case
from auditor.diagnosis.changes import as_indexed, holding
from auditor.errors import CheckpointError

_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def restored(case: Case, files: Collection[str]) -> Snapshot:
    """Return the checkpoint with these files complete, as the index describes them.

    Without an index, a file gets the expected tensors that its finding lists as hidden.
    """
    if read_index(case.snapshot) is not None:
        return as_indexed(case.snapshot, files)
    dtype = dtype_of_weights(case)
    stand_ins = tuple(
        holding(name, ((one.name, one.shape) for one in case.hidden.get(name, ())), dtype)
        for name in sorted(files)
    )
    others = (head for head in case.snapshot.headers if head.name not in files)
    heads = sorted((*others, *stand_ins), key=lambda head: head.name)
    return replace(case.snapshot, headers=tuple(heads))


def dtype_of_weights(case: Case) -> str:
    """Return the dtype of the first stored tensor, else the declared dtype, else F32."""
    stored = next((tensor.dtype for tensor in case.stored if tensor.dtype), None)
    declared = case.config.get("dtype") or case.config.get("torch_dtype")
    return stored or _DTYPES.get(declared if isinstance(declared, str) else "", "F32")


def read_index(snapshot: Snapshot) -> Index | None:
    """Return the parsed index; None if there is no readable index."""
    if snapshot.index is None:
        return None
    try:
        return snapshot.index.as_index
    except CheckpointError:
        return None


_SHARD = re.compile(r"(.+?[-_])(\d{1,6})(-of-)(\d{1,6})((?:\.\w+)+)")
MOST_SHARDS = 10_000  # of one save, the limit that an index has too


class Split(NamedTuple):
    """The common part of the shard names of one save."""

    stem: str
    total: int
    ending: str
    digits: int  # in a shard's number
    of: str  # the total as written, with its zeros

    def named(self, number: int) -> str:
        return f"{self.stem}{number:0{self.digits}}-of-{self.of}{self.ending}"


class Shard(NamedTuple):
    """One shard of a save."""

    split: Split
    number: int


def split_of(file: str) -> Shard | None:
    """Parse the file name of a shard; return None if it is not one."""
    match = _SHARD.fullmatch(file)
    if match is None or not 0 < int(match[4]) <= MOST_SHARDS:
        return None
    split = Split(match[1], int(match[4]), match[5], len(match[2]), match[4])
    return Shard(split, int(match[2]))


def splits(case: Case) -> Mapping[Split, tuple[WeightHeader, ...]]:
    """Return the shards with headers, by save."""
    heads_by_split: dict[Split, list[WeightHeader]] = {}
    for head in case.snapshot.headers:
        if shard := split_of(head.name):
            heads_by_split.setdefault(shard.split, []).append(head)
    return {split: tuple(heads) for split, heads in heads_by_split.items()}
