"""Loading: what transformers does to a stored name before it looks for it in a class.

Rules rewrite names; the Loading of a class says which rules, and in what order.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

# Longer names are hostile: no tensor of transformers has half as many, and `.*` in a pattern takes
# the square of their length.
_LONGEST_NAME = 256

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
    # Two blocks on disk are a layer: (the source's second group, what stands for it behind the
    # layer's number in the model where the block's number is even, and where it is odd).
    halves: tuple[tuple[str, str, str], ...] = ()


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
    """Return the names that the rules change; each rule gets the result of the one before.

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
    """Return the names that a conversion takes, each with the first conversion that takes it."""
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
    found = pattern.search(rest) if len(name) <= _LONGEST_NAME else None
    if found is None:
        return None
    source = int((found.lastgroup or "")[1:])
    target = rule.targets[source if rule.paired else 0]
    if rule.halves:
        before, after = name[: len(prefix) + found.start()], rest[found.end() :]
        return Rewritten(f"{before}{_whole_layer(rule, found)}{after}", source, rule)
    if "\\" in target:
        target = _filled(target, found, rule)
    # As there: the first place where what was found stands, which need not be where it was found.
    return Rewritten(prefix + rest.replace(found[0], target, 1), source, rule)


def _whole_layer(rule: Rule, found: re.Match[str]) -> str:
    number, part = int(found[2]), found[3]
    sides = next(sides for name, *sides in rule.halves if name == part)
    return f"layers.{number // 2}.{sides[number % 2]}"


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


# As transformers 5 applies them to every key after the class's own, in this order, each once;
# the dots match any character there.
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

    shapes: Mapping[str, tuple[int, ...]]  # of all that from_pretrained looks for, tied ones too
    ties: tuple[tuple[str, str], ...] = ()  # (name, the name whose values it shares), in order
    unset: frozenset[str] = frozenset()  # parameters that a module may have, and here has not


class UnknownName(NamedTuple):
    """The treatment of a stored name that a class does not have."""

    silent: bool  # it is left out and not reported
    buffer: bool  # it is the name of a tensor that is not learned


class Loading(Struct, frozen=True, kw_only=True):
    """The loading rules of one class."""

    renames: tuple[Rule, ...] = ()  # its own and its sub-models', in their order
    legacy: tuple[Rule, ...] = LEGACY  # those of all classes, which come after them
    converters: tuple[Rule, ...] = ()  # of which at most one is applied, after all renames
    silent: tuple[str, ...] = ()  # patterns of names that are left out and not reported
    buffers: tuple[str, ...] = ()  # the same, of tensors that are not learned
    unmissed: tuple[str, ...] = ()  # patterns of names in memory that are not reported as missing
    taken: tuple[str, ...] = ()  # patterns of optional buffers that it loads if they are stored
    kept: frozenset[str] = frozenset()  # names on disk that would lead nowhere if renamed
    memory: Memory | None = None  # None: it follows from the expected tensors
    reports: bool = False  # it is from_pretrained of transformers that loads the class

    def renamed(self, names: Collection[str]) -> list[str]:
        """The names as the class's own renames make them, in their order."""
        if not self.renames:
            return list(names)
        changed = renamed_by(self.renames, (name for name in names if name not in self.kept))
        return [changed[name].name if name in changed else name for name in names]

    def of_old(self, names: Iterable[str]) -> dict[str, ChangedName]:
        """Return the names that the rules of all classes change."""
        return renamed_by(self.legacy, names)

    def looked_for(self, names: Collection[str]) -> list[str]:
        """The names as all renames make them, in their order."""
        renamed = self.renamed(names)
        changed = self.of_old(renamed)
        return [changed[name].name if name in changed else name for name in renamed]

    def conversions(self, names: Iterable[str]) -> dict[str, Rewritten]:
        """Return the renamed names that a conversion takes to make other tensors."""
        return conversions_by(self.converters, names) if self.converters else {}

    def converted(self, names: Collection[str]) -> list[tuple[str, ...]]:
        """The names in memory that each renamed name stands for: itself, but for conversions."""
        taken = self.conversions(names)
        return [taken[name].made if name in taken else (name,) for name in names]

    def reported(self, stored: Collection[str]) -> list[tuple[str, ...]]:
        """Return the names under which loading reports each stored name that it does not use."""
        return self.converted(self.looked_for(stored))

    def seeing(self, stored: Iterable[str]) -> "Loading":
        """The rules that count for these stored names: paired ones wait for their first source."""
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
        """Return the treatment of each stored name if the class does not have it."""
        return [
            UnknownName(
                silent=all(_any(self.silent, name) or _any(self.buffers, name) for name in names),
                buffer=any(_any(self.buffers, name) for name in names),
            )
            for names in self.reported(stored)
        ]

    def takes(self, name: str) -> bool:
        """Return whether the class loads this optional buffer if it is stored."""
        return _any(self.taken, name)


PLAIN = Loading()  # the rules of all classes and no more


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return bool(patterns) and _together(patterns).search(name) is not None


@lru_cache(maxsize=64)
def _together(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"({pattern})" for pattern in patterns))
