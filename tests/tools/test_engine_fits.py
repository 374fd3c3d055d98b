"""Shapes become expressions of keys, if one fits all files."""

from engines.fits import Observed, fitted

KEYS = [
    {"E": e, "h": h, "k": k} for e, h, k in ((64, 4, 24), (96, 4, 24), (64, 8, 24), (64, 4, 10))
]


def test_an_expression_fits_each_observed_number() -> None:
    rows = [Observed(one, 2 * one["h"] * one["k"] + one["E"]) for one in KEYS]
    text = fitted(rows, ["E", "h", "k"])
    assert text is not None
    assert set(text.split("+")) == {"E", "2*h*k"}


def test_a_quotient_and_a_half_are_found() -> None:
    assert fitted([Observed(one, one["E"] // one["h"]) for one in KEYS], ["E", "h"]) == "E/h"
    assert fitted([Observed(one, one["k"] // 2) for one in KEYS], ["k"]) == "k/2"


def test_a_number_that_follows_from_no_key_has_no_expression() -> None:
    rows = [Observed(one, number) for one, number in zip(KEYS, (3, 17, 5, 11), strict=True)]
    assert fitted(rows, ["E"]) is None
