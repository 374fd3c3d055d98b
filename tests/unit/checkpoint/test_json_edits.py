"""Edits of a JSON object: the values are the new ones, and all others are as they were."""

import json
import math
from copy import deepcopy

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from auditor.checkpoint.json_edits import ABSENT, Edit, edited_json, json_edits, renamed_keys

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
objects = st.dictionaries(st.text(), values, max_size=6)


def is_equal(one, other):
    """Whether two values are equal and of one type; NaN equals NaN, and keys have no order."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(before=objects, after=objects, is_ascii=st.booleans(), indent=st.none() | st.integers(0, 4))
def test_the_edits_between_two_objects_make_one_of_the_other(before, after, is_ascii, indent):
    text = json.dumps(before, indent=indent, ensure_ascii=is_ascii)
    try:
        content = text.encode()
    except UnicodeEncodeError:  # half a character, which no UTF-8 file has
        return
    edits = tuple(json_edits(before, after))
    made = edited_json(content, edits)
    assert is_equal(json.loads(made), after)
    assert edits or made == content
    assert made.isascii() or not content.isascii()


@given(values=objects, key=st.text(), value=scalars)
def test_a_new_key_is_in_its_alphabetical_place_or_last(values, key, value):
    assume(key not in values)
    before = list(values)
    after = list(
        json.loads(edited_json(json.dumps(values).encode(), (Edit((key,), ABSENT, value),)))
    )
    assert after == (sorted([*before, key]) if before == sorted(before) else [*before, key])


@given(values=objects, data=st.data())
def test_renamed_keys_keep_their_values_and_order(values, data):
    names = data.draw(st.lists(st.text(), min_size=len(values), max_size=len(values), unique=True))
    renames = dict(zip(values, names, strict=True))
    inner = renamed_keys(json.dumps({"m": values, "n": 1}).encode(), renames, "m")
    expected = {renames[name]: value for name, value in deepcopy(values).items()}
    assert list(json.loads(inner)["m"]) == list(expected)
    assert is_equal(json.loads(inner), {"m": expected, "n": 1})
    whole = renamed_keys(json.dumps(values).encode(), renames)
    assert is_equal(json.loads(whole), expected)


def test_a_config_is_written_as_save_pretrained_writes_it():
    edit = Edit(("b", "c"), 1, [1, 2])
    made = edited_json(b'{"a": 1e-05, "b": {"c": 1}}', (edit,))
    assert made == b'{\n  "a": 1e-05,\n  "b": {\n    "c": [\n      1,\n      2\n    ]\n  }\n}\n'


def test_the_last_of_two_equal_keys_counts():
    edits = (Edit(("b",), ABSENT, 3),)
    assert json.loads(edited_json(b'{"a": 1, "a": 2}', edits)) == {"a": 2, "b": 3}


def test_true_is_not_one_and_nan_is_nan():
    assert list(json_edits({"a": 1, "b": math.nan}, {"a": True, "b": math.nan})) == [
        Edit(path=("a",), before=1, after=True)
    ]


def test_a_text_that_cannot_be_edited_raises():
    for content, why in [
        (b"[]", "not a JSON object"),
        (b'{"a": 1}', "a is not an object"),
        (b'\xef\xbb\xbf{"a": {}}', "BOM"),
        (b'{"a": {}} x', "Extra data"),
        (b'{"a": \xff}', "decode"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested"),
        (b'{"a": [' + b"1," * 2_000_000 + b"1]}", "JSON values"),
    ]:
        with pytest.raises((TypeError, ValueError), match=why):
            edited_json(content, (Edit(("a", "b"), ABSENT, 1),))
