"""Rules by which transformers rewrites a stored name before it looks for it in a model."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

# Longer names are hostile: no tensor of transformers has half as many, and `.*` in a pattern takes
# the square of their length.
_LONGEST = 256

_GROUP = re.compile(r"\\(\d)")


class Operation(NamedTuple):
    """One step of a conversion, as far as shapes go; `conversions` has what each one does."""

    name: str  # as transformers calls it: "Concatenate"
    axes: tuple[int, ...] = (0,)  # that it works on; of Transpose and of experts in two halves two
    number: int | None = None  # of chunks, of attention prefixes; 1: Transpose only where it has to
    only: tuple[str, ...] | None = None  # parts of the names that it is for; None: for all


class Rule(NamedTuple):
    r"""A rename; or, with operations, the names that a conversion takes and those that it makes.

    A source is a regular expression that is searched for below a prefix, `*.` in it stands for any
    number; the first target takes the place of what it finds, `\1` in it is the source's group.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    prefixes: tuple[str, ...] = ("",)  # with their dot, "model.vision_tower."; the first that fits
    operations: tuple[Operation, ...] = ()
    paired: bool = False  # each source has its own target; none counts before the first has
    offset: int = 0  # what is added to the number that `\1` is


class Rewritten(NamedTuple):
    """A name after a rule, and which of the rule's sources it was."""

    name: str  # of a conversion the first tensor in memory that is made of it
    source: int
    rule: Rule

    @property
    def pattern(self) -> str:
        """The rule's source that was found."""
        return self.rule.sources[self.source]

    @property
    def made(self) -> tuple[str, ...]:
        """The names of all that a conversion makes of it."""
        first, *_ = self.rule.targets
        return tuple(self.name.replace(first, target) for target in self.rule.targets)


class ChangedName(NamedTuple):
    """A name after several rules, and those that changed it, in their order."""

    name: str
    rules: tuple[Rule, ...]


def renamed_by(
    rules: tuple[Rule, ...], names: Iterable[str], *, in_turn: bool = False
) -> dict[str, ChangedName]:
    """Those of the names that the rules change, each rule what the rules before it made.

    `in_turn`: a paired rule counts from the name on that has its first source; else for all.
    """
    words = _words_of(rules)
    seen: set[Rule] = set()
    changed: dict[str, ChangedName] = {}
    for stored in names:
        for word in words:
            if word in stored:
                break
        else:
            continue
        name, applied = stored, list[Rule]()
        for rule in rules:
            found = rewritten_name(rule, name)
            if found is None:
                continue
            if found.source == 0:
                seen.add(rule)
            if not (in_turn and rule.paired) or rule in seen:
                name = found.name
                applied.append(rule)
        if applied:
            changed[stored] = ChangedName(name, tuple(applied))
    return changed


def conversions_by(rules: tuple[Rule, ...], names: Iterable[str]) -> dict[str, Rewritten]:
    """Those of the names that a conversion takes; of several conversions the first one does."""
    taken: dict[str, Rewritten] = {}
    for name in names:
        for rule in rules:
            found = rewritten_name(rule, name)
            if found is not None:
                taken[name] = found
                break
    return taken


def rewritten_name(rule: Rule, name: str) -> Rewritten | None:
    """The name as the rule makes it; None: the rule is not about it."""
    pattern, words = _compiled(rule.sources)
    for word in words:
        if word in name:
            break
    else:
        return None
    for prefix in rule.prefixes:
        if name.startswith(prefix):
            break
    else:
        return None
    rest = name[len(prefix) :]
    found = pattern.search(rest) if len(name) <= _LONGEST else None
    if found is None:
        return None
    source = int((found.lastgroup or "")[1:])
    target = rule.targets[source if rule.paired else 0]
    if "\\" in target:
        target = _filled(target, found, rule)
    # As there: the first place where what was found stands, which need not be where it was found.
    return Rewritten(prefix + rest.replace(found[0], target, 1), source, rule)


def _filled(target: str, found: re.Match[str], rule: Rule) -> str:
    r"""The target with the source's groups in it; a rule that is not paired has `\1` alone."""
    first = found.re.groupindex[found.lastgroup or ""]

    def group(number: re.Match[str]) -> str:
        if not rule.paired and number[1] != "1":
            return number[0]
        text = found[first + int(number[1])] or ""
        return str(int(text) + rule.offset) if rule.offset else text

    return _GROUP.sub(group, target)


@lru_cache(maxsize=64)
def _words_of(rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """Texts of which a name has one, if any of the rules is about it: a look without a pattern."""
    return tuple(dict.fromkeys(word for rule in rules for word in _compiled(rule.sources)[1]))


@lru_cache(maxsize=1024)
def _compiled(sources: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """The sources as one pattern, the longest first, and a word that whatever it finds has."""
    longest = sorted(enumerate(sources), key=lambda item: -len(item[1]))
    pattern = "|".join(f"(?P<g{place}>{_bounded(source)})" for place, source in longest)
    return re.compile(pattern), tuple(dict.fromkeys(map(_word, sources)))


def _bounded(source: str) -> str:
    """A source that ends in a letter or digit ends where the part of the name does."""
    pattern = source.replace("*.", r".*\.")
    return pattern + (r"(?!\w)" if re.search(r"[a-zA-Z0-9]$", source) else "")


_ESCAPED, _OPTIONAL, _COUNTED = r"\\.", r"\w(?=[?*{])", r"\{[^}]*\}"
_INNERMOST = r"\([^()]*\)|\[[^\]]*\]"


def _word(source: str) -> str:
    """The longest word that is in whatever a pattern finds; "" where none is for certain."""
    text = re.sub(_ESCAPED, "\0", source)
    while (outer := re.sub(_INNERMOST, "\0", text)) != text:
        text = outer
    text = re.sub(_COUNTED, "\0", re.sub(_OPTIONAL, "\0", text))
    return "" if "|" in text else max(re.findall(r"\w+", text), key=len, default="")
