"""A walk over a long JSON document: the ends of its values, and strings that have no end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.bounded.json_scan import EndsEarlyError, ScanError, skip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\[]{},: é', max_size=8),
    lambda values: (
        st.lists(values, max_size=4)
        | st.dictionaries(st.text('a"\\', max_size=3), values, max_size=4)
    ),
)


@given(value=st.lists(JSON, max_size=4), rest=st.sampled_from(["", "]", ', "', "}"]))
def test_a_value_ends_where_the_json_module_ends_it(value, rest):
    text = json.dumps(value)
    assert skip((text + rest).encode(), 0) == len(text.encode())


@given(value=st.lists(JSON, max_size=4), data=st.data())
def test_a_value_that_is_cut_ends_early(value, data):
    text = json.dumps(value).encode()
    stop = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(EndsEarlyError):
        skip(text[:stop], 0)


@pytest.mark.parametrize("opened", ["[", "{", '{"a": ['])
@pytest.mark.parametrize("size", [1_000_000, 10_000_000])
def test_a_string_without_an_end_is_read_once_and_not_again_from_each_quote_in_it(opened, size):
    """Read again from each quote, 32 kB take 3 s, and a megabyte minutes."""
    with pytest.raises(ScanError):
        skip(f'{opened}"'.encode() + rb"\"" * (size // 2), 0)


def test_a_string_with_too_many_escapes_is_refused_where_it_begins():
    with pytest.raises(ScanError, match=r"expected a string at byte 1$"):
        skip(b'["' + rb"\"" * 100_001 + b'"]', 0)
