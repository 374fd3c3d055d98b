"""Weight files as they should be, for those that are not there or cannot be read.

Which are shards of one save their names say: `model-00002-of-00005.safetensors` is 2 of 5.
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
    """The checkpoint with these files whole: with what the index places in them.

    Without an index they have what is expected behind them.
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
    """Of the tensors that are there, or as the config declares it."""
    stored = next((tensor.dtype for tensor in case.stored if tensor.dtype), None)
    declared = case.config.get("dtype") or case.config.get("torch_dtype")
    return stored or _DTYPES.get(declared if isinstance(declared, str) else "", "F32")


def read_index(snapshot: Snapshot) -> Index | None:
    """What the index says; None: there is none that can be read."""
    if snapshot.index is None:
        return None
    try:
        return snapshot.index.as_index
    except CheckpointError:
        return None


_SHARD = re.compile(r"(.+?[-_])(\d{1,6})(-of-)(\d{1,6})((?:\.\w+)+)")
MOST_SHARDS = 10_000  # of a split, as of an index


class Split(NamedTuple):
    """What the names of the shards of one save have in common."""

    stem: str
    total: int
    ending: str
    digits: int  # of a shard's number
    of: str  # the count as it is written

    def named(self, number: int) -> str:
        return f"{self.stem}{number:0{self.digits}}-of-{self.of}{self.ending}"


class Shard(NamedTuple):
    """One of them."""

    split: Split
    number: int


def split_of(file: str) -> Shard | None:
    """Which shard a file is, by its name; None: it is no shard."""
    found = _SHARD.fullmatch(file)
    if found is None or not 0 < int(found[4]) <= MOST_SHARDS:
        return None
    split = Split(found[1], int(found[4]), found[5], len(found[2]), found[4])
    return Shard(split, int(found[2]))


def splits(case: Case) -> Mapping[Split, tuple[WeightHeader, ...]]:
    """The shards that were read, by split."""
    found: dict[Split, list[WeightHeader]] = {}
    for head in case.snapshot.headers:
        if shard := split_of(head.name):
            found.setdefault(shard.split, []).append(head)
    return {split: tuple(heads) for split, heads in found.items()}
