"""Lists of modules in names: `model.layers.` of `model.layers.3.mlp.up_proj.weight`, and 3."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from auditor.diagnosis.name_kinds import MOST_DIGITS, NameKind, Numbers

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
