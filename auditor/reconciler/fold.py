"""fold and expand: many tensor names as few patterns, losslessly, for people to read.

A pattern is a name with groups in braces. A group lists items between commas and stands for each of
them: `{bias,weight}`. An item `a-b` of two numbers stands for every number from a to b: `{0-11}`,
`{0-5,20-25}`; with ends of one length for all numbers of that length, so that zeros in front
survive: `{00001-00163}`. Several groups stand for every combination.

What would be read as part of a pattern is escaped where a name itself contains it: a backslash
stands before `{`, `}` and the backslash. Such names are not folded; neither are numbers of more
than 18 digits, names of more than 400 characters, and those with more than 8 numbers and 16 parts.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, product, zip_longest

from auditor.tensors import natural_key

_NUMBER = re.compile(r"([0-9]+)")
_SPECIAL = re.compile(r"[{}\\]")
_ITEM = re.compile(r"(?![0-9]+-[0-9]+\Z|[0-9]{19})[^{},\\]+")
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_TOKEN = re.compile(r"\\(?P<special>[{}\\])|\{(?P<group>[^{}\\]+)\}|(?P<text>[^{}\\]+)")

# Folding takes time with the square of the first two, and strangers' names may hold thousands: the
# names of some forty checkpoints from the Hub hold at most 3 numbers and 11 parts, and have 120
# characters. More patterns than the third are past reading, whatever words would fold.
_MAX_NUMBERS = 8
_MAX_PARTS = 16
_MAX_PATTERNS = 10_000
_MAX_CHARACTERS = 400  # of a name that is folded: what it is cut into takes memory once more

# Of no more names, and no longer ones, the patterns are kept: 512 times 16 kB at the most.
_FEW = 128
_SHORT = 128

_Texts = tuple[str, ...]
# The item at each position, or the items that were merged there; every combination is a name.
_Cell = tuple[str | tuple[str, ...], ...]


def fold(names: Iterable[str], *, words: bool = True) -> tuple[str, ...]:
    """Patterns that stand for exactly these names, each once, in natural order.

    `words=False` folds numbers only: `layer.{0-11}.dense`, and never `{bias,weight}`.
    90,000 names of 61 layers with 256 experts take 0.3 s.
    """
    unique = frozenset(names)
    few = len(unique) <= _FEW and all(len(name) <= _SHORT for name in unique)
    return (_folded if few else _folded.__wrapped__)(unique, words)


@lru_cache(maxsize=512)  # one model after another has the same older names, the same buffers
def _folded(unique: frozenset[str], words: bool) -> tuple[str, ...]:  # noqa: FBT001 - a cache's key
    literal = [name for name in unique if _is_literal(name)]
    patterns = _fold_numbers(unique.difference(literal))
    if words and len(patterns) <= _MAX_PATTERNS:
        patterns = _fold_words(patterns)
    patterns += [_SPECIAL.sub(r"\\\g<0>", name) for name in literal]
    return tuple(sorted(patterns, key=lambda pattern: natural_key(first(pattern))))


def _is_literal(name: str) -> bool:
    return len(name) > _MAX_CHARACTERS or "{" in name or "}" in name or "\\" in name


def expand(folded: str) -> tuple[str, ...]:
    """The names that a pattern of `fold` stands for; ValueError for what `fold` never makes."""
    return tuple(_names(folded))


def first(folded: str) -> str:
    """The first of those names; ValueError as for `expand`."""
    return next(_names(folded))


def _fold_numbers(names: Iterable[str]) -> list[str]:
    """From the first number to the last, so that layers fold before their experts.

    An expert that one layer lacks then leaves `layers.{0-60}.experts.{0-254}` and the other layers'
    `experts.255`, not a pattern for each layer.
    """
    patterns: list[str] = []
    for texts, cells in _by_texts(names).items():
        numbers = len(texts) - 1
        merged = cells if numbers > _MAX_NUMBERS else _merge(cells, range(numbers))
        patterns += [_pattern(texts, cell) for cell in merged]
    return patterns


def _by_texts(names: Iterable[str]) -> dict[_Texts, list[_Cell]]:
    """The numbers in each name, by the texts between them.

    Many modules have tensors of the same names, as all experts have: they are cut up once, by what
    stands before the last two parts.
    """
    ends: dict[str, list[str]] = {}
    for name in names:
        module = name.rsplit(".", 2)[0]
        ends.setdefault(module, []).append(name[len(module) :])
    alike: dict[tuple[_Texts, _Texts], list[_Texts]] = {}
    while ends:  # and each is let go as soon as it is used
        module, each = ends.popitem()
        pieces = _NUMBER.split(module, _MAX_NUMBERS + 1)  # text at even places, numbers at odd ones
        kind = (tuple(pieces[::2]), tuple(sorted(each)))
        alike.setdefault(kind, []).append(tuple(pieces[1::2]))
    found: dict[_Texts, list[_Cell]] = {}
    while alike:
        (texts, below), numbers = alike.popitem()
        for end in below:
            first, *rest = _NUMBER.split(end, _MAX_NUMBERS + 1)
            cells = found.setdefault((*texts[:-1], texts[-1] + first, *rest[1::2]), [])
            cells += [(*before, *rest[::2]) for before in numbers]
    return found


def _pattern(texts: _Texts, cell: _Cell) -> str:
    pieces = zip_longest(texts, map(_group, cell), fillvalue="")
    return "".join(chain.from_iterable(pieces))


def _fold_words(patterns: Iterable[str]) -> list[str]:
    """From the last part to the first, so that siblings (bias, weight) fold before cousins."""
    cells: dict[int, list[_Cell]] = {}
    unfolded = []
    for pattern in patterns:
        parts = pattern.split(".", _MAX_PARTS)  # groups of numbers hold no dot
        if len(parts) > _MAX_PARTS:
            unfolded.append(pattern)
        else:
            cells.setdefault(len(parts), []).append(tuple(parts))
    return unfolded + [
        ".".join(map(_group, cell))
        for count, same in cells.items()
        for cell in _merge(same, reversed(range(count)))
    ]


def _merge(cells: list[_Cell], positions: Iterable[int]) -> list[_Cell]:
    """At each position in turn, cells that differ there and nowhere else become one.

    Nothing is lost and nothing doubled: such cells stand for different names before, and for the
    same ones together after.
    """
    for at in positions:
        groups: dict[_Cell, list[str]] = {}
        merged = []
        for cell in cells:
            item = cell[at]  # one: nothing was merged here yet
            if isinstance(item, str) and _ITEM.fullmatch(item):
                groups.setdefault((*cell[:at], *cell[at + 1 :]), []).append(item)
            else:
                merged.append(cell)  # an empty part, or one that could not be told from a range
        for others, items in groups.items():
            together = items[0] if len(items) == 1 else tuple(sorted(items))
            merged.append((*others[:at], together, *others[at:]))
        cells = merged
    return cells


def _group(items: str | tuple[str, ...]) -> str:
    if isinstance(items, str):
        return items
    numbers = [item for item in items if _NUMBER.fullmatch(item)]
    words = sorted(set(items).difference(numbers), key=natural_key)
    return "{" + ",".join([*_ranges(numbers), *words]) + "}"


def _ranges(numbers: list[str]) -> Iterator[str]:
    """Runs of successive numbers. "09" and "10" succeed each other, and so do "9" and "10"."""
    padded = {len(n) for n in numbers if n[0] == "0" and len(n) > 1}
    widths = {n: len(n) if len(n) in padded else 0 for n in numbers}  # 0: no zeros in front
    run: list[str] = []
    for number in sorted(numbers, key=lambda n: (widths[n], int(n))):
        if run and (widths[number], int(number)) != (widths[run[-1]], int(run[-1]) + 1):
            yield _range(run)
            run = []
        run.append(number)
    if run:
        yield _range(run)


def _range(run: list[str]) -> str:
    return run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}"


def _names(pattern: str) -> Iterator[str]:
    choices: list[list[str]] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise ValueError(f"not a folded name, at character {at}: {pattern[:100]!r}")
        choices.append(_items(token["group"]) if token["group"] else [token["special"] or token[0]])
        at = token.end()
    return ("".join(choice) for choice in product(*choices))


def _items(group: str) -> list[str]:
    items: list[str] = []
    for item in group.split(","):
        if ends := _RANGE.fullmatch(item):
            first, last = ends.groups()
            width = len(first) if len(first) == len(last) else 0
            items += [str(n).zfill(width) for n in range(int(first), int(last) + 1)]
        else:
            items.append(item)
    return items
