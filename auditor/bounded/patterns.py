"""A matcher for regular expressions from untrusted configs, which takes linear time.

Python's `re` tries every way to match, which can take forever. Here an expression becomes an
automaton that reads each name once, from its end to its start, so that a lookahead is known before
it is needed. The effect of a name's part between dots is cached: 45,000 names of a few hundred
different parts take 0.1 s. Unsupported syntax (back references, flags, longer lookbehind,
possessive quantifiers) is refused, never guessed.
"""

import re
from collections.abc import Iterable

from msgspec import Struct, field

# Characters of an expression. Unsloth writes some 300; a longer one is a list of every module,
# joined by `|`.
MOST_CHARACTERS = 4096
# Automaton places times name characters: a second of work. A real config takes a hundredth.
MOST_STEPS = 2_000_000
_MOST_PLACES = 20_000  # places of all expressions together; 300 long names have 15,000
_MOST_REPEATS = 1000  # the largest number in braces
_DEEPEST = 32  # groups within groups

_BRACES = re.compile(r"\{(\d{0,4})(?:(,)(\d{0,4}))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]")
_GROUP = re.compile(r"\((?:\?(?:(:)|(=)|(!)|P<[A-Za-z_]\w*>))?")
# An edge between characters: the start, the end, the edge of a word, a lookbehind of one character.
_EDGE = re.compile(r"[$^]|\\[bB]|\(\?<[=!](?:\\[dDwWsS\W]|[^\\()\[\]*+?{}^$|])\)")
_NESTED = re.compile(r"--|&&|\|\||~~|(?<!^)\[")  # nested sets, which a later Python may support
_PART = re.compile(r"[^.]*\.|[^.]+")
_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_REST = r"[\s\S]*"


class PatternNotFollowedError(ValueError):
    """The error for an expression that has unsupported syntax or takes too many steps."""


def names_matching(expressions: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Return the names for which `re.fullmatch` succeeds with one of the expressions.

    Raise PatternNotFollowedError if this cannot be decided.
    """
    trees = tuple(map(_parse, expressions))
    if not trees:
        return frozenset()
    automaton = _Automaton(_Either(trees))
    return frozenset(filter(automaton.accepts, names))


def names_beginning(expressions: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Return the names for which `re.match` succeeds; see `names_matching`."""
    return names_matching([f"(?:{_checked(one)}){_REST}" for one in expressions], names)


def names_containing(expressions: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Return the names for which `re.search` succeeds; see `names_matching`."""
    return names_matching([f"{_REST}(?:{_checked(one)}){_REST}" for one in expressions], names)


def glob_expression(glob: str) -> str:
    """Return a glob as a regular expression; in a glob, `*` is any text and `?` any character."""
    return re.escape(glob).replace(r"\*", _REST).replace(r"\?", r"[\s\S]")


def check_pattern(expression: str) -> None:
    """Raise PatternNotFollowedError if the expression has unsupported syntax."""
    _parse(expression)


def _checked(expression: str) -> str:
    check_pattern(expression)
    return expression


# --- syntax ---------------------------------------------------------------------------------------


class _One(Struct, frozen=True, eq=False):
    """A node for a single character, with the expression that the character has to match."""

    pattern: re.Pattern[str]


class _Edge(Struct, frozen=True, eq=False):
    r"""A condition on the characters around a position: `^`, `$`, `\b`, `(?<=x)`."""

    pattern: re.Pattern[str]


class _All(Struct, frozen=True, eq=False):
    """A sequence of nodes, matched one after the other."""

    nodes: "tuple[_Node, ...]"


class _Either(Struct, frozen=True, eq=False):
    """A choice between several nodes."""

    nodes: "tuple[_Node, ...]"


class _Repeat(Struct, frozen=True, eq=False):
    """A repeated node; `most` is None if there is no upper bound."""

    body: "_Node"
    least: int
    most: int | None


class _Ahead(Struct, frozen=True, eq=False):
    """A lookahead: a condition on the following text, which it does not consume."""

    body: "_Node"
    wanted: bool


_Node = _One | _Edge | _All | _Either | _Repeat | _Ahead


def _parse(expression: str) -> _Node:
    if len(expression) > MOST_CHARACTERS:
        raise PatternNotFollowedError(
            f"it has {len(expression):,} characters, expected at most {MOST_CHARACTERS:,}"
        )
    parser = _Parser(expression)
    node = parser.alternatives(0)
    if parser.at < len(expression):
        raise PatternNotFollowedError(f"character {parser.at + 1} closes a group that is not open")
    return node


class _Parser:
    """A recursive-descent parser of one expression."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0

    def next(self) -> str:
        return self.source[self.at : self.at + 1]

    def alternatives(self, depth: int) -> _Node:
        """Parse the alternatives up to a closing parenthesis or the end."""
        if depth > _DEEPEST:
            raise PatternNotFollowedError(f"it nests more than {_DEEPEST} groups")
        nodes = [self.sequence(depth)]
        while self.next() == "|":
            self.at += 1
            nodes.append(self.sequence(depth))
        return nodes[0] if len(nodes) == 1 else _Either(tuple(nodes))

    def sequence(self, depth: int) -> _Node:
        nodes: list[_Node] = []
        while self.next() not in {"", "|", ")"}:
            nodes.append(self.repeated(self.atom(depth)))
        return _All(tuple(nodes))

    def atom(self, depth: int) -> _Node:
        character, where = self.next(), f"at character {self.at + 1}"
        if character in _QUANTIFIERS:
            raise PatternNotFollowedError(f"nothing precedes the {character} {where}")
        if edge := _EDGE.match(self.source, self.at):
            self.at = edge.end()
            return _Edge(re.compile(edge[0]))
        if character == "(":
            return self.group(depth)
        if character == "[":
            class_ = _CLASS.match(self.source, self.at)
            if class_ is None or _NESTED.search(class_[0]):
                raise PatternNotFollowedError(f"the class {where} is not supported")
            return self.single(class_[0])
        if character == "\\":
            return self.escaped(self.source[self.at : self.at + 2])
        self.at += 1
        return _One(re.compile(character if character == "." else re.escape(character)))

    def single(self, text: str) -> _One:
        self.at += len(text)
        try:
            return _One(re.compile(text))
        except re.error as error:
            raise PatternNotFollowedError(f"{text} is not a class: {error}") from None

    def escaped(self, text: str) -> _Node:
        is_class = text in {"\\d", "\\D", "\\w", "\\W", "\\s", "\\S"}
        if len(text) == 1 or (text[1].isalnum() and not is_class):
            raise PatternNotFollowedError(f"{text} is not supported")
        return self.single(text)

    def group(self, depth: int) -> _Node:
        opened, where = _GROUP.match(self.source, self.at), self.at + 1
        if opened is None or self.source[opened.end() : opened.end() + 1] == "?":
            raise PatternNotFollowedError(f"the group at character {where} is not supported")
        self.at = opened.end()
        body = self.alternatives(depth + 1)
        if self.next() != ")":
            raise PatternNotFollowedError(f"the group at character {where} is not closed")
        self.at += 1
        is_ahead = opened[2] or opened[3]
        return _Ahead(body, wanted=opened[2] is not None) if is_ahead else _All((body,))

    def repeated(self, body: _Node) -> _Node:
        bounds = self.bounds()
        if bounds is None:
            return body
        if isinstance(body, _Edge | _Ahead):
            raise PatternNotFollowedError(f"character {self.at} repeats a place")
        self.at += self.next() == "?"  # a lazy quantifier matches the same names
        if self.next() in _QUANTIFIERS or _BRACES.match(self.source, self.at):
            raise PatternNotFollowedError(f"character {self.at + 1} repeats a repeat")
        return _Repeat(body, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        bounds = _QUANTIFIERS.get(self.next())
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
            raise PatternNotFollowedError(f"{braces[0]} is not a supported number of repeats")
        return least, most


# --- matching -------------------------------------------------------------------------------------


class _State(Struct, eq=False):
    """The places (nodes) from which the rest of a name matches, and a cache of earlier states."""

    places: frozenset[int]
    before: dict[tuple[str, bool], "_State"] = field(default_factory=dict)


class _Lookahead(Struct, frozen=True, eq=False):
    """A lookahead's place, the start of its body, and the place after the lookahead."""

    place: int
    start: int
    wanted: bool
    then: int


class _Automaton:
    """Thompson's automaton, run backwards: for each place (node), the places before it."""

    def __init__(self, root: _Node) -> None:
        self._readers: list[list[tuple[int, _One]]] = []
        self._jumps: list[list[tuple[int, _Edge | None]]] = []
        self._closed: set[int] = set()  # places of lookaheads: no jump until the body is known
        self._lookaheads: list[_Lookahead] = []  # inner ones first
        self._left = MOST_STEPS
        self._states: dict[frozenset[int], _State] = {}
        self._known: dict[tuple[re.Pattern[str], str, str], bool] = {}
        self._at_end: dict[str, _State] = {}
        self._end, self._anywhere = self._place(), self._place()
        self._start = self._build(root, self._end)

    def accepts(self, name: str) -> bool:
        """Return whether the complete name matches."""
        if "\n" in name:
            raise PatternNotFollowedError("a module's name has a line break")
        last = name[-1:]
        if last not in self._at_end:
            self._at_end[last] = self._state({self._end}, last, "")
        state = self._at_end[last]
        parts = _PART.findall(name)
        for number in range(len(parts) - 1, -1, -1):
            key = (parts[number], number == 0)
            if key not in state.before:
                state.before[key] = self._read(state, *key)
            state = state.before[key]
        return self._start in state.places

    def _read(self, state: _State, part: str, is_first: bool) -> _State:  # noqa: FBT001
        before = ("" if is_first else ".") + part
        offset = len(before) - len(part)
        for at in range(len(part) - 1, -1, -1):
            readers = (pair for place in state.places for pair in self._readers[place])
            places = {place for place, one in readers if self._holds(one, "", part[at])}
            state = self._state(places, before[at + offset - 1 : at + offset], part[at])
        return state

    def _state(self, places: set[int], previous: str, following: str) -> _State:
        """Add the places that lead to `places` without reading a character.

        Edge conditions are tested between `previous` and `following`. Lookaheads are decided from
        the innermost outwards.
        """
        closed = set(self._closed)
        self._follow(places, [*places, self._anywhere], closed, previous, following)
        for ahead in self._lookaheads:
            if (ahead.start in places) is ahead.wanted:
                closed.discard(ahead.place)
                if ahead.then in places:
                    self._follow(places, [ahead.place], closed, previous, following)
        reached = frozenset(places)
        return self._states.setdefault(reached, _State(reached))

    def _follow(
        self, places: set[int], waiting: list[int], closed: set[int], previous: str, following: str
    ) -> None:
        places.update(waiting)
        while waiting:
            self._left -= 1
            if self._left < 0:
                raise PatternNotFollowedError(f"it takes more than {MOST_STEPS:,} steps")
            for place, edge in self._jumps[waiting.pop()]:
                is_new = place not in places and place not in closed
                if is_new and (edge is None or self._holds(edge, previous, following)):
                    places.add(place)
                    waiting.append(place)

    def _holds(self, node: _One | _Edge, previous: str, following: str) -> bool:
        key = (node.pattern, previous, following)
        if key not in self._known:
            fits = node.pattern.match(previous + following, len(previous))
            self._known[key] = fits is not None
        return self._known[key]

    def _place(self) -> int:
        if len(self._jumps) >= _MOST_PLACES:
            raise PatternNotFollowedError(f"it has more than {_MOST_PLACES:,} places")
        self._jumps.append([])
        self._readers.append([])
        return len(self._jumps) - 1

    def _jump(self, then: int, edge: _Edge | None = None) -> int:
        place = self._place()
        self._jumps[then].append((place, edge))
        return place

    def _build(self, node: _Node, then: int) -> int:
        """Add the node's places, followed by the place `then`; return the node's first place."""
        match node:
            case _One():
                place = self._place()
                self._readers[then].append((place, node))
                return place
            case _Edge():
                return self._jump(then, node)
            case _All(nodes):
                for inner in reversed(nodes):
                    then = self._build(inner, then)
                return then
            case _Either(nodes):
                place = self._place()
                for inner in nodes:
                    self._jumps[self._build(inner, then)].append((place, None))
                return place
            case _Ahead(body, wanted):
                start = self._build(body, self._anywhere)
                place = self._jump(then)
                self._closed.add(place)
                self._lookaheads.append(_Lookahead(place, start, wanted, then))
                return place
            case _Repeat(body, least, most):
                return self._repeated(body, least, most, then)

    def _repeated(self, body: _Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self._jump(then)
            self._jumps[self._build(body, loop)].append((loop, None))
            then = loop
        else:
            end = then
            for _ in range(most - least):
                skip = self._jump(end)
                self._jumps[self._build(body, then)].append((skip, None))
                then = skip
        for _ in range(least):
            then = self._build(body, then)
        return then
