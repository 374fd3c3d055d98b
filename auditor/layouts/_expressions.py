"""Regular expressions of module names as trees, in the syntax that configs use.

It has literals, `.`, classes, groups, `|`, quantifiers, `^` first and `$` last. Other syntax
(lookaround, back-references, flags) is refused, never guessed.
"""

import re
from typing import NamedTuple

_DEPTH = 64  # of groups in groups
_CLASSES = {"d": (("0", "9"),), "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))}
_COUNTED = re.compile(r"\{([0-9]{1,3})(?:(,)([0-9]{0,3}))?\}")


class Chars(NamedTuple):
    """One character: in one of the ranges, or in none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def accepts(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated


class Sequence(NamedTuple):
    """Items in this order."""

    items: tuple["Node", ...]


class Alternation(NamedTuple):
    """One of the items."""

    items: tuple["Node", ...]


class Repetition(NamedTuple):
    """A repeated item; `most` is None if there is no upper bound."""

    item: "Node"
    least: int
    most: int | None


Node = Chars | Sequence | Alternation | Repetition

DOT = Chars((("\n", "\n"),), negated=True)


class UnreadError(Exception):
    """The expression uses syntax that this module does not read."""


def parse_expression(expression: str) -> tuple[Node, bool]:
    """Return the tree of an expression and whether it ends in `$`; a `^` changes nothing."""
    return _Parser(expression).parse()


class _Parser:
    """A recursive descent over one expression."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("^")
        self._anchored = self._text != text
        self._at = 0
        self._depth = 0

    def parse(self) -> tuple[Node, bool]:
        """Return the tree and whether the expression ends in `$`."""
        node = self._choice()
        at_end = self._next() == "$"
        self._at += at_end
        alone = not isinstance(node, Alternation) or not (at_end or self._anchored)
        if self._at < len(self._text) or not alone:
            raise UnreadError
        return node, at_end

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._next()
        if not char:
            raise UnreadError
        self._at += 1
        return char

    def _choice(self) -> Node:
        branches = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self._next() not in {"", "|", ")", "$"}:
            items.append(self._quantified(self._atom()))
        return Sequence(tuple(items))

    def _atom(self) -> Node:
        char = self._take()
        match char:
            case ".":
                return DOT
            case "\\":
                return Chars(self._escaped())
            case "[":
                return self._class()
            case "(":
                return self._group()
            case "^" | "*" | "+" | "?" | "{" | "}" | "]":
                raise UnreadError
            case _:
                return Chars(((char, char),))

    def _escaped(self) -> tuple[tuple[str, str], ...]:
        char = self._take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char.isalnum():
            raise UnreadError
        return ((char, char),)

    def _group(self) -> Node:
        if self._next() == "?":
            if self._text[self._at : self._at + 2] != "?:":
                raise UnreadError
            self._at += 2
        self._depth += 1
        if self._depth > _DEPTH:
            raise UnreadError
        node = self._choice()
        self._depth -= 1
        if self._take() != ")":
            raise UnreadError
        return node

    def _class(self) -> Node:
        negated = self._next() == "^"
        self._at += negated
        ranges: list[tuple[str, str]] = []
        while (char := self._take()) != "]" or not ranges:
            if char in "[]":
                raise UnreadError
            item_ranges = self._escaped() if char == "\\" else ((char, char),)
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._at += 1
                item_ranges = ((item_ranges[0][0], self._take()),)
                if (
                    len(item_ranges) != 1
                    or item_ranges[0][1] in "\\["
                    or item_ranges[0][0] > item_ranges[0][1]
                ):
                    raise UnreadError
            ranges.extend(item_ranges)
        return Chars(tuple(ranges), negated)

    def _quantified(self, node: Node) -> Node:
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._next())
        counted = _COUNTED.match(self._text, self._at)
        if bounds is not None:
            self._at += 1
        elif counted:
            self._at = counted.end()
            least, comma, most = counted.groups()
            bounds = (int(least), (int(most) if most else None) if comma else int(least))
        else:
            return node
        self._at += self._next() == "?"  # a lazy quantifier matches the same names
        if self._next() in {"*", "+", "?", "{"}:
            raise UnreadError
        return Repetition(node, *bounds)
