"""Law 5: a folded name expands to exactly the names it came from."""

from hypothesis import given
from hypothesis import strategies as st

from auditor.names.folding import expand, fold
from auditor.tensors import natural_key

# Words and numbers of a checkpoint, with what patterns are made of mixed in.
PARTS = st.one_of(
    st.integers(0, 12).map(str),
    st.sampled_from(
        ["weight", "bias", "layer", "w1", "w2", "", "00", "01", "09", "010", "1-3", "a,b"]
    ),
    st.text("{},-\\01a.", max_size=4),
)
NAMES = st.one_of(
    st.lists(PARTS, min_size=1, max_size=5).map(".".join),
    st.lists(PARTS, min_size=1, max_size=3).map("".join),
    st.text(max_size=6),
)
GRIDS = st.tuples(
    st.sets(st.integers(0, 30), min_size=1, max_size=8),
    st.sets(st.integers(0, 5), min_size=1, max_size=4),
    st.sets(st.sampled_from(["weight", "bias", "w1.scale", "g"]), min_size=1),
).map(
    lambda grid: {f"h.{n}.experts.{e}.{word}" for n in grid[0] for e in grid[1] for word in grid[2]}
)


def expansions(patterns):
    return [name for pattern in patterns for name in expand(pattern)]


@given(st.lists(NAMES, max_size=40), st.booleans())
def test_a_folded_name_expands_to_exactly_the_names_it_came_from(names, words):
    assert sorted(expansions(fold(names, words=words))) == sorted(set(names))


@given(st.sets(GRIDS.flatmap(lambda grid: st.sampled_from(sorted(grid))), max_size=60))
def test_layers_with_holes_expand_to_exactly_their_names(names):
    assert sorted(expansions(fold(names))) == sorted(names)


@given(st.sets(st.text("0123456789", min_size=1, max_size=3), max_size=60))
def test_numbers_keep_the_zeros_in_front_of_them(numbers):
    assert sorted(expansions(fold(f"x.{n}" for n in numbers))) == sorted(f"x.{n}" for n in numbers)


@given(GRIDS.filter(lambda grid: not any("scale" in name for name in grid)))
def test_every_combination_of_numbers_and_words_is_one_pattern(names):
    assert len(fold(names)) == 1


@given(st.lists(NAMES, max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_names_changes_nothing(names, shuffler):
    shuffled = names * 2
    shuffler.shuffle(shuffled)
    assert fold(shuffled) == fold(names)


@given(st.lists(NAMES, max_size=20))
def test_patterns_come_in_the_natural_order_of_their_first_names(names):
    firsts = [expand(pattern)[0] for pattern in fold(names)]
    assert firsts == sorted(firsts, key=natural_key)
