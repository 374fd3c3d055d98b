"""Names of tensors and files: their segments, their numbers, and folded names.

A folded name is a pattern for many names, which `reconciler.fold` makes. The pattern is a name with
groups in braces. A group lists alternatives, separated by commas: `{bias,weight}`. An item `a-b` of
two numbers stands for every number from a to b: `{0-11}`, `{0-5,20-25}`. If both numbers have the
same length, all numbers are written with that length, with leading zeros: `{00001-00163}`. Several
groups stand for every combination.

A backslash escapes `{`, `}` and the backslash in a name.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import product
from math import prod

_SPECIAL = re.compile(r"[{}\\]")
_NUMBER = re.compile(r"\d+")
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_TOKEN = re.compile(r"\\(?P<special>[{}\\])|\{(?P<group>[^{}\\]+)\}|(?P<text>[^{}\\]+)")


_MOST_DIGITS = 6  # digits of a number in a tensor's name; no model has a million layers or experts


def folder_of(path: str) -> str:
    """Return the folder of a path with a slash at its end; "" for a file without folder."""
    return path[: path.rfind("/") + 1]


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return path[path.rfind("/") + 1 :]


def parent(name: str) -> str:
    """Return the module that contains a tensor or module: `bert.encoder` -> `bert` -> ""."""
    return name.rpartition(".")[0]


def modules_above(name: str) -> Iterator[str]:
    """Yield the modules that contain a tensor or module, from the complete model ("") down."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(len(parts)))


def number_of(segment: str) -> int | None:
    """Return a segment of a tensor's name as a number; None if it is not a short decimal number."""
    is_number = segment.isascii() and segment.isdecimal() and len(segment) <= _MOST_DIGITS
    return int(segment) if is_number else None


def number_in_list(name: str, module_list: str) -> int | None:
    """Return the index in a module list that a name contains, else None: 3 for `h.3.ln` in `h`."""
    at = f".{name}".find(f".{module_list}.")
    return number_of(name[at + len(module_list) + 1 :].partition(".")[0]) if at >= 0 else None


def module_kind(name: str) -> str:
    """Return the module name of a tensor without its layer, such as `self_attn.q_proj`."""
    inside = _NUMBER.sub("#", name).rpartition("#.")[2]
    return inside.rpartition(".")[0] or inside


def escaped_name(name: str) -> str:
    """Return the pattern that stands for this name only, with special characters escaped."""
    return _SPECIAL.sub(r"\\\g<0>", name)


def numbered(places: Iterable[int]) -> str:
    """Return a pattern for numbers, such as `{0-11}`; a single number has no braces."""
    names = [str(place) for place in places]
    return names[0] if len(names) == 1 else f"{{{','.join(ranges_of(names))}}}"


def expand(folded: str) -> tuple[str, ...]:
    """Return the names of a pattern; raise ValueError for a pattern that `fold` never makes."""
    return tuple(_names(folded))


def first(folded: str) -> str:
    """Return the first name of a pattern; raise ValueError like `expand`."""
    return next(_names(folded))


def how_many(folded: str) -> int:
    """Return the number of names of a pattern; raise ValueError like `expand`."""
    return prod(map(len, _choices(folded)))


def pieces(folded: str) -> Iterator[str | tuple[str, ...]]:
    """Split a pattern: yield its plain text as str and each group as a tuple of its alternatives.

    Raise ValueError like `expand`.
    """
    at = 0
    while at < len(folded):
        token = _TOKEN.match(folded, at)
        if token is None:
            raise ValueError(f"not a folded name, at character {at}: {folded[:100]!r}")
        yield tuple(_items(token["group"])) if token["group"] else token["special"] or token[0]
        at = token.end()


def ranges_of(numbers: Collection[str]) -> Iterator[str]:
    """Yield ranges of successive numbers such as `0-11`; "10" follows both "9" and "09"."""
    padded = {len(n) for n in numbers if n[0] == "0" and len(n) > 1}
    # 0 if there are no leading zeros.
    widths = {n: len(n) if len(n) in padded else 0 for n in numbers}
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


def _names(folded: str) -> Iterator[str]:
    return ("".join(choice) for choice in product(*_choices(folded)))


def _choices(folded: str) -> list[tuple[str, ...]]:
    return [(piece,) if isinstance(piece, str) else piece for piece in pieces(folded)]


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
