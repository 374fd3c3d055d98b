"""Kinds of names: those that differ in numbers alone, as of layers and their experts.

DeepSeek-V3 has 91,991 names of 43 kinds: what is asked of a name without its numbers is asked of
each kind once. Of `model.layers.3.mlp.up_proj.weight` the list of modules is `model.layers.`.
"""

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

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


_NUMBER = re.compile(rf"(?<=\.)(\d{{1,{MOST_DIGITS}}})(?=\.)")


class Member(NamedTuple):
    """A name in a list of modules."""

    before: str  # the list, with its dot
    number: int
    behind: str  # with its dot


def members(name: str) -> Iterator[Member]:
    """The lists in which a name is, the outermost first."""
    for found in _NUMBER.finditer(name):
        yield Member(name[: found.start()], int(found[0]), name[found.end() :])


def outermost(name: str) -> str:
    """The module of the outermost list that a name is in, `model.layers.3`; "" outside of any."""
    found = _NUMBER.search(name)
    return name[: found.end()] if found else ""


def numbers(kinds: Iterable[NameKind], depth: int = 0) -> dict[str, set[int]]:
    """The numbers in each list at that depth, 0 the outermost."""
    found: dict[str, set[int]] = {}
    for kind in kinds:
        at = place_in_list(kind, depth)
        if at is None:
            continue
        here: dict[Numbers, set[str]] = {}
        for one in kind.numbers:
            here.setdefault(one[:at], set()).add(one[at])
        for outer, several in here.items():
            short = {int(number) for number in several if len(number) <= MOST_DIGITS}
            found.setdefault(list_before(kind, at, outer), set()).update(short)
    return {before: several for before, several in found.items() if several}


def place_in_list(kind: NameKind, depth: int) -> int | None:
    """Which of the kind's numbers is that of the list at that depth; None: no list is so deep."""
    last = len(kind.parts) - 1
    inside = [at for at, place in enumerate(kind.places) if 0 < place < last]
    return inside[depth] if len(inside) > depth else None


def list_pattern(kind: NameKind, depth: int) -> str | None:
    """The list at that depth, with 0 for each outer number; None: no list is so deep."""
    at = place_in_list(kind, depth)
    return None if at is None else list_before(kind, at, ())


def list_before(kind: NameKind, at: int, outer: Numbers) -> str:
    """The list that holds the number, with its dot; `outer` are the numbers before that one."""
    return f"{kind.filled(outer, kind.places[at])}."


def runs(found: Iterable[int]) -> str:
    """`0-3, 8` of 0, 1, 2, 3 and 8."""
    said: list[list[int]] = []
    for number in sorted(found):
        if said and said[-1][1] == number - 1:
            said[-1][1] = number
        else:
            said.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in said)
