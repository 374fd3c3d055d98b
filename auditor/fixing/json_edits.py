"""Edits of a JSON file that leave the rest of it as its author wrote it: order, indent, newline."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

_INDENT = re.compile(rb'\A\s*\{\s*?\n([ \t]+)"')


class _Absent:
    """Stands for a key that is not there; null is a value."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


class Edit(NamedTuple):
    """One value of a JSON object, before and after; ABSENT on the side where it is not there."""

    path: tuple[str, ...]
    before: Any
    after: Any


def json_edits(
    before: Mapping[str, Any], after: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[Edit]:
    """What makes one object the other, objects within them key by key."""
    for key in dict.fromkeys((*before, *after)):
        one, other = before.get(key, ABSENT), after.get(key, ABSENT)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from json_edits(one, other, (*path, key))
        elif repr(one) != repr(other):  # NaN is NaN, and true is not 1
            yield Edit((*path, key), one, other)


def edited_json(content: bytes, edits: Sequence[Edit]) -> bytes:
    """The file with these values. Raises ValueError where it is no object, or has no such place."""
    values = json.loads(content)
    if not isinstance(values, dict):
        raise TypeError("not a JSON object")
    for edit in edits:
        *folders, key = edit.path
        within = values
        for folder in folders:
            within = within.setdefault(folder, {})
            if not isinstance(within, dict):
                raise TypeError(f"{folder} is not an object")
        _put(within, key, edit.after)
    return as_written(content, values)


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    """Set or take out one key; a new one takes its place in the alphabet where the others do."""
    if value is ABSENT:
        values.pop(key, None)
        return
    in_order = key not in values and list(values) == sorted(values)
    values[key] = value
    if in_order:
        ordered = sorted(values.items())
        values.clear()
        values.update(ordered)


def as_written(content: bytes, values: Mapping[str, Any]) -> bytes:
    """The values as JSON in the style of `content`."""
    indent = _INDENT.match(content)
    compact = indent is None and b'": ' not in content
    text = json.dumps(
        values,
        indent=indent[1].decode() if indent else None,
        separators=(",", ":") if compact else None,
        ensure_ascii=content.isascii(),
    )
    return text.encode() + (b"\n" if content.endswith(b"\n") else b"")
