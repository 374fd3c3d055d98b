"""Settled: a config as its config class completes it, and ConfigFault: what it refuses of it.

A value is refused by the type of its field, as huggingface_hub has it, or by the class's own rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

from auditor.analytic.config_classes.declarations import ConfigClass, Kind, library
from auditor.errors import CheckpointError
from auditor.messages import described, named

_MOST = 32  # of one config: a reader needs no more, and a hostile one may have thousands


class Blame(StrEnum):
    """Where a config is refused."""

    LIBRARY = "library"  # checks of this version of it alone; a model could be built
    MODEL = "model"  # a part of the model cannot be as the config asks for it
    CONFIG = "config"  # what the tensors would be does not follow


class ConfigFault(NamedTuple):
    """One reason, and the keys that it is about."""

    reason: str  # "pad_token_id is 32000, and the embedding has rows 0 to 31999"
    keys: tuple[str, ...]  # with the path to them, e.g. "text_config.pad_token_id"
    blame: Blame = Blame.MODEL


class FaultyConfigError(CheckpointError):
    """No model can be built from a config, and what its tensors would be does not follow."""

    def __init__(self, faults: tuple[ConfigFault, ...], target: str) -> None:
        super().__init__("; ".join(fault.reason for fault in faults))
        self.faults = faults
        self.target = target


def one_per_cause(faults: Iterable[ConfigFault]) -> tuple[ConfigFault, ...]:
    """One fault for each cause: what a key is blamed for first explains the rest of it."""
    kept: list[ConfigFault] = []
    blamed: set[str] = set()
    for fault in faults:
        if len(kept) < _MOST and (not fault.keys or not blamed.issuperset(fault.keys)):
            kept.append(fault)
            blamed.update(fault.keys)
    return tuple(kept)


def fault_sentence(fault: ConfigFault, target: str) -> str:
    """The fault in a sentence: which class or library refuses what."""
    match fault.blame:
        case Blame.LIBRARY:
            return f"{library().short} refuses it: {fault.reason}"
        case Blame.MODEL:
            return f"{fault.reason}: {library().short} cannot build {target}"
        case Blame.CONFIG:
            return fault.reason
        case never:
            assert_never(never)


Hook = Callable[["Settled", dict[str, Any]], None]  # the config, and the keys that are not fields

# What Python raises at a value of the wrong kind or size: transformers looks at few before it
# works with them.
WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Settled:
    """The attributes of a config instance in transformers, by the class's own keys.

    A value that a field's type forbids is a fault, and the default stands in its place, so that
    the other faults of the config are found, too.
    """

    def __init__(self, kind: ConfigClass, path: str, around: "Settled | None" = None) -> None:
        self.kind = kind
        self.path = path  # of a config inside a config: "text_config."
        # Shared with the configs inside: faults, and the paths of those whose layers differ in ways
        # that no closed form knows.
        self.faults: list[ConfigFault] = around.faults if around else []
        self.apart: list[str] = around.apart if around else []
        self.values: dict[str, Any] = {}
        self.labels: int | None = None  # how many, whatever they are called
        self.spelt: dict[str, str] = {}  # what the config calls keys that are kept by other names
        self.refused: set[str] = set()  # keys whose value is not the config's: it was refused
        self.by_layer: dict[int, dict[str, Any]] | None = None  # what single layers have for all

    @property
    def uneven(self) -> frozenset[str]:
        """The keys in which single layers differ from the others."""
        return frozenset(key for own in (self.by_layer or {}).values() for key in own)

    def of_layer(self, number: int) -> "Settled":
        """The same as a single layer has it."""
        own = (self.by_layer or {}).get(number, {})
        single = Settled(self.kind, self.path)
        single.values = {**self.values, **own}
        return single

    def own(self, key: str) -> str:
        """The class's own key of that name."""
        return self.kind.attribute_map.get(key, key)

    def __getitem__(self, key: str) -> Any:
        return self.values[self.own(key)]

    def __contains__(self, key: str) -> bool:
        return self.own(key) in self.values

    def get(self, key: str, otherwise: Any = None) -> Any:
        return self.values.get(self.own(key), otherwise)

    def part(self, key: str) -> "Settled | None":
        """The config inside this one under that key, where its class is known."""
        found = self.values.get(key)
        return found if isinstance(found, Settled) else None

    def set(self, key: str, value: Any, *, called: str | None = None) -> bool:
        """Set a key, unless its type forbids the value; whether it is set.

        A key by another name than the class's own is set unchecked, as in transformers.
        `called`: what a config calls it, where the class stores it under another name.
        """
        if key in self.kind.read_only:
            self.refuse(f"{self.path}{key} cannot be set: the class works it out", key)
            return False
        field = self.kind.fields.get(key)
        if field is not None and not is_of_kind(field.kind, value):
            what = f"{self.named(called or key)} is {described(value)}"
            self.refuse(f"{what}, expected {kind_in_words(field.kind)}", called or key)
            self.refused.add(key)
            return False
        self.values[self.own(key)] = value
        return True

    def named(self, key: str) -> str:
        """The key with its path, as the config spells it."""
        return named(self.path + self.spelt.get(key, key))

    def stated(self, key: str) -> str:
        """The key as a config states it, where the class keeps it behind a property."""
        return self.named(key.removeprefix("_"))

    def shown(self, *keys: str) -> str:
        """`num_hidden_layers 2`, `hidden_size 32 and num_attention_heads 5`."""
        return " and ".join(f"{self.named(key)} {described(self.get(key))}" for key in keys)

    def refuse(self, reason: str, *keys: str) -> None:
        if len(self.faults) < _MOST:
            paths = tuple(self.path + key for key in keys)
            self.faults.append(ConfigFault(reason, paths, Blame.LIBRARY))

    @contextmanager
    def working_with(self, *keys: str) -> Iterator[None]:
        """Work with these keys as transformers does: where it stumbles over them, they are refused.

        So every value of a wrong kind is refused where it is, without a check of its own for each.
        """
        try:
            yield
        except WRONG as error:
            names = " and ".join(f"{self.stated(key)} ({described(self.get(key))})" for key in keys)
            self.refuse(f"{names} cannot be used: {error_text(error)}", *keys)


def error_text(error: BaseException) -> str:
    text = " ".join(str(error).split())[:150]
    return f"there is no {text}" if isinstance(error, KeyError) else text


def copied_object(values: Mapping[str, Any]) -> dict[str, Any]:
    """An object whose own objects can be changed, and are not the config's any more."""
    return {
        key: copied_object(value) if isinstance(value, dict) else value
        for key, value in values.items()
    }


_PLAIN: Mapping[str, type] = {"float": float, "bool": bool, "str": str, "null": type(None)}


def is_of_kind(kind: Kind, value: object) -> bool:  # noqa: PLR0911 - one for each kind of type
    """Whether huggingface_hub's strict dataclasses take the value for a field of that type.

    They are strict: 1 is not a float, 1.0 is not an int, and true is not 1.
    """
    if kind == "any":
        return True
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(kind, str):
        return isinstance(value, _PLAIN[kind])
    match kind:
        case ["or", *sides]:
            return any(is_of_kind(side, value) for side in sides)
        case ["one of", *allowed]:
            return any(value == each and _same_side(value, each) for each in allowed)
        case ["list", *items]:
            if not isinstance(value, list):
                return False
            return all(is_of_kind(each, item) for each in items for item in value)
        case ["dict", *pair]:
            return isinstance(value, dict) and (not pair or _pairs_fit(pair, value))
    return False  # ["tuple"], which JSON has not


_WORDS: Mapping[str, str] = {
    "int": "an integer",
    "float": "a float",
    "bool": "true or false",
    "str": "a string",
    "null": "null",
}
_MANY: Mapping[str, str] = {"int": "integers", "float": "floats", "str": "strings"}


def kind_in_words(kind: Kind) -> str:
    """What a field of that type takes, in words: "an integer or null"."""
    words = list(dict.fromkeys(_words(kind)))
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else "nothing"


def _words(kind: Kind) -> Iterator[str]:
    match kind:
        case str():
            yield _WORDS.get(kind, "anything")
        case ["or", *sides]:
            for side in sides:
                yield from _words(side)
        case ["one of", *allowed]:
            yield from (f'"{each}"' for each in allowed)
        case ["list", str() as item]:
            yield f"a list of {_MANY.get(item, 'anything')}"
        case ["list", *_]:
            yield "a list"
        case ["dict", *_]:
            yield "an object"


def _same_side(value: object, allowed: object) -> bool:
    """True equals 1 in Python, and not where types are checked."""
    return isinstance(value, bool) is isinstance(allowed, bool)


def _pairs_fit(pair: list[Kind], value: Mapping[object, object]) -> bool:
    keys, values = pair
    return all(is_of_kind(keys, key) and is_of_kind(values, each) for key, each in value.items())
