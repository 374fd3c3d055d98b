"""Edits of a JSON text: the values are the new ones, and the rest stays byte for byte."""

import json
import math
from itertools import takewhile

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.json_texts import KEYS, Text, json_texts, value_at

from auditor.diagnosis.json_edits import ABSENT, Edit, edited_json, json_edits, renamed_keys

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
objects = st.dictionaries(st.text(), values, max_size=6)
indents = st.none() | st.integers(1, 4) | st.just("\t")


def is_equal(one, other):
    """Whether two values are equal and of one type; NaN equals NaN, and keys have no order."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def edited(written: Text, *edits: Edit) -> str:
    return edited_json(written.text.encode(), edits).decode()


def changed_parts(before: str, after: str) -> tuple[str, str]:
    """What is left of two texts without the start and the end that they share."""
    start = shared_length(before, after)
    before, after = before[start:], after[start:]
    end = shared_length(before[::-1], after[::-1])
    return before[: len(before) - end], after[: len(after) - end]


def shared_length(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def drawn_path(data, paths):
    assume(paths)
    return data.draw(st.sampled_from(sorted(paths)))


@given(written=json_texts(), value=values, data=st.data())
def test_a_new_value_takes_the_place_of_the_old_one_alone(written, value, data):
    path = drawn_path(data, written.spans)
    start, stop = written.spans[path]
    after = edited(written, Edit(path, None, value))
    assert after.startswith(written.text[:start])
    assert after.endswith(written.text[stop:])
    assert is_equal(json.loads(after[start : len(after) - len(written.text[stop:])]), value)
    expected = json.loads(written.text)
    value_at(expected, path[:-1])[path[-1]] = value
    assert is_equal(json.loads(after), expected)


@given(written=json_texts(), data=st.data())
def test_a_key_is_removed_with_its_comma_and_nothing_else(written, data):
    path = drawn_path(data, written.spans)
    after = edited(written, Edit(path, None, ABSENT))
    expected = json.loads(written.text)
    del value_at(expected, path[:-1])[path[-1]]
    assert is_equal(json.loads(after), expected)
    if path not in written.repeated:
        assert changed_parts(written.text, after)[1] == ""


@given(written=json_texts(), value=values, data=st.data())
def test_a_new_key_is_inserted_and_nothing_else_changes(written, value, data):
    parent = drawn_path(data, written.objects)
    key = data.draw(st.sampled_from(KEYS) | st.text())
    expected = json.loads(written.text)
    within = value_at(expected, parent)
    assume(key not in within)
    after = edited(written, Edit((*parent, key), ABSENT, value))
    within[key] = value
    assert is_equal(json.loads(after), expected)
    assert changed_parts(written.text, after)[0].strip() == ""
    start, _ = written.objects[parent]
    assert after.startswith(written.text[:start])


@given(written=json_texts(repeats=False), value=values, data=st.data())
def test_a_new_key_stands_in_the_alphabet_if_the_keys_do_and_last_otherwise(written, value, data):
    parent = drawn_path(data, written.objects)
    before = list(value_at(json.loads(written.text), parent))
    key = data.draw(st.sampled_from(KEYS) | st.text())
    assume(key not in before)
    after = list(value_at(json.loads(edited(written, Edit((*parent, key), ABSENT, value))), parent))
    is_sorted = before == sorted(before)
    assert after == (sorted([*before, key]) if is_sorted else [*before, key])


@given(written=json_texts(), data=st.data())
def test_several_new_values_change_the_text_as_one_after_the_other_does(written, data):
    assume(
        written.text.isascii()
    )  # else removing its last other letter changes how text is escaped
    paths = [path for path in written.spans if path not in written.objects]
    assume(paths)
    chosen = data.draw(st.lists(st.sampled_from(sorted(paths)), unique=True))
    edits = [Edit(path, None, data.draw(values)) for path in chosen]
    one_by_one = written
    for edit in edits:
        one_by_one = one_by_one._replace(text=edited(one_by_one, edit))
    assert edited(written, *edits) == one_by_one.text


@given(written=json_texts())
def test_edits_to_the_values_that_stand_there_change_no_byte(written):
    values = json.loads(written.text)
    edits = [Edit(path, None, value_at(values, path)) for path in written.spans]
    assert edited(written, *edits) == written.text
    assert edited(written, Edit(("absent",), ABSENT, ABSENT)) == written.text


@given(written=json_texts(), after=objects)
def test_the_edits_between_two_objects_make_one_of_the_other(written, after):
    edits = json_edits(json.loads(written.text), after)
    assert is_equal(json.loads(edited(written, *edits)), after)


@given(before=objects, after=objects, indent=indents)
def test_a_text_that_python_wrote_is_edited_to_what_python_writes(before, after, indent):
    """Only the order of keys may differ: both orders are sorted here."""
    before, after = json.dumps(before, sort_keys=True), json.dumps(after, sort_keys=True)
    written, expected = (
        json.dumps(json.loads(one), sort_keys=True, indent=indent) for one in (before, after)
    )
    assume(json.loads(before))  # an empty object shows no style
    edits = tuple(json_edits(json.loads(before), json.loads(after)))
    assume(all(edit.after is ABSENT or edit.before is ABSENT for edit in edits))
    assert edited_json(written.encode(), edits).decode() == expected


@given(written=json_texts(repeats=False), data=st.data())
def test_keys_are_renamed_in_place(written, data):
    pairs = json.loads(written.text, object_pairs_hook=list)
    assume(pairs)
    name = data.draw(st.sampled_from([key for key, _ in pairs]))
    new = data.draw(st.text())
    after = renamed_keys(written.text.encode(), {name: new}).decode()
    renamed = [(new if key == name else key, value) for key, value in pairs]
    assert str(json.loads(after, object_pairs_hook=list)) == str(renamed)
    old_part, new_part = changed_parts(written.text, after)
    longest = max(len(json.dumps(name)), len(json.dumps(new)))
    assert max(len(old_part), len(new_part)) <= longest


def test_keys_of_an_inner_object_are_renamed_where_it_is_read():
    content = b'{"m": {"a": 1}, "a": 2,\r\n"m" :{ "a":1e400 , "b":"a"}}'
    after = b'{"m": {"a": 1}, "a": 2,\r\n"m" :{ "c":1e400 , "b":"a"}}'
    assert renamed_keys(content, {"a": "c"}, "m") == after


def test_true_is_not_one_and_nan_is_nan():
    assert list(json_edits({"a": 1, "b": math.nan}, {"a": True, "b": math.nan})) == [
        Edit(path=("a",), before=1, after=True)
    ]


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ('{\n "a": 1,\n "c": 2\n}\n', "a", 3, '{\n "a": 3,\n "c": 2\n}\n'),
        ('{\n "a": 1,\n "c": 2}', "b", 3, '{\n "a": 1,\n "b": 3,\n "c": 2}'),
        ('{\n "b": 1\n}', "a", 3, '{\n "a": 3,\n "b": 1\n}'),
        ('{"c": 1, "a": 2}', "b", 3, '{"c": 1, "a": 2, "b": 3}'),
        ('{"c": 1}', "d", 3, '{"c": 1, "d": 3}'),
        ('{"c":1,"a":2}', "b", [1, 2], '{"c":1,"a":2,"b":[1,2]}'),
        ('{"c":1,"a":2}', "c", ABSENT, '{"a":2}'),
        ('{\r\n\t"a": 1e400,\r\n\t"b": 1}\r\n', "b", 2, '{\r\n\t"a": 1e400,\r\n\t"b": 2}\r\n'),
        ('{\n  "a": 1\n, "b": 2\n}', "c", 3, '{\n  "a": 1\n, "b": 2\n, "c": 3\n}'),
        ('{\n\t"t": {\n\t\t"v": 1}}', "t.v", 2, '{\n\t"t": {\n\t\t"v": 2}}'),
        ('{\n\t"t": {}\n}', "t.v", [1], '{\n\t"t": {\n\t\t"v": [\n\t\t\t1\n\t\t]\n\t}\n}'),
        ('{"m":{}}', "m.v", {"x": 1}, '{"m":{"v":{"x":1}}}'),
        ('{\n  "l": ["a", "b"],\n  "m": 1\n}', "l", ["c"], '{\n  "l": ["c"],\n  "m": 1\n}'),
        ('{\n  "l": [\n    1\n  ]\n}', "l", [2, 3], '{\n  "l": [\n    2,\n    3\n  ]\n}'),
        ('{"a": 1, "a": 2, "b": 3}', "a", 5, '{"a": 1, "a": 5, "b": 3}'),
        ('{"a": 1, "b": 3, "a": 2}', "a", ABSENT, '{"b": 3}'),
        ('{"é": 1, "n": 1}', "n", "ß", '{"é": 1, "n": "ß"}'),
        ('{"n": 1}', "n", "ß", '{"n": "\\u00df"}'),
    ],
)  # fmt: skip
def test_an_edit_is_written_in_the_style_of_its_neighbours(before, path, value, after):
    edit = Edit(tuple(path.split(".")), None, value)
    assert edited_json(before.encode(), (edit,)) == after.encode()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[]", "not a JSON object"),
        (b'{"a": 1}', "a is not an object"),
        (b"{}", "a is not an object"),
        (b'\xef\xbb\xbf{"a": {}}', "Expecting value"),
        (b'{"a": {}} x', "Extra data"),
        (b'{"a": \xff}', "decode"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested"),
        (b'{"a": [' + b"1," * 2_000_000 + b"1]}", "JSON values"),
    ],
    ids=range(8),
)
def test_a_text_that_cannot_be_edited_raises(content, why):
    with pytest.raises((TypeError, ValueError), match=why):
        edited_json(content, (Edit(("a", "b"), ABSENT, 1),))
