from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.analytic.generated.expressions import Outside, evaluator
from auditor.errors import CheckpointError

VALUES = {"width": 12, "heads": 4, "bias": True, "kinds": ["full", "sliding"], "sizes": [3, 5]}


def test_an_expression_has_the_value_of_its_operators(subtests):
    for expression, value in [
        (7, 7),
        (["k", "width"], 12),
        (["+", ["*", 3, ["k", "width"]], -1], 35),
        (["//", ["k", "width"], ["k", "heads"]], 3),
        (["%", ["i", 0], 2], 1),
        (["2^", ["i", 0]], 2),
        (["len", ["k", "sizes"]], 2),
        (["at", ["k", "sizes"], ["i", 0]], 5),
        (["at", ["k", "sizes"], -1], 5),
        (["==", ["at", ["k", "kinds"], 0], ["q", "full"]], True),
        (["==", ["k", "bias"], 1], False),  # true is not a number
        (["if", ["k", "bias"], 1, ["//", 1, 0]], 1),  # only one side is evaluated
        (["and", ["<", 0, ["k", "heads"]], ["not", ["k", "bias"]]], False),
        (["or", ["k", "bias"], ["//", 1, 0]], True),
        (["in", ["i", 0], ["q", [1, 2]]], True),
    ]:
        with subtests.test(expression=expression, value=value):
            assert evaluator(expression)(VALUES, (1,)) == value


def test_an_expression_without_a_value_is_outside_by_its_first_key(subtests):
    for expression in [
        ["//", ["k", "width"], ["-", ["k", "heads"], 4]],
        ["*", ["k", "width"], 2**47],
        ["+", ["k", "width"], ["k", "bias"]],
        ["at", ["k", "width"], 2],
        ["at", ["k", "width"], ["q", "x"]],
        ["2^", ["k", "width"]],
        ["k", "width"],
    ]:
        with subtests.test(expression=expression):
            values = {**VALUES, "width": 99} if expression[0] != "k" else {}
            with pytest.raises(Outside) as outside:
                evaluator(expression)(values, ())
            assert outside.value.key == "width"


def nested(depth):
    return ["not", nested(depth - 1)] if depth else True


def test_what_is_not_in_the_grammar_is_refused(subtests):
    for expression in [
        ["__import__", "os"],
        ["+", 1],
        ["not", True, True],
        [],
        "width",
        1.5,
        {"k": 1},
        ["k", 3],
        ["i", 99],
        ["i", -1],
        nested(40),
        ["q", "x" * 5000],
    ]:
        with subtests.test(expression=expression), pytest.raises(CheckpointError):
            evaluator(expression)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(
        inner | st.sampled_from(["+", "*", "//", "at", "k", "i", "if", "2^", "len"]), max_size=4
    ),
    max_leaves=12,
)


@given(expression=JSON, values=st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_hostile_data_has_a_value_is_outside_or_is_refused(expression, values):
    with suppress(CheckpointError, Outside):
        evaluator(expression)(values, (1, 2))
