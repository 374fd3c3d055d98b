"""Figures and formulas, as people write them."""

import pytest

from auditor.claims.figures import parse_figure, share_of
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
        ("1.1e8", 110_000_000, 105_000_000, 115_000_000),
        ("1.0951e8", 109_510_000, 109_505_000, 109_515_000),
        ("8,030,261,248个", 8_030_261_248, 8_030_261_248, 8_030_261_248),
        ("１０９４８２２４０", 109_482_240, 109_482_240, 109_482_240),  # noqa: RUF001 - full width
        ("109.482.240", 109_482_240, 109_482_240, 109_482_240),
        ("一亿一千万", 110_000_000, 105_000_000, 115_000_000),
        ("1亿零951万4298", 109_514_298, 109_514_298, 109_514_298),
        ("十三亿", 1_300_000_000, 1_250_000_000, 1_350_000_000),
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


def test_a_share_is_a_figure_of_the_model_s_count():
    figures = [parse_figure("0.2125"), parse_figure("21.25 %")]
    assert figures[0] is not None
    assert {one and (one.is_share, one.low, one.high) for one in figures} == {
        (True, 212_450_000_000, 212_550_000_000)
    }
    share = share_of(figures[0], 1_235_814_400)
    assert (share.is_share, share.low, share.high) == (False, 262_548_770, 262_672_350)


def test_a_number_with_a_fraction_and_no_unit_is_a_number_of_yi_in_a_chinese_text():
    assert parse_figure("1.0948224") is None
    figure = parse_figure("1.0948224", chinese=True)
    assert figure is not None
    assert figure.value == 109_482_240


@pytest.mark.parametrize("text", ["", "B", "seven", "12 parsecs", "1" * 40, "V*D", "-5", "0x10"])
def test_anything_else_is_no_figure(text):
    assert parse_figure(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("V*D + 2", 32), ("V·D²", 90), ("2 V (D + 1)", 80), ("D**2 - 4/2", 7), ("-V + 12", 2)],
)
def test_a_formula_has_the_value_of_its_letters(text, value):
    assert evaluate(text, {"V": 10, "D": 3}) == value


@pytest.mark.parametrize(
    "text", ["W", "V +", "(V", "V)", "V^99", "V/3", "9" * 59 + "*V", "(" * 99, "V;D", "1" * 3000]
)
def test_a_formula_without_a_value_is_refused(text):
    with pytest.raises(FormulaError, match=r"."):
        evaluate(text, {"V": 10, "D": 3})
