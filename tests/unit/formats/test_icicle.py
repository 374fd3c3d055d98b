"""An icicle: every module has its place, and no place is another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outcomes.examples import EXAMPLES

from auditor.formats.as_json import as_object
from auditor.formats.as_svg import cells, icicle
from auditor.formats.module_tree import Node, module_tree, modules_of

STATUSES = st.sampled_from(["equal", "missing", "unused", "differs", "unexpected"])
FIGURES = st.none() | st.integers(0, 10**12)
NODES = st.recursive(
    st.tuples(st.text(max_size=3), st.integers(1, 9), FIGURES, FIGURES, FIGURES, STATUSES),
    lambda below: st.tuples(
        st.text(max_size=3),
        st.integers(1, 9),
        FIGURES,
        FIGURES,
        FIGURES,
        STATUSES,
        st.lists(below, max_size=4),
    ),
    max_leaves=12,
)


def tree_of(drawn):
    """As module_tree gives it; the root is one and has no name."""

    def node(one):
        *figures, below = one if isinstance(one[-1], list) else (*one, [])
        return Node(*figures, list(map(node, below)))

    return node(drawn)._replace(name="", modules=1)


@given(NODES.map(tree_of))
def test_modules_fill_the_width_of_the_one_above_and_never_overlap(tree):
    for cell in cells(tree):
        at = cell.left
        for below in cell.below:
            assert below.level == cell.level + 1
            assert below.left == pytest.approx(at)
            assert below.width >= 0
            at += below.width
        if cell.below:
            assert at == pytest.approx(cell.left + cell.width)


@given(NODES.map(tree_of))
def test_what_alarms_has_a_place_and_so_has_what_is_above_it(tree):
    placed = cells(tree)
    assert placed[0].alarms == any(cell.status in {"missing", "unexpected"} for cell in placed)
    for cell in placed:
        if cell.alarms:
            assert cell.width > 0
            assert cell.drawn_as == cell.status
        elif cell.status == "differs":
            assert cell.drawn_as == "equal"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_drawing_has_a_rectangle_and_a_sentence_for_each_module(name):
    outcome = EXAMPLES[name]()
    tree = module_tree(modules_of(as_object(outcome)))
    if tree is None:
        assert not outcome.modules
        return
    placed = cells(tree)
    drawn = icicle(placed, "modules")
    told = [one.text for one in drawn.iter("title")]
    assert len(told) == len(placed)
    assert told[0].startswith("(whole model): ")
    whole = {cell.path: cell for cell in placed}
    assert whole[""].stored == (outcome.observed.parameters if outcome.observed else None)
