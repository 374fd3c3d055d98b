"""Lengths of a generated form as Dims: equal to its shapes, and written in the config's keys."""

from hypothesis import given
from hypothesis import strategies as st
from unit.analytic.generated.test_form import FORM, form

from auditor.analytic.dims import dim
from auditor.analytic.expectation import Role
from auditor.analytic.generated.formulas import formulas_of

WHOLE = {"model_type": "toy", "text": {"model_type": "toy_text"}}


def keys(size):
    return sorted(symbol.key for symbol in size.symbols)


def shape_of(expression, **config):
    row = ["a.weight", [], True, [expression], [[["parameter", None], True]], {}]
    [size] = formulas_of(form(rows=[row]), {"model_type": "toy", **config}).shapes["a.weight"]
    return size


@given(st.integers(1, 50), st.integers(0, 9), st.booleans())
def test_each_stored_tensor_has_the_values_of_its_shape(width, layers, gated):
    config = {**WHOLE, "width": width, "gated": gated}
    config["text"] = {**config["text"], "layers": layers}
    stored = {one.name: one.shape for one in form().tensors(config) if one.role is Role.PARAMETER}
    found = formulas_of(form(), config).shapes
    assert {name: tuple(size.value for size in sizes) for name, sizes in found.items()} == stored


def test_lengths_and_numbers_of_modules_are_written_in_the_keys():
    found = formulas_of(form(), WHOLE)
    assert list(map(keys, found.shapes["layers.0.weight"])) == [["width"], ["width"]]
    assert keys(found.modules["layers"]) == ["text.layers"]
    inside = formulas_of(form(base_key="own"), {"model_type": "outer", "own": {"width": 6}})
    assert keys(inside.shapes["layers.0.weight"][1]) == ["own.width"]


def test_an_operator_is_written_as_a_formula_or_else_as_its_value(subtests):
    for expression, text, value in [
        (["+", ["*", 3, ["k", "width"]], 1], "3*width + 1", 25),
        (["-", ["k", "width"], 2], "width - 2", 6),
        (["//", ["k", "width"], 3], "floor(width/3)", 2),
        (["if", ["k", "gated"], 1, ["k", "width"]], "width", 8),
        (["len", ["k", "text.kinds"]], "layers", 2),
        (["%", ["k", "width"], 3], "2", 2),
    ]:
        with subtests.test(expression=expression, text=text, value=value):
            size = shape_of(expression)
            assert (str(size), size.value) == (text, value)


def test_an_item_of_a_list_is_a_key_of_its_own():
    row = [
        "b.*.weight",
        [[2, True]],
        True,
        [["at", ["k", "sizes"], ["i", 0]]],
        [[["parameter", None], True]],
        {},
    ]
    own = form(defaults=FORM["defaults"] | {"sizes": [4, 7]}, rows=[row])
    found = formulas_of(own, {"model_type": "toy"})
    assert found.shapes["b.1.weight"][0].value == 7
    assert keys(found.shapes["b.1.weight"][0]) == ["sizes[1]"]
    assert found.modules["b"] == dim(2)
