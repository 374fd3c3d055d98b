"""Lists of modules in names: `model.layers.` of `model.layers.3.mlp.up_proj.weight`, and 3."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_NUMBER = re.compile(r"(?<=\.)(\d{1,6})(?=\.)")


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


def numbers(names: Iterable[str], depth: int = 0) -> dict[str, set[int]]:
    """The numbers in each list at that depth, 0 the outermost."""
    found: dict[str, set[int]] = {}
    for name in names:
        at = _NUMBER.search(name)
        for _ in range(depth):
            at = at and _NUMBER.search(name, at.end())
        if at is not None:
            before, number = name[: at.start()], int(at[0])
            if before in found:
                found[before].add(number)
            else:
                found[before] = {number}
    return found


def runs(found: Iterable[int]) -> str:
    """`0-3, 8` of 0, 1, 2, 3 and 8."""
    said: list[list[int]] = []
    for number in sorted(found):
        if said and said[-1][1] == number - 1:
            said[-1][1] = number
        else:
            said.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in said)
