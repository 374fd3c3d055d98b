"""The records of engines' own loaders, which `make engines` writes by engine and version.

An entry is an architecture (vLLM, llama.cpp) or a model type (MLX). The engine loads the state dict
of one class of transformers, as save_pretrained writes it. A probe changes one thing in a small
save of that class; the entry says whether the engine's loader then still loads the save.

A kind is a tensor's name with each number replaced by a star: `model.layers.*.mlp.up_proj.weight`.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Raw, Struct, field
from msgspec.json import decode

from auditor.engines.schemes import DeclaredSchemes

ENGINES = ("vllm", "mlx", "llama.cpp")
OF_ADAPTERS = ("vllm", "peft")  # those that load adapters
_DATA = Path(__file__).parents[1] / "data" / "engines"


class SoundVariant(Struct, frozen=True):
    """A set of kinds that a sound save of the class has, for some values of the config's flags."""

    kinds: tuple[int, ...]  # positions in the entry's list
    loads: bool | str  # a string is the reason why the engine refuses a sound save
    when: Mapping[str, Any] = {}  # the changes, and the flags with which alone it is refused
    # The config of a refused save without its sizes: another flag or key may change the outcome.
    tried: Mapping[str, Any] = {}
    stays: bool = False  # whether it is refused with each change of names, too,
    mends: tuple[str, ...] = ()  # but for these probes
    spares: tuple[str, ...] = ()  # keys that the entry requires and such a save loads without


class KeyReading(Struct, frozen=True):
    """An engine's use of a value that transformers 4 and 5 write in different places."""

    rope_parameters: Literal["read", "ignored", "unseen"] = "unseen"
    top: Literal["read", "ignored", "unseen"] = "unseen"
    default: float | None = None  # the value that the engine takes where it ignores the config's
    tensor: str = ""  # a tensor of the class that the engine ignores where a config lacks the key


class EngineEntry(Struct, frozen=True):
    """The record of one architecture or model type."""

    class_: str = field(name="class", default="")
    model_type: str = ""
    requires: tuple[str, ...] = ()  # config keys without which a sound save is refused
    by_tensors: tuple[str, ...] = ()  # those without which it refuses a tensor of the save
    unclear: tuple[str, ...] = ()  # config keys that each tried save has, and newer saves lack
    fills: Mapping[str, Any] = {}  # for each of them, where its value stands, or the value itself
    defaults: Mapping[str, int] = {}  # the engine's value of a required key that a config lacks
    kinds: tuple[str, ...] = ()
    variants: tuple[SoundVariant, ...] = ()
    raises: frozenset[str] = frozenset()  # probes, with `#3` for the kind at position 3
    loads: frozenset[str] = frozenset()
    why: Mapping[str, str] = {}  # messages of the loader
    reads: Mapping[str, KeyReading] = {}
    ignores: tuple[str, ...] = ()  # config keys that change nothing in the engine
    # Keys that shapes follow from and the engine does not read: the rule by which it takes the
    # value, such as `4*hidden_size`, or the one value of a flag; "" if the rule was not found.
    guards: Mapping[str, str | bool] = {}
    needs: str = ""
    not_tried: str = ""

    def ids(self, probe: str, kind: str = "") -> frozenset[str]:
        """Return the texts by which a change is recorded."""
        names = {f"{probe} {kind}" if kind else probe}
        if kind in self.kinds:
            names.add(f"{probe} #{self.kinds.index(kind)}")
        return frozenset(names)

    def outcome(self, probe: str, kind: str = "") -> bool | None:
        """Return whether the engine loads a save with this change; None if it was not tried."""
        names = self.ids(probe, kind)
        if not names.isdisjoint(self.raises):
            return False
        return None if names.isdisjoint(self.loads) else True

    def tried(self, start: str) -> tuple[str, ...]:
        """Return the probes that begin with some words, sorted."""
        return tuple(sorted(one for one in self.raises | self.loads if one.startswith(start)))


class Knowledge(Struct, frozen=True):
    """The records of one version of an engine."""

    engine: str
    version: str
    date: str
    keyed_by: Literal["architectures", "model_type"]
    registered: frozenset[str]
    entries: Mapping[str, Raw]  # decoded one by one, because an audit needs one
    closed: bool = False  # whether it refuses every name that it does not register
    classes: frozenset[str] = frozenset()  # of the transformers that it falls back on
    with_: Mapping[str, str] = field(name="with", default_factory=dict)
    aliases: Mapping[str, str] = {}
    general: Mapping[str, str] = {}  # probes whose outcome is the same for all entries
    bits: Mapping[str, frozenset[int]] = {}  # of the tried packings, by name
    schemes: tuple[DeclaredSchemes, ...] = ()
    # The keys that the engine reads of a declared quantization and that decide, by method.
    scheme_keys: Mapping[str, tuple[str, ...]] = {}

    def entry(self, name: str) -> EngineEntry | None:
        """Return the entry of an architecture or a model type; None if nothing was recorded."""
        raw = self.entries.get(self.aliases.get(name, name))
        return None if raw is None else decode(raw, type=EngineEntry)

    def outcome(self, entry: EngineEntry | None, probe: str, kind: str = "") -> bool | None:
        """Return whether the engine loads such a save, by the entry or for all of them."""
        own = entry.outcome(probe, kind) if entry else None
        if own is not None or kind:
            return own
        return {"loads": True, "raises": False}.get(self.general.get(probe, ""))


def without_sizes(value: Any) -> Any:
    """Return a config's value with 1 for each number but 0, and lists as sets in order."""
    if isinstance(value, Mapping):
        return {key: without_sizes(inner) for key, inner in value.items()}
    if isinstance(value, list):
        found = {repr(one): one for one in map(without_sizes, value)}
        return [found[text] for text in sorted(found)]
    return value if value is None or isinstance(value, bool | str) else int(bool(value))


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; None if the config has no such key."""
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def value_by_rule(rule: str, config: Mapping[str, Any]) -> Any:
    """Return the value at a path, or the product or the quotient of two.

    Return None if a product or a quotient is no positive integer.
    """
    first, *rest = re.split(r"([*/])", rule)
    if not rest:
        return value_at(config, rule)
    sign, second = rest
    one, other = (
        int(part) if part.isdecimal() else value_at(config, part) for part in (first, second)
    )
    if type(one) is not int or type(other) is not int or one <= 0 or other <= 0:
        return None
    if sign == "*":
        return one * other
    return None if one % other else one // other


@cache
def knowledge_of(engine: str) -> Knowledge:
    """Return the records of an engine."""
    return decode((_DATA / f"{engine}.json").read_bytes(), type=Knowledge)
