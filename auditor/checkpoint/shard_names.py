"""The numbers in shard names: `model-00002-of-00005.safetensors` is shard 2 of 5. No I/O."""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

_SHARD = re.compile(r"(.+?[-_])(\d{1,6})-of-(\d{1,6})((?:\.\w+)+)", re.ASCII)
_WITHOUT_TOTAL = re.compile(r"(.*?\D)(\d{1,6})((?:\.\w+)+)", re.ASCII)
_MOST_SHARDS = 10_000  # most shards of one save, the same limit as for an index


class Split(NamedTuple):
    """The parts that all shard names of one save have in common."""

    stem: str
    total: int
    ending: str
    digits: int  # digits in a shard's number
    of: str  # the total as written, with its zeros

    def absent(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names of the shards of this save that are not among the names."""
        files = map(self.named, range(1, self.total + 1))
        return tuple(file for file in files if file not in names)

    def named(self, number: int) -> str:
        return f"{self.stem}{number:0{self.digits}}-of-{self.of}{self.ending}"


def split_of(file: str) -> Split | None:
    """Return the Split to which the shard belongs; None if its name has no total."""
    match = _SHARD.fullmatch(file)
    if match is None or not 0 < int(match[3]) <= _MOST_SHARDS:
        return None
    return Split(match[1], int(match[3]), match[4], len(match[2]), match[3])


def gaps(files: Iterable[str]) -> tuple[str, ...]:
    """Return the missing names in a series of numbers without a total: `model-2.safetensors`.

    Return () if the names differ in more than a number. The series begins with 0 if that number
    exists, else with 1.
    """
    matches = [_WITHOUT_TOTAL.fullmatch(file) for file in files]
    places = {(match[1], match[3]) if match else None for match in matches}
    texts = [match[2] for match in matches if match]
    if len(places) != 1 or not texts or max(map(int, texts)) > _MOST_SHARDS:
        return ()
    [(stem, ending)] = {place for place in places if place}
    numbers, digits = set(map(int, texts)), min(map(len, texts))
    absent = set(range(min(1, *numbers), max(numbers))) - numbers
    return tuple(f"{stem}{number:0{digits}}{ending}" for number in sorted(absent))
