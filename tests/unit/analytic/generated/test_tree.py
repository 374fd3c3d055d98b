"""The tree of a generated form: its lists are folded, and its sizes are written in config keys."""

from contextlib import suppress

from support.examples import one_in
from support.formulas import evaluate
from unit.analytic.generated.test_form import FORM, form

from auditor.analytic import Config, generated
from auditor.analytic.blocks import Experts, Module, Param, Repeat, Stack
from auditor.analytic.dims import dim
from auditor.analytic.expectation import Role
from auditor.analytic.generated.tree import form_tree
from auditor.analytic.lookup import NameLookup, follow
from auditor.errors import SourceError

WHOLE = {"model_type": "toy", "text": {"model_type": "toy_text"}}
PARAMETER = [[["parameter", None], True]]
WIDTH = ["k", "width"]


def tree_of(rows, *, known_only=False, config=WHOLE, **changed):
    typed = [[name, levels, True, shape, PARAMETER, {}] for name, levels, shape in rows]
    changed["rows"] = [*changed.get("rows", ()), *typed]
    return form_tree(form(**changed), config, known_only=known_only)


def keys(size):
    return sorted(symbol.key for symbol in size.symbols)


def shape_of(expression, **config):
    tree = tree_of([("a.weight", [], [expression])], config={"model_type": "toy", **config})
    [size] = follow(tree, "a.weight").shape
    return dim(size)


def test_lengths_and_numbers_of_modules_are_written_in_the_keys():
    path = follow(form_tree(form(), WHOLE), "layers.0.weight")
    assert list(map(keys, path.shape)) == [["width"], ["width"]]
    depth = {"defaults": FORM["defaults"] | {"text.layers": 2}, "items": {}}
    rows = [("layers.*.weight", [[["k", "text.layers"], True]], [WIDTH])]
    [place] = follow(tree_of(rows, **depth), "layers.0.weight").lists
    assert keys(place.modules) == ["text.layers"]
    outer = {"model_type": "outer", "own": {"width": 6}}
    inside = follow(form_tree(form(base_key="own"), outer), "layers.0.weight")
    assert keys(inside.shape[1]) == ["own.width"]


def test_an_operator_is_written_as_a_formula_or_else_as_its_value(subtests):
    for expression, text, value in [
        (["+", ["*", 3, WIDTH], 1], "3*D + 1", 25),
        (["-", WIDTH, 2], "D - 2", 6),
        (["//", WIDTH, 3], "floor(D/3)", 2),
        (["if", ["k", "gated"], 1, WIDTH], "D", 8),
        (["len", ["k", "text.kinds"]], "layers_text", 2),
        (["%", WIDTH, 3], "2", 2),
    ]:
        with subtests.test(expression=expression, text=text, value=value):
            size = shape_of(expression)
            assert (str(size), size.value) == (text, value)


def test_a_key_that_the_class_derives_is_written_in_the_others():
    head = {
        "defaults": FORM["defaults"] | {"heads": 2, "head": 4},
        "derived": [["head", None, ["//", WIDTH, ["k", "heads"]]], *FORM["derived"]],
    }
    rows = [("q.weight", [], [["*", ["k", "head"], ["k", "heads"]], WIDTH])]
    for config, expected in [(WHOLE, [["width"], ["width"]]), (WHOLE | {"head": 4}, None)]:
        shape = follow(tree_of(rows, config=config, **head), "q.weight").shape
        assert list(map(keys, shape)) == (expected or [["head", "heads"], ["width"]])


def test_two_keys_never_share_a_letter():
    both = {"defaults": FORM["defaults"] | {"hidden_size": 3, "d_model": 5}, "aliases": {}}
    shape = follow(
        tree_of([("a.weight", [], [["k", "hidden_size"], ["k", "d_model"]])], **both), "a.weight"
    ).shape
    assert list(map(str, shape)) == ["D", "d_model"]


def test_equal_modules_are_a_repeat_and_others_a_stack():
    sizes = {"defaults": FORM["defaults"] | {"sizes": [4, 7, 7]}}
    rows = [
        ("same.*.weight", [[3, True]], [WIDTH]),
        ("other.*.weight", [[5, True]], [["if", ["<", 0, ["i", 0]], WIDTH, 3]]),
        ("each.*.weight", [[3, True]], [["at", ["k", "sizes"], ["i", 0]]]),
        ("some.*.weight", [[3, ["<", 0, ["i", 0]]]], [WIDTH]),  # numbers from 1 on
        ("scales.*", [[2, True]], [WIDTH]),
    ]
    tree = tree_of(rows, **sizes)
    same, other, some, scales = (
        dict(tree.children)[name] for name in ["same", "other", "some", "scales"]
    )
    assert isinstance(same, Repeat)
    assert isinstance(other, Stack)
    assert other.layers[1] is other.layers[4]
    assert keys(follow(tree, "each.2.weight").shape[0]) == ["sizes[2]"]
    assert [name for name, _ in some.children] == ["1", "2"]
    assert [type(one) for _, one in scales.children] == [Param, Param]


def test_experts_are_mixed_if_the_config_states_how_many_a_token_uses():
    count = [["k", "num_experts"], True]
    rows = [
        ("a.experts.*.weight", [count], [WIDTH]),
        ("b.experts.up", [], [["k", "num_experts"], WIDTH]),
    ]
    known = {"defaults": FORM["defaults"] | {"num_experts": 4}, "hidden": []}
    stated = tree_of(rows, config=WHOLE | {"num_experts_per_tok": 2}, **known)
    mixed = [dict(part.children)["experts"] for _, part in stated.children]
    assert [(type(one), one.active.value) for one in mixed] == [(Experts, 2)] * 2
    silent = tree_of(rows, **known)
    assert [type(dict(one.children)["experts"]) for _, one in silent.children] == [Repeat, Module]


def test_a_sibling_has_the_tensors_whose_rows_cover_the_values():
    config = WHOLE | {"gated": True, "act": "gelu"}  # the row of the gate was seen with silu
    names = NameLookup(form_tree(form(), config, known_only=True))
    assert names.get("gate.weight") is None
    assert names.get("layers.0.weight").shape == (16, 8)
    assert names.get("layers.1.weight") is None  # its kind has no such tensor
    assert (names.get("head.weight").role, names.get("head.weight").shape) == (Role.TIED, (100, 8))


def test_most_types_have_a_formula_in_letters_with_the_value_of_the_sum():
    places = one_in(24, sorted(generated.index().types))
    lettered = 0
    for place in places:
        target = generated.siblings(place)[0]
        declared = (
            {"_class_name": target} if place.startswith("diffusers.") else {"model_type": place}
        )
        with suppress(SourceError):
            expected = generated.expect(Config(values=declared), target)
            assert evaluate(expected.formula, expected.legend) == expected.parameters
            learned = (one for one in expected.tensors if one.role is Role.PARAMETER)
            assert sum(one.elements for one in learned) == expected.parameters
            lettered += bool(expected.legend)
    assert lettered >= 0.6 * len(places)
