"""Matching of module names with the patterns of a config, in linear time.

Python's `re` takes exponential time for some patterns, and patterns come from untrusted configs.
Here a pattern becomes an automaton that reads a name once, one part between dots at a time; the
effect of each part is cached, so 45,000 names of a few hundred different parts take 0.1 s.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from auditor.layouts._expressions import (
    Alternation,
    Chars,
    Node,
    Repetition,
    Sequence,
    UnreadError,
    parse_expression,
)

_BUDGET = 2_000_000  # states times characters: about a second; a real config takes a hundredth
_NODES = 20_000  # of all patterns together; 300 long names have 15,000
_REPEATS = 64  # copies of what a counted quantifier repeats
_PLAIN = re.compile(r"[\w.-]+")  # a key that is a name, in which a dot means a dot
_DEEP = 100  # levels of modules that are compared; each takes time by the name's length
_ANY = Repetition(Chars((("\0", "\U0010ffff"),)), 0, None)


def match_tree(expression: str) -> Node | None:
    """Return a tree that accepts what `re.match` accepts: names that begin with the expression.

    Return None if the expression uses syntax that is not read here.
    """
    try:
        node, at_end = parse_expression(expression)
    except UnreadError:
        return None
    return node if at_end else Sequence((node, _ANY))


def search_tree(expression: str) -> Node | None:
    """Return a tree that accepts what `re.search` accepts: names that contain the expression.

    Return None if the expression uses syntax that is not read here.
    """
    node = match_tree(expression)
    return node if node is None or expression.startswith("^") else Sequence((_ANY, node))


def names_in_skip_lists(keys: Iterable[str], names: Iterable[str]) -> frozenset[str] | None:
    """Return the names that transformers' skip lists (modules_to_not_convert) cover.

    A key is an expression for the start of a name up to a dot or its end, or literally its end.
    Return None if this cannot be decided.
    """
    names, keys = tuple(names), frozenset(keys)
    plain = frozenset(filter(_PLAIN.fullmatch, keys))
    lengths = sorted(set(map(len, plain)))
    literal = {name for name in names if at_or_below(name, plain) or _ends(name, plain, lengths)}
    more = matching_names(map(_skips, sorted(keys - plain)), names)
    return None if more is None else more | literal


def names_matching_globs(
    patterns: Iterable[str], names: Iterable[str], *, below: bool = False
) -> frozenset[str] | None:
    """Return the names that globs such as `model.layers.0*` match; None if undecided.

    `below` adds the names below a match: `lm_head.x` for `lm_head`.
    """
    names, patterns = tuple(names), frozenset(patterns)
    plain = frozenset(one for one in patterns if "*" not in one and "?" not in one)
    literal = {name for name in names if name in plain or (below and at_or_below(name, plain))}
    ends = ("", ".*") if below else ("",)
    nodes = (_glob(one + end) for one in sorted(patterns - plain) for end in ends)
    more = matching_names(nodes, names)
    return None if more is None else more | literal


def at_or_below(name: str, modules: frozenset[str]) -> bool:
    """Whether the name or a module above it is literally among the modules.

    Loaders also match skip lists in other ways, which differ by version; all of them match this.
    """
    if name.count(".") > _DEEP:
        name = ".".join(name.split(".", _DEEP)[:_DEEP])
    while name:
        if name in modules:
            return True
        name = name.rpartition(".")[0]
    return False


def _ends(name: str, plain: frozenset[str], lengths: list[int]) -> bool:
    """Whether the name ends with a plain key; the time depends on the number of lengths only."""
    for length in lengths:
        if length > len(name):
            return False
        if name[-length:] in plain:
            return True
    return False


def matching_names(nodes: Iterable[Node | None], names: Iterable[str]) -> frozenset[str] | None:
    """Return the names that one of the patterns matches; None if matching takes too long."""
    nodes = tuple(nodes)
    if not nodes:
        return frozenset()
    if None in nodes:
        return None
    automaton = _Automaton()
    try:
        automaton.add(Alternation(tuple(node for node in nodes if node is not None)))
        return frozenset(filter(automaton.accepts, names))
    except _TooMuchError:
        return None


def _literal(text: str) -> Node:
    return Sequence(tuple(Chars(((char, char),)) for char in text))


def _glob(text: str) -> Node:
    wild: dict[str, Node] = {"*": _ANY, "?": Chars((("\0", "\U0010ffff"),))}
    return Sequence(tuple(wild.get(char) or Chars(((char, char),)) for char in text))


def _skips(key: str) -> Node | None:
    try:
        node, at_end = parse_expression(key)
    except UnreadError:
        return None
    dot = Chars(((".", "."),))
    below = Repetition(Sequence((dot, _ANY)), 0, 1)
    whole = node if at_end else Sequence((node, below))
    return Alternation((whole, Sequence((_ANY, _literal(key)))))


class _TooMuchError(Exception):
    """The patterns are too many, or too hard."""


# --- matching ---------------------------------------------------------------------------------


class _State(Struct, eq=False):
    """The places that a name may have reached, and the states after its next part."""

    places: frozenset[int]
    after: dict[str, "_State"] = field(default_factory=dict)


class _Automaton:
    """Thompson's construction: places, each with a character or with jumps to other places."""

    def __init__(self) -> None:
        self._chars: list[Chars | None] = []
        self._jumps: list[list[int]] = []
        self._left = _BUDGET
        self._states: dict[frozenset[int], _State] = {}
        self._end = self._place()

    def add(self, node: Node) -> None:
        self._start = self._state({self._build(node, self._end)})

    def accepts(self, name: str) -> bool:
        state = self._start
        for part in _parts(name):
            after = state.after.get(part)
            if after is None:
                after = state.after[part] = self._read(state, part)
            state = after
        return self._end in state.places

    def _place(self, chars: Chars | None = None, *jumps: int) -> int:
        if len(self._chars) >= _NODES:
            raise _TooMuchError
        self._chars.append(chars)
        self._jumps.append(list(jumps))
        return len(self._chars) - 1

    def _build(self, node: Node, then: int) -> int:
        """The place from which the node leads to `then`."""
        match node:
            case Chars():
                return self._place(node, then)
            case Sequence(items):
                for item in reversed(items):
                    then = self._build(item, then)
                return then
            case Alternation(items):
                return self._place(None, *(self._build(item, then) for item in items))
            case Repetition(item, least, most):
                return self._repeated(item, least, most, then)

    def _repeated(self, item: Node, least: int, most: int | None, then: int) -> int:
        if max(least, most or 0) > _REPEATS:
            raise _TooMuchError
        if most is None:
            loop = self._place(None, then)
            self._jumps[loop].append(self._build(item, loop))
            then = loop
        else:
            end = then
            for _ in range(most - least):
                then = self._place(None, end, self._build(item, then))
        for _ in range(least):
            then = self._build(item, then)
        return then

    def _state(self, places: Iterable[int]) -> _State:
        seen, waiting = set(places), list(places)
        while waiting:
            place = waiting.pop()
            if self._chars[place] is None:
                new = [jump for jump in self._jumps[place] if jump not in seen]
                seen.update(new)
                waiting.extend(new)
        reached = frozenset(seen)
        return self._states.setdefault(reached, _State(reached))

    def _read(self, state: _State, part: str) -> _State:
        for char in part:
            self._left -= len(state.places) + 1
            if self._left < 0:
                raise _TooMuchError
            state = self._state(set(self._steps(state.places, char)))
        return state

    def _steps(self, places: Iterable[int], char: str) -> Iterator[int]:
        for place in places:
            chars = self._chars[place]
            if chars is not None and chars.accepts(char):
                yield from self._jumps[place]


def _parts(name: str) -> list[str]:
    """`a.b.c` as a, .b and .c."""
    first, *rest = name.split(".")
    return [first, *(f".{part}" for part in rest)]
