"""Figures and formulas, as people write them."""

import pytest

from auditor.claims.figures import parse_figure, parse_figures, share_of, without_active
from auditor.claims.formulas import FormulaError, evaluate

FIGURES = [  # text, value, the least and the greatest number that rounds to it
    ("109482240", 109_482_240, 109_482_240, 109_482_240),
    ("0", 0, 0, 0),
    ("110M", 110_000_000, 105_000_000, 115_000_000),
    ("72.1 M", 72_100_000, 72_050_000, 72_150_000),
    ("1.5b params", 1_500_000_000, 1_450_000_000, 1_550_000_000),
    ("3.8亿", 380_000_000, 375_000_000, 385_000_000),
    ("100M", 100_000_000, 90_000_000, 110_000_000),
    ("1.0951e8", 109_510_000, 109_505_000, 109_515_000),
    ("8,030,261,248个", 8_030_261_248, 8_030_261_248, 8_030_261_248),
    ("１０９４８２２４０", 109_482_240, 109_482_240, 109_482_240),  # noqa: RUF001 - full width
    ("109.482.240", 109_482_240, 109_482_240, 109_482_240),
    ("一亿一千万", 110_000_000, 105_000_000, 115_000_000),
    ("1亿零951万4298", 109_514_298, 109_514_298, 109_514_298),
    ("三点四亿", 340_000_000, 335_000_000, 345_000_000),
    ("1.1 亿个参数", 110_000_000, 105_000_000, 115_000_000),
    ("109\u00a0514\u202f298", 109_514_298, 109_514_298, 109_514_298),
    ("109'514'298", 109_514_298, 109_514_298, 109_514_298),
    ("0.5B", 500_000_000, 450_000_000, 550_000_000),
    ("7B+", 7_000_000_000, 7_000_000_000, 8_000_000_000),
    (">7B", 7_000_000_000, 7_000_000_000, 8_000_000_000),
    ("2,6 Mrd.", 2_600_000_000, 2_550_000_000, 2_650_000_000),
    ("1.236,5 Mio.", 1_236_500_000, 1_236_450_000, 1_236_550_000),
    ("1,236.5M", 1_236_500_000, 1_236_450_000, 1_236_550_000),
    ("7 billion parameters", 7_000_000_000, 6_500_000_000, 7_500_000_000),
    ("1.1\u00d710⁸", 110_000_000, 105_000_000, 115_000_000),
]
BYTES = [
    ("72.1 MB", 72_100_000, 72_050_000, 72_150_000),
    ("16 GB", 16 * 10**9, 15_500_000_000, 16_500_000_000),
    ("16GiB", 16 * 2**30, 31 * 2**29, 33 * 2**29),
]


def test_a_figure_is_a_number_and_what_rounds_to_it():
    for rows, unit in ((FIGURES, "parameters"), (BYTES, "bytes")):
        for text, *expected in rows:
            found = parse_figure(text)
            assert found is not None, text
            assert (found.unit, found.value, found.low, found.high) == (unit, *expected), text


def test_the_active_parameters_are_a_claim_of_their_own(subtests):
    for text, total, active in [
        ("30B-A3B", "30B", "3B"),
        ("A3B", "", "3B"),
        ("1b-a400m", "1b", "400m"),
        ("7B", "7B", ""),
    ]:
        with subtests.test(text=text, total=total, active=active):
            assert without_active(text) == (total, active)


def test_eight_times_seven_billion_is_the_size_of_a_model_with_one_expert():
    figure = parse_figure("8x7B")
    assert figure is not None
    assert (figure.experts, figure.value) == (8, 7_000_000_000)


def test_each_reading_of_an_ambiguous_text_is_named(subtests):
    for text, chinese, values in [
        ("1.0948224", False, []),
        ("1.0948224", True, [109_482_240]),
        ("0.2384", True, [238_400_000_000, 23_840_000]),  # a share in units of 10^-12
        ("1,236B", False, [1_236_000_000_000, 1_236_000_000]),
        ("109.514", False, [109_514]),
        ("16G", False, [16_000_000_000, 16_000_000_000]),
    ]:
        with subtests.test(text=text, chinese=chinese, values=values):
            figures = parse_figures(text, chinese=chinese)
            assert [figure.value for figure in figures] == values
            assert all(figure.reading for figure in figures)


def test_a_share_is_a_figure_of_the_model_s_count():
    figures = [parse_figure("0.2125"), parse_figure("21.25 %")]
    assert figures[0] is not None
    assert {one and (one.is_share, one.low, one.high) for one in figures} == {
        (True, 212_450_000_000, 212_550_000_000)
    }
    share = share_of(figures[0], 1_235_814_400)
    assert (share.is_share, share.low, share.high) == (False, 262_548_770, 262_672_350)


def test_other_texts_are_no_figures():
    texts = (
        "",
        "B",
        "seven",
        "12 parsecs",
        "1" * 40,
        "V*D",
        "-5",
        "0x10",
        "1.23.4",
        "1,23,4",
        "7 7B",
    )
    assert [text for text in texts if parse_figure(text)] == []


FORMULAS = {
    "V*D + 2": 32,
    "V·D²": 90,
    "2 V (D + 1)": 80,
    "D**2 - 4/2": 7,
    "-V + 12": 2,
    "V/2 D": 15,
}


def test_a_formula_has_the_value_of_its_letters():
    assert {text: evaluate(text, {"V": 10, "D": 3}) for text in FORMULAS} == FORMULAS


def test_a_formula_without_a_value_is_refused(subtests):
    for text, why in [
        ("W", "'W' is not a letter of this model's formula"),
        ("V +", "cannot be read"),
        ("(V", "cannot be read"),
        ("V^99", "the power 99 is too large"),
        ("V/3", "10 cannot be divided by 3"),
        ("9" * 59 + "*V", "value is too large"),
        ("(" * 99, "cannot be read"),
        ("-" * 1999 + "V", "too many|cannot be read"),
        ("V;D", "';' is not expected there"),
        ("1" * 3000, "too long"),
    ]:
        with subtests.test(text=text, why=why), pytest.raises(FormulaError, match=why):
            evaluate(text, {"V": 10, "D": 3})
