"""Edit values of a JSON text; all other bytes of the text stay unchanged.

An object's text is cut into its members. An edit changes the text of one value; a new member is
written in the style of its neighbours. The text is parsed before it is cut, so cutting needs no
checks of its own.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

from auditor.bounded.json_text import MAX_DEPTH, MAX_VALUES, bounds_fault
from auditor.messages import named

# A decoder that finds the end of a value; numbers of any length stay text.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_LINE = re.compile(r"\r?\n[ \t]*")
_INDENT = re.compile(r"\{[ \t\r]*\n([ \t]+)\"")


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
    """Apply edits to the text of a JSON object.

    If a key occurs twice, its last value is edited, because parsers return that one; a removal
    removes both. Raise ValueError or TypeError if the text is not a JSON object, or an
    edit's path leads through something that is not an object.
    """

    def edit(text: str, style: _Style) -> str:
        return _edited(text, edits, style, "", ": ")

    return _with_object(content, edit)


def renamed_keys(content: bytes, renames: Mapping[str, str], within: str | None = None) -> bytes:
    """Rename keys of a JSON object, or of the object under its key `within`; keep their order.

    Raise ValueError or TypeError if there is no such object.
    """

    def rename(text: str, style: _Style) -> str:
        members, tail = _members(text)
        for at, member in enumerate(members):
            if member.name in renames:
                members[at] = member._replace(key=style.text(renames[member.name]))
        return _joined(members, tail)

    def rename_within(text: str, style: _Style) -> str:
        members, tail = _members(text)
        at = max((at for at, one in enumerate(members) if one.name == within), default=None)
        if at is None or not members[at].value.startswith("{"):
            raise TypeError(f"{within} is not an object")
        members[at] = members[at]._replace(value=rename(members[at].value, style))
        return _joined(members, tail)

    return _with_object(content, rename if within is None else rename_within)


# --- the text of an object ---------------------------------------------------------------------


class _Member(NamedTuple):
    """A member of an object: the text of its key, its value and the space around them."""

    lead: str  # the text between the previous member, or the brace, and the key
    name: str  # the key without quotes and escapes
    key: str
    colon: str  # the colon with the space around it
    value: str  # the value's text; "" for a new member


class _Style(NamedTuple):
    """The style of a JSON text: its indentation, and whether it escapes non-ASCII characters."""

    is_ascii: bool
    unit: str  # one level of indentation; "" if not indented

    def text(self, name: str) -> str:
        return json.dumps(name, ensure_ascii=self.is_ascii)


def _with_object(content: bytes, change: Callable[[str, _Style], str]) -> bytes:
    """Return `content` after `change` has edited the text of its JSON object.

    Raise ValueError or TypeError if the content is not a JSON object within the limits.
    """
    if fault := bounds_fault(content, MAX_DEPTH, MAX_VALUES):
        raise ValueError(f"the JSON {fault}")
    text = content.decode()
    if not isinstance(_DECODER.decode(text), dict):
        raise TypeError("not a JSON object")
    start, stop = text.index("{"), text.rindex("}") + 1
    indent = _INDENT.match(text, start)
    style = _Style(is_ascii=text.isascii(), unit=indent[1] if indent else "")
    return (text[:start] + change(text[start:stop], style) + text[stop:]).encode()


def _members(text: str) -> tuple[list[_Member], str]:
    """Split the text of a JSON object into its members and the space before the closing brace."""
    members, end = list[_Member](), 1
    while (start := text.find('"', end)) != -1:
        name, key_end = _DECODER.raw_decode(text, start)
        value_start = _COLON.match(text, key_end).end()  # type: ignore[union-attr]
        _, value_end = _DECODER.raw_decode(text, value_start)
        members.append(
            _Member(
                lead=text[end:start],
                name=name,
                key=text[start:key_end],
                colon=text[key_end:value_start],
                value=text[value_start:value_end],
            )
        )
        end = value_end
    return members, text[end:-1]


def _joined(members: Sequence[_Member], tail: str) -> str:
    inside = "".join(f"{one.lead}{one.key}{one.colon}{one.value}" for one in members)
    return f"{{{inside}{tail}}}"


def _edited(text: str, edits: Sequence[Edit], style: _Style, line: str, colon: str) -> str:
    """Edit the text of an object; `line` is the line break and indentation before its key, or "".

    A new member is inserted in alphabetical order if the members are sorted, else at the end.
    """
    members, tail = _members(text)
    if members:
        first_lead, colon = members[0].lead, members[0].colon
    else:
        first_lead, tail = (f"{line}{style.unit}", line) if line and style.unit else ("", "")
    space = first_lead if "\n" in first_lead else colon.partition(":")[2]
    separator = members[1].lead if len(members) > 1 else f",{space}"
    members[:1] = [one._replace(lead=separator) for one in members[:1]]
    is_sorted = all(one.name <= other.name for one, other in pairwise(members))

    # If two members have the same name, the last member counts.
    last = {member.name: at for at, member in enumerate(members)}
    for key, own in _by_key(edits).items():
        at = last.setdefault(key, len(members))
        if at == len(members):
            members.append(_Member(separator, key, style.text(key), colon, ""))
        members[at] = members[at]._replace(value=_edited_value(members[at], own, style))
    result = [member for member in members if members[last[member.name]].value]
    if not result:
        return "{}" if '"' in text else text
    if is_sorted:
        result.sort(key=lambda member: member.name)
    result[0] = result[0]._replace(lead=first_lead)
    return _joined(result, tail)


def _by_key(edits: Sequence[Edit]) -> dict[str, list[Edit]]:
    """Map each key of an object to its edits, in order."""
    edits_by_key: dict[str, list[Edit]] = {}
    for edit in edits:
        edits_by_key.setdefault(edit.path[0], []).append(edit)
    return edits_by_key


def _edited_value(member: _Member, edits: Sequence[Edit], style: _Style) -> str:
    """Return the text of a member's value after the edits; "" if the edits remove the member."""
    for is_whole, group in groupby(edits, lambda edit: len(edit.path) == 1):
        value = member.value
        if is_whole:
            *_, last = group
            value = _new_value(member, last.after, style)
        elif value.startswith("{"):
            inner = [edit._replace(path=edit.path[1:]) for edit in group]
            value = _edited(value, inner, style, _line(member.lead), member.colon)
        else:
            raise TypeError(f"{named(member.name)} is not an object")
        member = member._replace(value=value)
    return member.value


def _new_value(member: _Member, value: Any, style: _Style) -> str:
    """Return the text of a new value, on one line if the old list or object is on one line.

    Return the old text if the values are equal, and "" if the new value is ABSENT.
    """
    old, line = member.value, _line(member.lead)
    if value is ABSENT:
        return ""
    if old and _is_equal(json.loads(old), value):
        return old
    space = member.colon.partition(":")[2]
    is_on_one_line = len(old) > len("[]") and old[0] in "[{" and "\n" not in old
    is_indented = bool(line and style.unit) and not is_on_one_line
    text = json.dumps(
        value,
        ensure_ascii=style.is_ascii,
        separators=("," if is_indented else f",{space}", f":{space}"),
        indent=style.unit if is_indented else None,
    )
    return text.replace("\n", line) if is_indented else text


def _line(lead: str) -> str:
    """Return the line break before a key and its indentation; "" without a line break."""
    line_break = _LINE.search(lead)
    return line_break[0] if line_break else ""
