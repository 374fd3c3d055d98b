"""An icicle: every module has its place, and no place is another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outcomes.examples import EXAMPLES

from auditor import explain
from auditor.formats import View
from auditor.formats.as_svg import cells, cells_of_outcome, explained, icicle
from auditor.formats.module_kinds import kinds_of
from auditor.formats.module_tree import Node, module_tree, modules_of
from auditor.formats.registry import FORMATS

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
    tree = module_tree(modules_of(outcome))
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


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("layers.0.self_attn.q_proj", "attention"),
        ("layers.0.self_attn", "attention"),
        ("layers.0.mlp.up_proj", "feed-forward"),
        ("layers.0.moe.experts.3.w1", "experts"),
        ("layers.0.moe", "experts"),  # its router does not count
        ("layers.0.input_layernorm", "norms"),
        ("layers.0", "several"),
        ("embed_tokens", "embeddings"),
        ("lm_head", "head"),
        ("layers.0.surprise", "other"),
        ("", "several"),
    ],
)
def test_a_module_has_the_kind_of_the_tensors_inside(module, kind):
    leaves = ("self_attn.q_proj", "mlp.up_proj", "moe.experts.3.w1", "moe.gate", "surprise")
    paths = [f"layers.0.{leaf}" for leaf in (*leaves, "input_layernorm")]
    above = ["", "layers", "layers.0", "layers.0.self_attn", "layers.0.moe", "layers.0.moe.experts"]
    assert kinds_of([*above, *paths, "embed_tokens", "lm_head"])[module] == kind


def test_the_experts_of_a_mixture_are_lit_as_far_as_one_token_uses_them():
    report = explain("mixtral")
    experts = [cell for cell in cells_of_outcome(report) if cell.kind == "experts"]
    assert {cell.active for cell in experts} == {2 / 8}
    assert "8 \N{MULTIPLICATION SIGN} expert" in {cell.label for cell in experts}
    drawing = explained(report)
    assert "46.6B total" in drawing
    assert "12.7B active" in drawing


def test_a_model_without_experts_is_not_lit():
    assert all(cell.active is None for cell in cells_of_outcome(explain("bert")))


def test_drawings_have_the_size_of_a_card_each():
    outcome = EXAMPLES["every-kind"]()
    for count in (1, 2):
        [text] = FORMATS["svg"]([outcome] * count, View()).values()
        assert f'viewBox="0 0 1200 {630 * count}"' in text
