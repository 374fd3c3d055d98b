"""Figures and formulas, as people write them."""

import pytest

from auditor.claims.figures import parse_figure
from auditor.claims.formulas import FormulaError, evaluate


@pytest.mark.parametrize(
    ("text", "value", "low", "high"),
    [
        ("109482240", 109_482_240, 109_482_240, 109_482_240),
        ("109,482,240", 109_482_240, 109_482_240, 109_482_240),
        ("0", 0, 0, 0),
        ("110M", 110_000_000, 105_000_000, 115_000_000),
        ("~7B", 7_000_000_000, 6_500_000_000, 7_500_000_000),
        ("72.1 M", 72_100_000, 72_050_000, 72_150_000),
        ("1.5b params", 1_500_000_000, 1_450_000_000, 1_550_000_000),
        ("3.8亿", 380_000_000, 375_000_000, 385_000_000),
        ("10200万", 102_000_000, 101_500_000, 102_500_000),
        ("100M", 100_000_000, 90_000_000, 110_000_000),
    ],
)
def test_a_figure_is_a_number_and_what_rounds_to_it(text, value, low, high):
    found = parse_figure(text)
    assert found is not None
    assert (found.value, found.low, found.high) == (value, low, high)


def test_a_figure_may_be_of_bytes_of_experts_or_of_active_parameters():
    sizes, experts, active = (parse_figure(text) for text in ("72.1 MB", "8x7B", "30B-A3B"))
    assert sizes is not None
    assert experts is not None
    assert active is not None
    assert sizes.unit == "bytes"
    assert experts.experts == 8
    assert active.active is not None
    assert active.active.value == 3_000_000_000


@pytest.mark.parametrize("text", ["", "B", "seven", "12 parsecs", "1" * 40, "V*D", "-5", "0x10"])
def test_anything_else_is_no_figure(text):
    assert parse_figure(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("V*D + 2", 32),
        ("V·D²", 90),
        ("2 V (D + 1)", 80),
        ("D**2 - 4/2", 7),
        ("-V + 12", 2),
    ],
)
def test_a_formula_has_the_value_of_its_letters(text, value):
    assert evaluate(text, {"V": 10, "D": 3}) == value


@pytest.mark.parametrize(
    "text", ["W", "V +", "(V", "V)", "V^99", "V/3", "9" * 59 + "*V", "(" * 99, "V;D", "1" * 3000]
)
def test_a_formula_without_a_value_is_refused(text):
    with pytest.raises(FormulaError, match=r"."):
        evaluate(text, {"V": 10, "D": 3})
