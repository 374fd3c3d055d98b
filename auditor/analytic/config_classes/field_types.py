"""The types of a config's fields, and whether a JSON value is of one, as huggingface_hub has it."""

from collections.abc import Iterator, Mapping
from typing import Any

# "int", "float", "bool", "str", "null", "any"; or a list: ["or", *kinds], ["list", kind],
# ["dict", kind of keys, kind of values], ["one of", *values]; ["list"] and ["dict"] of anything.
Kind = Any

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
