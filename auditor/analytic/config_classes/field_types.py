"""The types of a config class's fields, checked as strictly as huggingface_hub checks them."""

from collections.abc import Iterator, Mapping

from auditor.analytic.config_classes.declarations import Kind

_PLAIN: Mapping[str, type] = {"float": float, "bool": bool, "str": str, "null": type(None)}


def is_of_kind(kind: Kind, value: object) -> bool:  # noqa: PLR0911 - one for each kind of type
    """Return whether huggingface_hub's strict dataclasses accept the value for a field.

    Strict means: 1 is not a float, 1.0 is not an int, and true is not 1.
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
            return any(value == each and _both_or_no_bool(value, each) for each in allowed)
        case ["list", *items]:
            if not isinstance(value, list):
                return False
            return all(is_of_kind(each, item) for each in items for item in value)
        case ["dict", *pair]:
            return isinstance(value, dict) and (not pair or _pairs_fit(pair, value))
    return False  # ["tuple"], which JSON does not have


def _both_or_no_bool(value: object, allowed: object) -> bool:
    """Return whether both values are bools or neither is; Python's == takes true for 1."""
    return isinstance(value, bool) is isinstance(allowed, bool)


def _pairs_fit(pair: list[Kind], value: Mapping[object, object]) -> bool:
    keys, values = pair
    return all(is_of_kind(keys, key) and is_of_kind(values, each) for key, each in value.items())


_WORDS: Mapping[str, str] = {
    "int": "an integer",
    "float": "a float",
    "bool": "true or false",
    "str": "a string",
    "null": "null",
}
_MANY: Mapping[str, str] = {"int": "integers", "float": "floats", "str": "strings"}


def kind_in_words(kind: Kind) -> str:
    """Describe the values that a field of the type accepts: "an integer or null"."""
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
