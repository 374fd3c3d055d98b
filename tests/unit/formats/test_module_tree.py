"""The tree of modules that the page draws: small, and nothing lost in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outcomes.examples import EXAMPLES, pipeline

from auditor.formats.module_tree import DEEPEST, MOST_NODES, module_tree, modules_of
from auditor.names import expand
from auditor.reconciler.rows import ModuleRow

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


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_a_tree_of_a_report_is_small(example):
    modules = modules_of(example())
    found = module_tree(modules)
    assert (found is None) == (not modules)
    assert found is None or size(found) <= MOST_NODES


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
