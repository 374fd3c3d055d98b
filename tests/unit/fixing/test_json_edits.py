"""Edits of a JSON file: the values are the new ones, and the rest is as its author wrote it."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.fixing.json_edits import ABSENT, Edit, edited_json, json_edits

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
objects = st.dictionaries(st.text(), values, max_size=6)
indents = st.none() | st.integers(1, 4) | st.just("\t")


def same(one, other):
    """Of one type, NaN included, in any order of keys."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(before=objects, after=objects, indent=indents)
def test_the_edits_between_two_objects_make_one_of_the_other(before, after, indent):
    content = json.dumps(before, indent=indent).encode()
    edited = edited_json(content, tuple(json_edits(json.loads(content), after)))
    assert same(json.loads(edited), after)


@given(before=objects, indent=indents, newline=st.booleans(), plain=st.booleans())
def test_a_file_in_which_nothing_changes_stays_byte_for_byte(before, indent, newline, plain):
    content = json.dumps(before, indent=indent, ensure_ascii=plain).encode(errors="surrogatepass")
    try:
        content.decode()
    except UnicodeDecodeError:
        return
    content += b"\n" if newline else b""
    if not plain and content.isascii():  # then nothing tells which of the two it was
        return
    if plain and not content.isascii():
        return
    if indent is not None and not before:
        return
    assert edited_json(content, ()) == content


def test_true_is_not_one_and_nan_is_nan():
    assert list(json_edits({"a": 1, "b": math.nan}, {"a": True, "b": math.nan})) == [
        Edit(path=("a",), before=1, after=True)
    ]


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ('{\n "a": 1,\n "c": 2\n}\n', Edit(("a",), 1, 3), '{\n "a": 3,\n "c": 2\n}\n'),
        ('{\n "a": 1,\n "c": 2}', Edit(("b",), ABSENT, 3), '{\n "a": 1,\n "b": 3,\n "c": 2\n}'),
        ('{"c": 1, "a": 2}', Edit(("b",), ABSENT, 3), '{"c": 1, "a": 2, "b": 3}'),
        ('{"c":1,"a":2}', Edit(("c",), 1, ABSENT), '{"a":2}'),
        ('{\n\t"t": {\n\t\t"v": 1}}', Edit(("t", "v"), 1, 2), '{\n\t"t": {\n\t\t"v": 2\n\t}\n}'),
        ('{"é": 1, "n": 1}', Edit(("n",), 1, "ß"), '{"é": 1, "n": "ß"}'),
        ('{"n": 1}', Edit(("n",), 1, "ß"), '{"n": "\\u00df"}'),
    ],
)  # fmt: skip
def test_order_indent_newline_and_escapes_stay(before, edit, after):
    assert edited_json(before.encode(), (edit,)) == after.encode()


@pytest.mark.parametrize("content", [b"[]", b'{"a": 1}'])
def test_a_place_that_is_not_there_is_an_error(content):
    with pytest.raises(TypeError, match="object"):
        edited_json(content, (Edit(("a", "b"), ABSENT, 1),))
