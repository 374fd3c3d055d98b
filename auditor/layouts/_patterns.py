"""The module names that the skip lists and globs of quantization configs cover."""

import re
from collections.abc import Callable, Iterable

from auditor.bounded.patterns import PatternNotFollowedError, glob_expression, names_matching

_PLAIN = re.compile(r"[\w.-]*[\w-]")  # a key that is a name, in which a dot means a dot
_DEEP = 100  # levels of modules that are compared; each takes time by the name's length
_BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"


def followed(
    match: Callable[[Iterable[str], Iterable[str]], frozenset[str]],
    expressions: Iterable[str],
    names: Iterable[str],
) -> frozenset[str] | None:
    """Return the names that match by a function of `bounded.patterns`; None if undecided."""
    try:
        return match(expressions, names)
    except PatternNotFollowedError:
        return None


def names_in_skip_lists(keys: Iterable[str], names: Iterable[str]) -> frozenset[str] | None:
    """Return the names that transformers' skip lists (modules_to_not_convert) cover.

    A key is an expression for the start of a name up to a dot or its end, or literally its end.
    Return None if this cannot be decided.
    """
    names, keys = tuple(names), frozenset(keys)
    plain = frozenset(filter(_PLAIN.fullmatch, keys))
    lengths = sorted(set(map(len, plain)))
    literal = {name for name in names if at_or_below(name, plain) or _ends(name, plain, lengths)}
    unmatched_keys = sorted(keys - plain)
    starts = [rf"(?:{key}){_BOUNDARY}[\s\S]*" for key in unmatched_keys]
    ends = [rf"[\s\S]*{re.escape(key)}" for key in unmatched_keys]
    more = followed(names_matching, [*starts, *ends], names)
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
    globs = [glob_expression(one + end) for one in sorted(patterns - plain) for end in ends]
    more = followed(names_matching, globs, names)
    return None if more is None else more | literal


def at_or_below(name: str, modules: frozenset[str]) -> bool:
    """Return whether the name or a module above it is literally among the modules.

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
    """Return whether the name ends with a plain key, in time by the number of lengths only."""
    return any(name[-length:] in plain for length in lengths if length <= len(name))
