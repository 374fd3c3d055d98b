"""The Loading class: how a stored name becomes the name that transformers looks up in a class.

Rules rewrite names; the Loading of a class contains its rules in order.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

# Longer names are hostile: tensors in transformers have less than half as many characters, and `.*`
# in a pattern takes time quadratic in the length.
_LONGEST_NAME = 256

_GROUP = re.compile(r"\\(\d)")


class Operation(NamedTuple):
    """A step of a conversion that changes shapes; `conversions` implements it."""

    name: str  # its class name in transformers: "Concatenate"
    axes: tuple[int, ...] = (0,)  # two for Transpose, and for experts in two halves
    number: int | None = None  # chunks or attention heads; 1: Transpose only if shapes differ
    only: tuple[str, ...] | None = None  # only names that contain one of these; None: all names


class Rule(NamedTuple):
    r"""A rename; or, with operations, a conversion from its source names to its target names.

    A source is a regular expression, searched for after a prefix; `*.` in it matches any number.
    The first target replaces the match; `\1` in the target is the source's group.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    prefixes: tuple[str, ...] = ("",)  # with the dot: "model.vision_tower."; the first match counts
    operations: tuple[Operation, ...] = ()
    paired: bool = False  # each source has its own target; a match of the first source is required
    offset: int = 0  # an offset that is added to the number in `\1`
    # For rules that make one layer of two blocks on disk: (the source's second group, what replaces
    # it after the layer's number in memory if the block's number is even, and if it is odd).
    halves: tuple[tuple[str, str, str], ...] = ()


class Rewritten(NamedTuple):
    """A name after one rule, and the index of the rule's source that matched."""

    name: str  # after a conversion: the first of the resulting tensors in memory
    source: int
    rule: Rule

    @property
    def pattern(self) -> str:
        """The rule's source that matched."""
        return self.rule.sources[self.source]

    @property
    def made(self) -> tuple[str, ...]:
        """The names of all tensors that result from the conversion."""
        first, *_ = self.rule.targets
        return tuple(self.name.replace(first, target) for target in self.rule.targets)


class ChangedName(NamedTuple):
    """A name after several rules, and the rules that changed it, in order."""

    name: str
    rules: tuple[Rule, ...]


def renamed_by(
    rules: tuple[Rule, ...], names: Iterable[str], *, in_turn: bool = False
) -> dict[str, ChangedName]:
    """Map old name -> new name for the names that rules change; all rules apply in order.

    If `in_turn`, a paired rule applies only after one of the names has matched its first source.
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
            rewritten = rewritten_name(rule, name)
            if rewritten is None:
                continue
            if rewritten.source == 0:
                seen.add(rule)
            if not (in_turn and rule.paired) or rule in seen:
                name = rewritten.name
                applied.append(rule)
        if applied:
            changed[stored] = ChangedName(name, tuple(applied))
    return changed


def conversions_by(rules: tuple[Rule, ...], names: Iterable[str]) -> dict[str, Rewritten]:
    """Map each convertible name -> the result of the first conversion that applies to it."""
    taken: dict[str, Rewritten] = {}
    for name in names:
        for rule in rules:
            rewritten = rewritten_name(rule, name)
            if rewritten is not None:
                taken[name] = rewritten
                break
    return taken


def forms_with_prefix(names: Iterable[str], prefix: str) -> dict[str, tuple[str, ...]]:
    """Map each name to the names that loading looks up: without prefix, with prefix, unchanged.

    `prefix` is the base model's. transformers does not require a dot after it: `bert_pooler.x` in a
    file is also looked up as `pooler.x`.
    """
    if not prefix:
        return {name: (name,) for name in names}
    start = len(prefix) + 1
    return {
        name: (name[start:], f"{prefix}.{name}", name)
        if name.startswith(prefix)
        else (f"{prefix}.{name}", name)
        for name in names
    }


def starts_of_rule(scope: str | None, prefix: str) -> tuple[str, ...]:
    """Return the beginnings of names that a rule may change: the scope with and without prefix.

    The scope is the path of a model inside the class, without the base model's prefix; None for a
    rule of the complete class.
    """
    below = f"{scope}." if scope else ""
    return (below,) if scope is None or not prefix else (f"{prefix}.{below}", below)


def rewritten_name(rule: Rule, name: str) -> Rewritten | None:
    """Return the name after the rule; None if the rule does not apply."""
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
    inner_name = name[len(prefix) :]
    match = pattern.search(inner_name) if len(name) <= _LONGEST_NAME else None
    if match is None:
        return None
    source = int((match.lastgroup or "")[1:])
    target = rule.targets[source if rule.paired else 0]
    if rule.halves:
        before, after = name[: len(prefix) + match.start()], inner_name[match.end() :]
        return Rewritten(f"{before}{_whole_layer(rule, match)}{after}", source, rule)
    if "\\" in target:
        target = _filled(target, match, rule)
    # As in transformers: the first occurrence of the matched text is replaced, wherever it matched.
    return Rewritten(prefix + inner_name.replace(match[0], target, 1), source, rule)


def _whole_layer(rule: Rule, match: re.Match[str]) -> str:
    number, part = int(match[2]), match[3]
    sides = next(sides for name, *sides in rule.halves if name == part)
    return f"layers.{number // 2}.{sides[number % 2]}"


def _filled(target: str, match: re.Match[str], rule: Rule) -> str:
    r"""Replace each `\N` in the target with the match's group N; in an unpaired rule only `\1`."""
    first = match.re.groupindex[match.lastgroup or ""]

    def group(number: re.Match[str]) -> str:
        if not rule.paired and number[1] != "1":
            return number[0]
        text = match[first + int(number[1])] or ""
        return str(int(text) + rule.offset) if rule.offset else text

    return _GROUP.sub(group, target)


@lru_cache(maxsize=64)
def _words_of(rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """Return words such that every name that a rule changes contains one of them."""
    return tuple(dict.fromkeys(word for rule in rules for word in _compiled(rule.sources)[1]))


@lru_cache(maxsize=1024)
def _compiled(sources: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Join sources into one pattern, the longest first; also return a word of each source."""
    longest = sorted(enumerate(sources), key=lambda item: -len(item[1]))
    pattern = "|".join(f"(?P<g{place}>{_bounded(source)})" for place, source in longest)
    return re.compile(pattern), tuple(dict.fromkeys(map(_word, sources)))


def _bounded(source: str) -> str:
    """Return the pattern of a source; after a final letter or digit the word must end."""
    pattern = source.replace("*.", r".*\.")
    return pattern + (r"(?!\w)" if re.search(r"[a-zA-Z0-9]$", source) else "")


_ESCAPED, _OPTIONAL, _COUNTED = r"\\.", r"\w(?=[?*{])", r"\{[^}]*\}"
_INNERMOST = r"\([^()]*\)|\[[^\]]*\]"


def _word(source: str) -> str:
    """Return the longest word that every match of a pattern contains; "" if matches share none."""
    text = re.sub(_ESCAPED, "\0", source)
    while (outer := re.sub(_INNERMOST, "\0", text)) != text:
        text = outer
    text = re.sub(_COUNTED, "\0", re.sub(_OPTIONAL, "\0", text))
    return "" if "|" in text else max(re.findall(r"\w+", text), key=len, default="")


# transformers 5 applies these to every key after the class's own rules, in this order, each once;
# the dots match any character.
LEGACY = (
    Rule(("LayerNorm.gamma",), ("LayerNorm.weight",)),
    Rule(("LayerNorm.beta",), ("LayerNorm.bias",)),
    Rule((".weight_g",), (".parametrizations.weight.original0",)),
    Rule((".weight_v",), (".parametrizations.weight.original1",)),
    Rule(
        (r"^model\.language_model\.model", r"^language_model\.model\.model"),
        ("model.language_model",),
    ),
)


class Memory(NamedTuple):
    """The tensors of a class in memory before weights are loaded, in the model's order."""

    shapes: Mapping[str, tuple[int, ...]]  # all that from_pretrained looks for, tied too
    ties: tuple[tuple[str, str], ...] = ()  # (name, the name whose values it shares), in order
    # Parameters that a module declares and sets to None; None if they are not known.
    unset: frozenset[str] | None = frozenset()


class UnknownName(NamedTuple):
    """The way in which loading treats a stored name that the class does not have."""

    silent: bool  # it is skipped and not reported
    buffer: bool  # it is the name of a tensor that is not learned


class Loading(Struct, frozen=True, kw_only=True):
    """The loading rules of one class."""

    renames: tuple[Rule, ...] = ()  # its own and those of its submodels, in order
    legacy: tuple[Rule, ...] = LEGACY  # rules of all classes, applied after `renames`
    converters: tuple[Rule, ...] = ()  # conversions; at most one applies, after all renames
    silent: tuple[str, ...] = ()  # patterns of names that are skipped and not reported
    buffers: tuple[str, ...] = ()  # such patterns, for names of tensors that are not learned
    unmissed: tuple[str, ...] = ()  # patterns of names in memory that are not reported as missing
    optional_buffers: tuple[str, ...] = ()  # patterns; loaded if stored
    not_renamed: frozenset[str] = frozenset()  # stored names that would fit no tensor
    memory: Memory | None = None  # None: derived from the expected tensors
    reports: bool = False  # whether from_pretrained of transformers loads the class

    def renamed(self, names: Collection[str]) -> list[str]:
        """Return the names after the class's own renames, in order."""
        if not self.renames:
            return list(names)
        changed = renamed_by(self.renames, (name for name in names if name not in self.not_renamed))
        return [changed[name].name if name in changed else name for name in names]

    def renamed_by_legacy(self, names: Iterable[str]) -> dict[str, ChangedName]:
        """Map old name -> new name for the names that the rules of all classes change."""
        return renamed_by(self.legacy, names)

    def looked_for(self, names: Collection[str]) -> list[str]:
        """Return the names after all renames, in order."""
        renamed = self.renamed(names)
        changed = self.renamed_by_legacy(renamed)
        return [changed[name].name if name in changed else name for name in renamed]

    def conversions(self, names: Iterable[str]) -> dict[str, Rewritten]:
        """Map renamed name -> rewritten name for the names that a conversion rewrites."""
        return conversions_by(self.converters, names) if self.converters else {}

    def converted(self, names: Collection[str]) -> list[tuple[str, ...]]:
        """Return, for each renamed name, its names in memory after conversion."""
        taken = self.conversions(names)
        return [taken[name].made if name in taken else (name,) for name in names]

    def reported(self, stored: Collection[str]) -> list[tuple[str, ...]]:
        """Return, for each stored name, the names that the load report lists if it is unused."""
        return self.converted(self.looked_for(stored))

    def seeing(self, stored: Iterable[str]) -> "Loading":
        """Return the rules without the paired rules whose first source matches no stored name."""
        paired = [rule for rule in self.renames if rule.paired]
        if not paired:
            return self
        names = tuple(stored)
        asleep = {
            rule
            for rule in paired
            if not renamed_by((rule._replace(sources=rule.sources[:1]),), names)
        }
        return replace(self, renames=tuple(rule for rule in self.renames if rule not in asleep))

    def unknown(self, stored: Collection[str]) -> list[UnknownName]:
        """Return, for each stored name, how loading treats it if the class does not have it."""
        return [
            UnknownName(
                silent=all(_any(self.silent, name) or _any(self.buffers, name) for name in names),
                buffer=any(_any(self.buffers, name) for name in names),
            )
            for names in self.reported(stored)
        ]

    def takes(self, name: str) -> bool:
        """Return whether the class loads this optional buffer if it is stored."""
        return _any(self.optional_buffers, name)


PLAIN = Loading()  # only the rules common to all classes


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return bool(patterns) and _together(patterns).search(name) is not None


@lru_cache(maxsize=64)
def _together(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"({pattern})" for pattern in patterns))
