"""Drawings: an icicle, in which every module has its place, its tree, and badges."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.outcomes.examples import EXAMPLES, pipeline
from support.outcomes.making import expected

from auditor import explain
from auditor.findings import Missing
from auditor.formats import View
from auditor.formats.as_badge import text_of
from auditor.formats.as_svg import explained
from auditor.formats.icicle import cells, cells_of_outcome, icicle
from auditor.formats.module_tree import DEEPEST, MOST_NODES, Node, kinds_of, module_tree, modules_of
from auditor.formats.registry import FORMATS
from auditor.names.folding import expand
from auditor.reconciler.rows import ModuleRow

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


def test_a_drawing_has_a_rectangle_and_a_sentence_for_each_module():
    for make in EXAMPLES.values():
        outcome = make()
        placed = cells_of_outcome(outcome)
        assert bool(placed) == bool(modules_of(outcome))
        if placed:
            told = [one.text for one in icicle(placed, "modules").iter("title")]
            assert len(told) == len(placed)
            assert told[0].startswith("(whole model): ")
            assert placed[0].stored == (outcome.observed.parameters if outcome.observed else None)


def test_a_module_has_the_kind_of_the_tensors_inside():
    leaves = ("self_attn.q_proj", "mlp.up_proj", "moe.experts.3.w1", "moe.gate", "surprise")
    paths = [f"layers.0.{leaf}" for leaf in (*leaves, "input_layernorm")]
    above = ["", "layers", "layers.0", "layers.0.self_attn", "layers.0.moe", "layers.0.moe.experts"]
    kinds = kinds_of([*above, *paths, "embed_tokens", "lm_head"])
    assert [kinds[f"layers.0.{leaf}"] for leaf in leaves[:3]] == [
        "attention",
        "feed-forward",
        "experts",
    ]
    assert kinds["layers.0.moe"] == "experts"  # its router does not count
    assert kinds["layers.0.input_layernorm"] == "norms"
    assert kinds["layers.0"] == kinds[""] == "several"
    assert (kinds["embed_tokens"], kinds["lm_head"]) == ("embeddings", "head")
    assert kinds["layers.0.surprise"] == "other"


def test_the_experts_of_a_mixture_are_lit_as_far_as_one_token_uses_them():
    report = explain("mixtral")
    experts = [cell for cell in cells_of_outcome(report) if cell.kind == "experts"]
    assert {cell.active for cell in experts} == {2 / 8}
    assert "8 \N{MULTIPLICATION SIGN} expert" in {cell.label for cell in experts}
    drawing = explained(report)
    assert "46.6B total" in drawing
    assert "12.7B active" in drawing
    assert all(cell.active is None for cell in cells_of_outcome(explain("bert")))


def test_drawings_have_the_size_of_a_card_each():
    outcome = EXAMPLES["every-kind"]()
    for count in (1, 2):
        [text] = FORMATS["svg"]([outcome] * count, View()).values()
        assert f'viewBox="0 0 1200 {630 * count}"' in text


# --- the tree of modules --------------------------------------------------------------------------

NAME, COUNT, TENSORS, STORED, EXPECTED, STATUS, CHILDREN = range(7)
PARTS = st.sampled_from(["h", "0", "1", "2", "10", "mlp", "attn", "a{b", ""])
PREFIXES = st.lists(st.lists(PARTS, min_size=1, max_size=4).map(".".join), unique=True, max_size=40)


def row(prefix, size=1, status="equal"):
    depth = prefix.count(".") + 1 if prefix else 0
    return ModuleRow(prefix, depth, 1, size, size, size, 0, None, status)


def unfolded(node, above="", first=True):  # noqa: FBT002 - of a recursion
    """Every (prefix, stored, status) that a node and those below it stand for."""
    names = [""] if first else [f"{above}.{name}" if above else name for name in expand(node[NAME])]
    for name in names:
        yield name, node[STORED], node[STATUS]
        for child in node[CHILDREN]:
            yield from unfolded(child, name, first=False)


def size(node):
    return 1 + sum(map(size, node[CHILDREN]))


@given(prefixes=PREFIXES, data=st.data())
def test_a_tree_unfolds_to_the_modules_down_to_some_depth(prefixes, data):
    rows = {"": row("", 9)}
    for prefix in prefixes:
        rows.setdefault(prefix, row(prefix, data.draw(st.integers(1, 2))))
    found = module_tree(list(rows.values()))
    named = {name: (stored, status) for name, stored, status in unfolded(found)}
    depth = max(rows[name].depth for name in named)
    assert size(found) <= MOST_NODES
    assert named == {
        name: (one.parameters, one.status) for name, one in rows.items() if one.depth <= depth
    }


def test_identical_layers_are_one_node_and_another_layer_is_its_own():
    rows = [row(""), row("h", 12), *(row(f"h.{n}") for n in range(12))]
    rows[5] = row("h.3", 1, "missing")
    [layers] = module_tree(rows)[CHILDREN]
    assert [(one[NAME], one[COUNT], one[STATUS]) for one in layers[CHILDREN]] == [
        ("{0-2,4-11}", 11, "equal"),
        ("3", 1, "missing"),
    ]


def test_a_model_of_unexpected_names_makes_one_node_if_nothing_folds():
    rows = [row("", 1), *(row(f"m{'x' * n}", n) for n in range(1, MOST_NODES + 9))]
    assert module_tree(rows)[CHILDREN] == []


def test_a_name_of_ten_thousand_dots_is_not_walked():
    deep = ["", *(".".join(["a"] * depth) for depth in (1, 2, 3, DEEPEST, DEEPEST + 1, 10_000))]
    assert size(module_tree([row(name) for name in deep])) == 5


def test_components_stand_below_their_names():
    found = module_tree(modules_of(pipeline()))
    assert list(unfolded(found)) == [
        ("", 100, "differs"),
        ("text_encoder", 25, "differs"),
        ("unet", 75, "unchecked"),
    ]


# --- badges --------------------------------------------------------------------------------------

CLEAN = EXAMPLES["bert-base-chinese"]()
LACKING = Missing(tensors=(expected("a", 2), expected("b", 2)), reason="it is not stored")


def test_a_badge_counts_the_tensors_that_are_stored_in_the_right_shape(subtests):
    for outcome, text in [
        (CLEAN, "202/202"),
        (replace(CLEAN, findings=(LACKING,)), "200/202 error"),
        (replace(CLEAN, ignored=(LACKING,)), "200/202"),
        (EXAMPLES["gated"](), "not audited"),
    ]:
        with subtests.test(outcome=outcome, text=text):
            assert text_of(outcome) == text


def test_each_text_can_be_read_on_its_ground():
    [drawn] = FORMATS["badge"]([make() for make in EXAMPLES.values()], View()).values()
    grounds = re.findall(r'<rect [^>]*fill="(#\w+)"', drawn)
    inks = re.findall(r'<text [^>]*fill="(#\w+)"', drawn)
    for ink, ground in zip(inks, grounds, strict=True):
        lighter, darker = sorted(map(_luminance, (ink, ground)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def _luminance(colour):
    """The relative luminance that WCAG 2.2 defines for sRGB."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("form", ["svg", "badge"])
def test_a_drawing_has_its_colours_without_variables(form):
    [text] = FORMATS[form]([EXAMPLES["every-kind"]()], View()).values()
    assert "var(" not in text
    assert "prefers-color-scheme: dark" in text or form == "badge"
