"""Loading: what transformers does to a stored name before it looks for it in a class."""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic.renaming_rules import ChangedName, Rewritten, Rule, conversions_by, renamed_by

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


class UnknownName(NamedTuple):
    """What loading makes of a stored name that a class does not have."""

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
        """Those of the names that the rules of all classes change."""
        return renamed_by(self.legacy, names)

    def looked_for(self, names: Collection[str]) -> list[str]:
        """The names as all renames make them, in their order."""
        renamed = self.renamed(names)
        changed = self.of_old(renamed)
        return [changed[name].name if name in changed else name for name in renamed]

    def conversions(self, names: Iterable[str]) -> dict[str, Rewritten]:
        """Those of the renamed names that a conversion takes: other tensors are made of them."""
        return conversions_by(self.converters, names) if self.converters else {}

    def converted(self, names: Collection[str]) -> list[tuple[str, ...]]:
        """The names in memory that each renamed name stands for: itself, but for conversions."""
        taken = self.conversions(names)
        return [taken[name].made if name in taken else (name,) for name in names]

    def reported(self, stored: Collection[str]) -> list[tuple[str, ...]]:
        """How loading reports each stored name, should it not find it."""
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
        """What loading makes of each stored name, if the class does not have it."""
        return [
            UnknownName(
                silent=all(_any(self.silent, name) or _any(self.buffers, name) for name in names),
                buffer=any(_any(self.buffers, name) for name in names),
            )
            for names in self.reported(stored)
        ]

    def takes(self, name: str) -> bool:
        """Whether an optional buffer of the class is one that it still has."""
        return _any(self.taken, name)


PLAIN = Loading()  # the rules of all classes and no more


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return bool(patterns) and _together(patterns).search(name) is not None


@lru_cache(maxsize=64)
def _together(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"({pattern})" for pattern in patterns))
