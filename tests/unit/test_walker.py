"""Tallies add up, at every depth and in every grouping."""

import tracemalloc
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depths import depths, listed

from auditor.names.parts import parent
from auditor.tensors import DTYPE_BITS, Depth, Span, StoredTensor
from auditor.walker import MAX_DEPTH, Counted, Shallow, depth_within, walk

_names = st.lists(st.sampled_from("ab07"), min_size=1, max_size=6).map(".".join)


@st.composite
def _counted(draw) -> Counted:
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    dtype = draw(st.sampled_from(sorted(DTYPE_BITS)))
    elements = prod(shape)
    file = draw(st.sampled_from(("one", "two")))
    tensor = StoredTensor(draw(_names), dtype, shape, elements, file, Span(0, 0))
    return Counted(tensor, draw(st.sampled_from((0, elements))), draw(st.sampled_from((1, 2, 4))))


@given(st.lists(_counted()))
def test_a_prefix_holds_what_its_names_hold(items: list[Counted]) -> None:
    for prefix, tally in walk(items).by_prefix().items():
        below = [item for item in items if f"{item.tensor.name}.".startswith(f"{prefix}.")]
        below = items if not prefix else [i for i in below if i.tensor.name != prefix]
        assert tally == walk(below).total


@given(st.lists(_counted()))
def test_the_root_the_dtypes_and_the_files_each_add_up_to_the_total(items) -> None:
    whole = walk(items).total
    assert walk(items).by_prefix()[""] == whole
    for parts in (walk(items).by_dtype(), walk(items).by_file()):
        for count in ("tensors", "elements", "parameters", "trainable"):
            assert sum(getattr(part, count) for part in parts.values()) == getattr(whole, count)


@given(st.lists(_counted()))
def test_the_dtypes_of_one_fate_are_those_of_its_tensors_alone(items) -> None:
    for fate in (1, 2, 4):
        own = [item for item in items if item.fate == fate]
        assert walk(items).by_dtype(fate) == walk(own).by_dtype()


@given(st.lists(_counted()), depths())
def test_a_tally_cut_at_a_depth_is_the_full_one_above_it(items, depth: Depth) -> None:
    full = walk(items).by_prefix()
    assert walk(items, depth=depth).by_prefix() == {
        prefix: tally for prefix, tally in full.items() if listed(depth, prefix)
    }


@given(st.lists(_counted(), min_size=1))
def test_integers_are_never_trainable_and_floats_are_where_they_are_parameters(items) -> None:
    floats = sum(
        item.parameters for item in items if item.tensor.dtype.startswith(("F", "BF", "C"))
    )
    assert walk(items).total.trainable == floats


def test_a_name_of_ten_thousand_dots_makes_no_more_prefixes_than_the_limit() -> None:
    tensor = StoredTensor("." * 10_000, "F32", (1,), 1, "f", Span(0, 4))
    assert len(walk([Counted(tensor, 1)]).by_prefix()) <= MAX_DEPTH + 1


def test_half_a_byte_counts_as_half() -> None:
    tensor = StoredTensor("a.b", "F4", (3, 2), 6, "f", Span(0, 3))
    assert walk([Counted(tensor, 6)]).total.bytes == 3


def test_the_parent_of_a_top_level_prefix_is_the_root() -> None:
    assert parent("bert") == ""
    assert parent("bert.encoder") == "bert"


_deep = st.lists(st.sampled_from("abcde"), min_size=1, max_size=9).map(".".join)


@given(st.lists(_deep), st.integers(1, 30))
def test_names_are_in_no_more_modules_than_were_allowed(names, most):
    """And all the way down wherever there are no more."""
    tensors = [StoredTensor(name, "F32", (2,), 2, "one", Span(0, 8)) for name in names]
    items = [Counted(tensor, 2, 4) for tensor in tensors]
    depth, every = depth_within(names, most), len(walk(items).by_prefix()) - 1  # without the root
    assert (depth is None) == (every <= most)
    if depth is not None:
        assert len(walk(items, shallow=Shallow(4, depth)).by_prefix()) - 1 <= most


@given(st.lists(_counted()), st.integers(0, 5), st.none() | depths())
def test_what_is_listed_less_deeply_loses_nothing_of_any_module(items, shallow, depth):
    """Modules no deeper than that hold what they held; those below it, what is of other fates."""
    full = walk(items, depth=depth).by_prefix()
    others = walk([one for one in items if one.fate != 4], depth=depth).by_prefix()
    for prefix, tally in walk(items, depth=depth, shallow=Shallow(4, shallow)).by_prefix().items():
        level = prefix.count(".") + 1 if prefix else 0
        assert tally == (full if level <= shallow else others)[prefix]


@pytest.mark.slow
def test_forty_parts_of_a_hundred_thousand_names_are_not_made():
    names = [f"{number}." * 40 for number in range(100_000)]
    assert depth_within(names, 10_000) == 0
    assert depth_within(names[:200], 10_000) is None
    assert depth_within(["a." * 40 + str(number) for number in range(100_000)], 10_000) is None


def test_a_name_of_ten_thousand_parts_is_not_written_out_ten_thousand_times():
    tracemalloc.start()
    assert depth_within(["a." * 10_000 + "w"], 10_000) is None  # modules end at MAX_DEPTH
    assert depth_within(["x" * 1_000_000 + "." * 60], 10_000) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
