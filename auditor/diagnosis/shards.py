"""Shards by the split that their names say: `model-00002-of-00005.safetensors` is 2 of 5."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from auditor.checkpoint.snapshot import WeightHeader
from auditor.diagnosis.case import Case

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
