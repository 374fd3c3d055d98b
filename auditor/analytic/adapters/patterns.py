"""Regular expressions from untrusted configs, matched in polynomial time, or not at all.

Adapters choose modules by expressions that anyone may have written, and Python's own matcher can
take forever: it tries every way to match. Here each part of the expression is evaluated once at
each position of a name, for all positions where it can end, which is enough for a full match.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

# Characters of an expression. Unsloth writes some 300; a longer one is a list of every module,
# joined by `|`.
MOST_CHARACTERS = 4096
_DEEPEST = 32  # groups within groups
_MOST_REPEATS = 1000  # the largest number in braces
# Evaluations for all names together: a second of work. Unsloth's expression takes 364,000, in
# 0.2 s, for the 880 modules of a Llama of 80 layers.
MOST_STEPS = 1_000_000

_BRACES = re.compile(r"\{(\d{0,4})(?:(,)(\d{0,4}))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]")
_GROUP = re.compile(r"\((?:\?(?:(:)|(=)|(!)|P<[A-Za-z_]\w*>))?")
_NESTED = re.compile(r"--|&&|\|\||~~|(?<!^)\[")  # nested sets, which a later Python may support


class UnsafeError(ValueError):
    """The error for an expression that is not run: unsupported syntax, or too slow."""


class _Text(Struct, frozen=True, eq=False):
    text: str


class _One(Struct, frozen=True, eq=False):
    """A single character of a class."""

    pattern: re.Pattern[str]


class _Place(Struct, frozen=True, eq=False):
    """A place between characters: the start, the end, the edge of a word."""

    pattern: re.Pattern[str]


class _All(Struct, frozen=True, eq=False):
    parts: "tuple[_Node, ...]"


class _Any(Struct, frozen=True, eq=False):
    ways: "tuple[_Node, ...]"


class _Repeat(Struct, frozen=True, eq=False):
    body: "_Node"
    least: int
    most: int | None  # None: no bound


class _Ahead(Struct, frozen=True, eq=False):
    body: "_Node"
    wanted: bool


_Node = _Text | _One | _Place | _All | _Any | _Repeat | _Ahead


class Pattern(Struct, frozen=True, eq=False):
    """An expression that is safe to run. `pattern(...)` makes one."""

    source: str
    _root: _Node

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names that match completely; raise UnsafeError if that takes too long."""
        budget = _Budget()
        return frozenset(
            name for name in names if len(name) in _Match(name, budget).ends(self._root, 0)
        )


def pattern(source: str) -> Pattern:
    """Compile an expression; raise UnsafeError if it must not be run."""
    if len(source) > MOST_CHARACTERS:
        raise UnsafeError(f"it has {len(source):,} characters; {MOST_CHARACTERS:,} are run")
    parser = _Parser(source)
    root = parser.ways(0)
    if parser.at < len(source):
        raise UnsafeError(f"a bracket is closed at character {parser.at + 1} that was not opened")
    return Pattern(source, root)


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0

    def ways(self, depth: int) -> _Node:
        """Parse the alternatives up to a closing bracket or the end."""
        if depth > _DEEPEST:
            raise UnsafeError(f"it nests more than {_DEEPEST} groups")
        alternatives = [self.sequence(depth)]
        while self.source[self.at : self.at + 1] == "|":
            self.at += 1
            alternatives.append(self.sequence(depth))
        return alternatives[0] if len(alternatives) == 1 else _Any(tuple(alternatives))

    def sequence(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self.at < len(self.source) and self.source[self.at] not in "|)":
            part = self.repeated(self.atom(depth))
            last = parts[-1] if parts else None
            if isinstance(part, _Text) and isinstance(last, _Text):
                parts[-1] = _Text(last.text + part.text)
            else:
                parts.append(part)
        return parts[0] if len(parts) == 1 else _All(tuple(parts))

    def atom(self, depth: int) -> _Node:
        character = self.source[self.at]
        if character == "(":
            return self.group(depth)
        if character == "[":
            character_class = _CLASS.match(self.source, self.at)
            if character_class is None or _NESTED.search(character_class[0]):
                raise UnsafeError(f"the class at character {self.at + 1} is not read here")
            return self.one(character_class[0])
        if character == "\\":
            return self.escaped(self.source[self.at : self.at + 2])
        if character in "*+?":
            raise UnsafeError(f"nothing stands before the {character} at character {self.at + 1}")
        if character in "^$":
            self.at += 1
            return _Place(re.compile(character))
        if character == ".":
            return self.one(character)
        self.at += 1
        return _Text(character)

    def one(self, text: str) -> _One:
        self.at += len(text)
        try:
            return _One(re.compile(text))
        except re.error as error:
            raise UnsafeError(f"{text} is not a class: {error}") from None

    def escaped(self, text: str) -> _Node:
        if text in {"\\b", "\\B"}:
            self.at += 2
            return _Place(re.compile(text))
        if text in {"\\d", "\\D", "\\w", "\\W", "\\s", "\\S"}:
            return self.one(text)
        if len(text) == 1 or text[1].isalnum():  # a back reference, a position, a character code
            raise UnsafeError(f"{text} is not read here")
        self.at += 2
        return _Text(text[1])

    def group(self, depth: int) -> _Node:
        opened = _GROUP.match(self.source, self.at)
        if opened is None or self.source[opened.end() : opened.end() + 1] == "?":
            raise UnsafeError(f"the group at character {self.at + 1} is of a kind not read here")
        self.at = opened.end()
        body = self.ways(depth + 1)
        if self.source[self.at : self.at + 1] != ")":
            raise UnsafeError(f"the group before character {self.at + 1} is not closed")
        self.at += 1
        ahead = opened[2] or opened[3]
        return _Ahead(body, wanted=opened[2] is not None) if ahead else _All((body,))

    def repeated(self, body: _Node) -> _Node:
        bounds = self.bounds()
        if bounds is None:
            return body
        if isinstance(body, _Place | _Ahead):
            raise UnsafeError(f"a place is repeated before character {self.at + 1}")
        if self.source[self.at : self.at + 1] == "?":  # lazy: the same names match
            self.at += 1
        if self.source[self.at : self.at + 1] in {"*", "+", "?"} or _BRACES.match(
            self.source, self.at
        ):
            raise UnsafeError(f"what is repeated is repeated at character {self.at + 1}")
        return _Repeat(body, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        bounds = simple.get(self.source[self.at : self.at + 1])
        if bounds is not None:
            self.at += 1
            return bounds
        braces = _BRACES.match(self.source, self.at)
        if braces is None or braces[0] in {"{}", "{,}"}:  # text, as in Python
            return None
        self.at = braces.end()
        least = int(braces[1] or 0)
        most = least if braces[2] is None else int(braces[3]) if braces[3] else None
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise UnsafeError(f"{braces[0]} is not a number of repeats that is read here")
        return least, most


class _Budget:
    def __init__(self) -> None:
        self.left = MOST_STEPS

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise UnsafeError(f"it takes more than {MOST_STEPS:,} steps on the base's module names")


class _Match:
    """The match of one name, with a cache of the positions where each node can end."""

    def __init__(self, name: str, budget: _Budget) -> None:
        self._name = name
        self._budget = budget
        self._known: dict[tuple[_Node, int], frozenset[int]] = {}

    def ends(self, node: _Node, start: int) -> frozenset[int]:
        key = (node, start)
        if key not in self._known:
            self._budget.spend()
            self._known[key] = self._ends(node, start)
        return self._known[key]

    def _ends(  # noqa: PLR0911 - one for each kind of node
        self, node: _Node, start: int
    ) -> frozenset[int]:
        match node:
            case _Text(text):
                stop = start + len(text)
                return frozenset((stop,) if self._name.startswith(text, start) else ())
            case _One(one):
                fits = start < len(self._name) and one.match(self._name, start)
                return frozenset((start + 1,) if fits else ())
            case _Place(place):
                return frozenset((start,) if place.match(self._name, start) else ())
            case _All(parts):
                places = frozenset((start,))
                for part in parts:
                    places = self._from(part, places)
                return places
            case _Any(ways):
                return frozenset().union(*(self.ends(way, start) for way in ways))
            case _Ahead(body, wanted):
                return frozenset((start,) if bool(self.ends(body, start)) is wanted else ())
            case _Repeat():
                return self._repeat(node, start)

    def _repeat(self, node: _Repeat, start: int) -> frozenset[int]:
        places = frozenset((start,))
        for _ in range(node.least):
            places = self._from(node.body, places)
        reached, times = places, node.least
        while places and (node.most is None or times < node.most):
            places = self._from(node.body, places) - reached
            reached |= places
            times += 1
        return reached

    def _from(self, node: _Node, places: frozenset[int]) -> frozenset[int]:
        self._budget.spend(len(places))
        return frozenset().union(*(self.ends(node, place) for place in places))


def suffixes(name: str) -> tuple[str, ...]:
    """Return `a.b.c`, `b.c` and `c`: the names by which a list can choose a module."""
    parts = name.split(".")
    return tuple(".".join(parts[first:]) for first in range(len(parts)))
