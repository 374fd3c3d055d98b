"""Kinds of names: those that differ in numbers alone, as of layers and their experts.

DeepSeek-V3 has 91,991 names of 43 kinds: what is asked of a name without its numbers is asked of
each kind once.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import cached_property
from operator import itemgetter

Numbers = tuple[str, ...]  # of any length, and never parsed unless they are short
MOST_DIGITS = 6  # of the number of a module
MOST_KINDS = 20_000  # of one model; published ones have some hundreds


class NameKind:
    """Names of one kind, in the order in which they came."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern  # a name of this kind, with 0 for every number
        self.names: list[str] = []

    @cached_property
    def parts(self) -> list[str]:
        """The parts of the pattern, between its dots."""
        return self.pattern.split(".")

    @cached_property
    def places(self) -> list[int]:
        """The indices of the parts that are numbers."""
        return [at for at, part in enumerate(self.parts) if part == "0"]

    @cached_property
    def numbers(self) -> list[Numbers]:
        """The numbers of each name, in the order of `names`."""
        match self.places:
            case []:
                return [()] * len(self.names)
            case [place]:
                return [(name.split(".")[place],) for name in self.names]
            case places:
                pick = itemgetter(*places)
                return [pick(name.split(".")) for name in self.names]

    def filled(self, numbers: Numbers, until: int | None = None) -> str:
        """The name of this kind with these numbers; of its parts only the first `until`."""
        parts = self.parts[:until]
        for place, number in zip(self.places, numbers, strict=False):
            parts[place] = number
        return ".".join(parts)


def kinds_of(names: Iterable[str]) -> tuple[NameKind, ...]:
    """The names by kind, in the order of the first name of each kind; of too many kinds some."""
    found: dict[str, NameKind] = {}
    for name in names:
        pattern = name_pattern(name)
        kind = found.get(pattern)
        if kind is None:
            if len(found) > MOST_KINDS:
                break
            kind = found[pattern] = NameKind(pattern)
        kind.names.append(name)
    return tuple(found.values())


def chosen_of(kinds: Iterable[NameKind], chosen: AbstractSet[str]) -> tuple[NameKind, ...]:
    """The chosen names by kind, out of the kinds of all."""
    found: list[NameKind] = []
    for kind in kinds:
        some = [name for name in kind.names if name in chosen]
        if len(some) == len(kind.names):
            found.append(kind)
        elif some:
            part = NameKind(kind.pattern)
            part.names = some
            found.append(part)
    return tuple(found)


def name_pattern(name: str) -> str:
    """The name with 0 for every number: the same for all names of one kind."""
    return ".".join(["0" if part.isdecimal() else part for part in name.split(".")])


def numbers_in(name: str) -> Numbers:
    """The numbers of one name."""
    return tuple(part for part in name.split(".") if part.isdecimal())
