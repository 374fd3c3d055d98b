"""Edits of values in a JSON object, and the text of an object after them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from auditor.bounded.json_text import MAX_DEPTH, MAX_VALUES, bounds_fault


class _Absent:
    """The type of ABSENT, the value of a key that does not exist; JSON's null is a value."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


class Edit(NamedTuple):
    """A change of one value in a JSON object; ABSENT stands for a key that does not exist."""

    path: tuple[str, ...]
    before: Any
    after: Any


def json_edits(
    before: Mapping[str, Any], after: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[Edit]:
    """Yield the edits that turn `before` into `after`; nested objects are edited key by key."""
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key, ABSENT), after.get(key, ABSENT)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from json_edits(old, new, (*path, key))
        elif not _is_equal(old, new):
            yield Edit((*path, key), old, new)


def _is_equal(old: Any, new: Any) -> bool:
    return repr(old) == repr(new)  # NaN equals NaN, and true is not 1


def edited_json(content: bytes, edits: Sequence[Edit]) -> bytes:
    """Apply edits to the text of a JSON object, which is written anew in its order of keys.

    A new key goes to its alphabetical place if the keys are sorted, else to the end. Raise
    ValueError or TypeError if the text is not a JSON object, or if an edit's path leads through
    something that is not an object.
    """
    if not edits:
        return content
    values = _object(content)
    for edit in edits:
        *within, key = edit.path
        place = values
        for name in within:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise TypeError(f"{name} is not an object")
        _set(place, key, edit.after)
    return _text(content, values, indent=2)


def _set(place: dict[str, Any], key: str, value: Any) -> None:
    is_sorted = list(place) == sorted(place)
    is_new = key not in place
    if value is ABSENT:
        place.pop(key, None)
        return
    place[key] = value
    if is_new and is_sorted:
        ordered = sorted(place.items())
        place.clear()
        place.update(ordered)


def renamed_keys(content: bytes, renames: Mapping[str, str], within: str | None = None) -> bytes:
    """Rename keys of a JSON object, or of the object under its key `within`; keep their order.

    Raise ValueError or TypeError if there is no such object.
    """
    values = _object(content)
    place = values if within is None else values.get(within)
    if not isinstance(place, dict):
        raise TypeError(f"{within} is not an object")
    renamed = {renames.get(name, name): value for name, value in place.items()}
    if within is None:
        return _text(content, renamed)
    return _text(content, {**values, within: renamed}, indent=2)


def _object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object; raise ValueError or TypeError if it is not one within the limits."""
    if fault := bounds_fault(content, MAX_DEPTH, MAX_VALUES):
        raise ValueError(f"the JSON {fault}")
    values = json.loads(content.decode())
    if not isinstance(values, dict):
        raise TypeError("not a JSON object")
    return values


def _text(old: bytes, values: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return an object as JSON: compact or, with an indent, as save_pretrained writes it."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(values, indent=indent, separators=separators, ensure_ascii=old.isascii())
    return (text if indent is None else f"{text}\n").encode(errors="surrogatepass")
