"""The order in which names are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.tensors import natural_key


@pytest.mark.parametrize(
    "ordered",
    [
        ["layer.2", "layer.10"],
        ["", "h", "h.0", "h.0.attn", "h.1", "h-0", "h0", "h10"],
        ["x.01", "x.1", "x.2"],
        ["x." + "9" * 5000],
    ],
)
def test_natural_order_counts_as_people_do_and_keeps_a_module_before_its_parts(ordered):
    assert sorted(set(ordered), key=natural_key) == ordered


@given(st.text("ab.019", max_size=20))
def test_a_name_too_long_to_be_kept_sorts_by_the_same_rule(name: str) -> None:
    long = "c" * 300
    padded, _ = natural_key(name)
    assert natural_key(f"{name}.{long}") == (f"{padded}\0{long}", f"{name}.{long}")
