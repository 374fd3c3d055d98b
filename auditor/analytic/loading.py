"""Loading: what transformers does to a stored name before it looks for it in a class."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic.family import Family
from auditor.analytic.family_loading import Rules, loading_facts
from auditor.analytic.renaming_rules import Rule, rewritten_name, words_of

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
    """What a class has in memory before its weights are loaded, names in the model's order."""

    shapes: Mapping[str, tuple[int, ...]]  # of all that from_pretrained looks for, tied ones too
    ties: tuple[tuple[str, str], ...] = ()  # (name, the name whose values it shares), in order
    unset: frozenset[str] = frozenset()  # parameters that a module may have, and here has not


class Loading(Struct, frozen=True, kw_only=True, dict=True):
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

    def renamed(self, name: str) -> str:
        """The name as the class's own renames make it."""
        if name in self.kept:
            return name
        for rule in self.renames:
            found = rewritten_name(rule, name)
            if found is not None:
                name = found.name
        return name

    def of_old(self, name: str) -> tuple[str, tuple[Rule, ...]]:
        """The name as the rules of all classes make it, and those that changed it."""
        for word in self._of_old:
            if word in name:
                break
        else:
            return name, ()
        applied: list[Rule] = []
        for rule in self.legacy:
            found = rewritten_name(rule, name)
            if found is not None:
                name = found.name
                applied.append(rule)
        return name, tuple(applied)

    def converts(self, name: str) -> bool:
        """Whether a conversion takes a renamed name, and makes other tensors of it."""
        return any(rewritten_name(rule, name) for rule in self.converters)

    def converted(self, name: str) -> tuple[str, ...]:
        """The names in memory that a renamed name stands for: itself, but for conversions."""
        for rule in self.converters:
            found = rewritten_name(rule, name)
            if found is not None:
                first = rule.targets[0]
                return tuple(found.name.replace(first, target) for target in rule.targets)
        return (name,)

    def reported(self, stored: str) -> tuple[str, ...]:
        """How loading reports a stored name that it does not find."""
        return self.converted(self.of_old(self.renamed(stored))[0])

    def seeing(self, stored: Iterable[str]) -> "Loading":
        """The rules that count for these stored names: paired ones wait for their first source."""
        paired = [rule for rule in self.renames if rule.paired]
        if not paired:
            return self
        firsts = tuple(rule._replace(sources=rule.sources[:1]) for rule in paired)
        names = tuple(stored)
        asleep = {
            rule
            for rule, first in zip(paired, firsts, strict=True)
            if not any(rewritten_name(first, name) for name in names)
        }
        return replace(self, renames=tuple(rule for rule in self.renames if rule not in asleep))

    @cached_property
    def _of_old(self) -> tuple[str, ...]:
        return words_of(self.legacy)

    def leaves_out(self, name: str) -> bool:
        """Whether loading says nothing of a name that the class does not have."""
        return _any(self.silent, name) or self.is_buffer(name)

    def is_buffer(self, name: str) -> bool:
        """Whether the name is that of a tensor of the class that is not learned."""
        return _any(self.buffers, name)

    def takes(self, name: str) -> bool:
        """Whether an optional buffer of the class is one that it still has."""
        return _any(self.taken, name)


PLAIN = Loading()  # the rules of all classes and no more


class Inside(NamedTuple):
    """A model inside another one, where it is, and what its own config adds to its silence."""

    path: str
    family: Family
    unread: tuple[str, ...] = ()


def loading_of_class(
    family: Family, target: str, inside: tuple[Inside, ...], unread: tuple[str, ...] = ()
) -> Loading:
    """The rules of a class of the family, and those of the models inside it.

    `unread` are the patterns of names that loading leaves out because the config says so.
    """
    own, of_type = loading_facts(target), loading_facts(family.model_type)
    if own.only is not None:
        inside = tuple(each for each in inside if each.path in own.only)
    kinds = [(target, family), *((each.family.base, each.family) for each in inside)]
    rules = tuple(_rules(family, target, inside))
    silent = (
        pattern
        for name, each in kinds
        for key in (each.model_type, name)
        for pattern in loading_facts(key).silent
    )
    taken = of_type.taken if own.taken is None else own.taken
    return Loading(
        renames=tuple(rule for rule in rules if not rule.operations),
        converters=tuple(rule for rule in rules if rule.operations),
        silent=tuple(dict.fromkeys(chain(silent, unread, *(each.unread for each in inside)))),
        buffers=tuple(dict.fromkeys(p for _, each in kinds for p in _buffers(each.model_type))),
        unmissed=own.unmissed,
        taken=taken or (),
        reports=of_type.of_library,
    )


def _rules(family: Family, target: str, inside: tuple[Inside, ...]) -> Iterator[Rule]:
    """The class's own; then its base model's, and those of the models inside that."""
    own = loading_facts(target)
    by_class, by_type = own.rules, loading_facts(family.model_type).rules or ()
    yield from _scoped(by_type if by_class is None else by_class, ("",))
    path = own.path_of_base(family.prefix)
    if target != family.base and path is not None:
        rest = by_type if by_class is not None else ()  # else they are the class's own already
        of_base = loading_facts(family.base).rules
        yield from _below(path, rest if of_base is None else of_base, family.prefix)
    for each in inside:
        yield from _below(each.path, _own(each.family), family.prefix)


def _own(family: Family) -> Rules:
    return loading_facts(family.base).rules or loading_facts(family.model_type).rules or ()


def _below(path: str, rules: Rules, prefix: str) -> Iterator[Rule]:
    return _scoped(rules, _prefixes(path, prefix))


def _scoped(rules: Rules, prefixes: tuple[str, ...]) -> Iterator[Rule]:
    for rule in rules:
        if isinstance(rule, Rule):
            yield rule._replace(prefixes=prefixes)
        else:
            pattern, replacement = rule
            yield Rule((pattern,), (replacement,), prefixes)


def _prefixes(path: str, prefix: str) -> tuple[str, ...]:
    """How names below a path begin, which the file may have with the base model's prefix or not."""
    scope = path.removeprefix(prefix).removeprefix(".")
    below = f"{scope}." if scope else ""
    return (f"{prefix}.{below}" if prefix else below, below)


def _buffers(model_type: str) -> Iterator[str]:
    facts = loading_facts(model_type)
    if facts.rotary:
        yield r"rotary_emb\.inv_freq"
    if facts.positions:
        yield r"(^|\.)position_ids$"


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return bool(patterns) and _together(patterns).search(name) is not None


@lru_cache(maxsize=64)
def _together(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"({pattern})" for pattern in patterns))
