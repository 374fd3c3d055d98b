"""Kinds of names: a kind is the names that differ only in their numbers, of layers or experts.

DeepSeek-V3 has 91,991 names of 43 kinds, so a question that ignores numbers is answered once per
kind. The list of modules in `model.layers.3.mlp.up_proj.weight` is called `model.layers.`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, TypeVar

from auditor.names.parts import MOST_DIGITS

_Answer = TypeVar("_Answer")

Numbers = tuple[str, ...]  # the numbers in a name; only short ones are converted to int
_MANY = 64  # names of a kind that is large
_EXAMPLES = 16  # names of a large kind that are asked first
MOST_KINDS = 20_000  # the most kinds of one model; published models have a few hundred


class NameKind:
    """The names of one kind, in their original order."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern  # a name of this kind, with 0 for every number
        self.names: list[str] = []

    @cached_property
    def parts(self) -> list[str]:
        """The parts of the pattern, between its dots."""
        return self.pattern.split(".")

    @cached_property
    def places(self) -> list[int]:
        """The indices, among the dotted parts of the name, of the parts that are numbers."""
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
        """Return the name of this kind with these numbers, cut after `until` parts."""
        parts = self.parts[:until]
        for place, number in zip(self.places, numbers, strict=False):
            parts[place] = number
        return ".".join(parts)


def kinds_of(names: Iterable[str]) -> tuple[NameKind, ...]:
    """Group names by kind, in the order of each kind's first name; stop after MOST_KINDS kinds."""
    kinds: dict[str, NameKind] = {}
    for name in names:
        pattern = name_pattern(name)
        kind = kinds.get(pattern)
        if kind is None:
            if len(kinds) > MOST_KINDS:
                break
            kind = kinds[pattern] = NameKind(pattern)
        kind.names.append(name)
    return tuple(kinds.values())


def answers_by_kind(
    names: Sequence[str], ask: Callable[[Sequence[str]], Sequence[_Answer]]
) -> list[_Answer]:
    """Return the answer to each name; `ask` takes names and returns an answer to each.

    If the examples of a large kind, from its first to its last name, have one answer, it is the
    answer to all names of the kind: a file may have a hundred thousand experts, of three kinds.
    """
    examples, others = list[str](), list[str]()
    large = [kind.names for kind in kinds_of(names) if len(kind.names) > _MANY]
    for kind_names in large:
        examples += kind_names[:: len(kind_names) // _EXAMPLES]
        examples.append(kind_names[-1])
    answers = dict(zip(examples, ask(examples), strict=True))
    for kind_names in large:
        known = [answers[name] for name in kind_names if name in answers]
        if known.count(known[0]) == len(known):
            answers.update(dict.fromkeys(kind_names, known[0]))
    others += [name for name in names if name not in answers]
    answers.update(zip(others, ask(others), strict=True))
    return [answers[name] for name in names]


def chosen_of(kinds: Iterable[NameKind], chosen: AbstractSet[str]) -> tuple[NameKind, ...]:
    """Return the kinds restricted to the chosen names, without kinds that become empty."""
    restricted: list[NameKind] = []
    for kind in kinds:
        names = [name for name in kind.names if name in chosen]
        if len(names) == len(kind.names):
            restricted.append(kind)
        elif names:
            part = NameKind(kind.pattern)
            part.names = names
            restricted.append(part)
    return tuple(restricted)


def name_pattern(name: str) -> str:
    """Return the name with 0 for every number; all names of one kind have the same pattern."""
    return ".".join(["0" if part.isdecimal() else part for part in name.split(".")])


def numbers_in(name: str) -> Numbers:
    """Return the numbers in one name."""
    return tuple(part for part in name.split(".") if part.isdecimal())


_NUMBER = re.compile(rf"(?<=\.)(\d{{1,{MOST_DIGITS}}})(?=\.)")


class Member(NamedTuple):
    """A name, split at the number that it has in one list of modules."""

    before: str  # the part of the name before the number, with its dot
    number: int
    behind: str  # the part of the name after the number, with its dot


def members(name: str) -> Iterator[Member]:
    """Yield the name split at each list of modules that contains it, outermost first."""
    for match in _NUMBER.finditer(name):
        yield Member(name[: match.start()], int(match[0]), name[match.end() :])


def outermost(name: str) -> str:
    """Return the module of the outermost list, `model.layers.3`; "" if the name is in no list."""
    match = _NUMBER.search(name)
    return name[: match.end()] if match else ""


def numbers(kinds: Iterable[NameKind], depth: int = 0) -> dict[str, set[int]]:
    """Return the numbers that occur in each list at a depth (0 is the outermost), by list name."""
    numbers_by_list: dict[str, set[int]] = {}
    for kind in kinds:
        at = place_in_list(kind, depth)
        if at is None:
            continue
        digits_by_outer: dict[Numbers, set[str]] = {}
        for name_numbers in kind.numbers:
            digits_by_outer.setdefault(name_numbers[:at], set()).add(name_numbers[at])
        for outer, digits in digits_by_outer.items():
            short = {int(number) for number in digits if len(number) <= MOST_DIGITS}
            numbers_by_list.setdefault(list_before(kind, at, outer), set()).update(short)
    return {before: inside for before, inside in numbers_by_list.items() if inside}


def module_counts(kinds: Iterable[NameKind]) -> dict[str, int]:
    """Return the number of modules of each list, by its name: its highest number plus one."""
    counts: dict[str, int] = {}
    for kind in kinds:
        for at, place in enumerate(kind.places):
            for numbers in {one[: at + 1] for one in kind.numbers}:
                if len(numbers[at]) <= MOST_DIGITS:
                    before = kind.filled(numbers[:at], place)
                    counts[before] = max(counts.get(before, 0), int(numbers[at]) + 1)
    return counts


def place_in_list(kind: NameKind, depth: int) -> int | None:
    """Return the index, among a name's numbers, of the list at a depth; None without a list."""
    last = len(kind.parts) - 1
    inside = [at for at, place in enumerate(kind.places) if 0 < place < last]
    return inside[depth] if len(inside) > depth else None


def list_before(kind: NameKind, at: int, outer: Numbers) -> str:
    """Return the name of a kind's list at number `at`, with a final dot and the `outer` numbers."""
    return f"{kind.filled(outer, kind.places[at])}."


def absent_modules(
    missing: Iterable[str], stored: Iterable[str], deepest: int
) -> Mapping[str, int]:
    """Return {outermost module without any stored tensor: its number of missing tensors}.

    Return {} if a missing tensor is in no such module, or if its module is nested too deeply or is
    a numbered layer.
    """
    stored_modules = {
        ".".join(segments[:length])
        for segments in (name.split(".") for name in stored)
        for length in range(1, deepest + 1)
    }
    parts: Counter[str] = Counter()
    for name in missing:
        modules = accumulate(name.split(".")[:-1], "{}.{}".format)
        part = next((one for one in modules if one not in stored_modules), "")
        if not part or part.count(".") >= deepest or part.rpartition(".")[2].isdecimal():
            return {}
        parts[part] += 1
    return parts


def runs(values: Iterable[int]) -> str:
    """Return the numbers as text, with ranges: `0-3, 8` for 0, 1, 2, 3 and 8."""
    ranges: list[list[int]] = []
    for number in sorted(values):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def numbered(module: str, numbers: AbstractSet[int], of: int) -> str:
    """Return some modules of a list as text: `layer 3 of 12`, `layers 0-3, 8 of 12`."""
    return f"{module}{'' if len(numbers) == 1 else 's'} {runs(numbers)} of {of}"
