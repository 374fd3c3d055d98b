"""Formulas solved for a key: each solution put in gives the length that was asked for."""

from hypothesis import given
from hypothesis import strategies as st

from auditor.analytic.dims import dim
from auditor.analytic.expectation import Symbol
from auditor.diagnosis.solving.size_equations import size_with, solutions


def symbol(letter, value):
    return Symbol(letter=letter, key=letter, value=value, default=False)


V, D, H, K = symbol("V", 100), symbol("D", 768), symbol("H", 12), symbol("K", 4)
IMAGE, PATCH = symbol("I", 224), symbol("P", 16)
PATCHES = dim(IMAGE) // dim(PATCH) * (dim(IMAGE) // dim(PATCH)) + 1
FORMULAS = {
    "V*D": dim(V) * dim(D),
    "3*D + 2": 3 * dim(D) + 2,
    "K*D/H": dim(K) * (dim(D) // dim(H)),
    "ceil(D/16)": dim(D).ceil(16) * 2,
    "H*floor(D/H)": dim(H) * dim(D).floor(dim(symbol("H", 13))),
    "patches": PATCHES,
}


@given(st.sampled_from(sorted(FORMULAS)), st.integers(1, 5000))
def test_a_solution_yields_the_target_value(name, wanted):
    size = FORMULAS[name]
    for one in size.symbols:
        for value in solutions(size, one, wanted):
            assert size_with(size, {one: value}) == wanted


@given(st.sampled_from(sorted(FORMULAS)), st.data())
def test_the_value_that_a_length_came_from_explains_it(name, data):
    size = FORMULAS[name]
    one = data.draw(st.sampled_from(sorted(size.symbols)))
    value = data.draw(st.integers(1, 900))
    wanted = size_with(size, {one: value})
    if wanted is None or wanted != int(wanted) or wanted <= 0:
        return
    found = list(solutions(size, one, int(wanted)))
    assert found
    assert all(size_with(size, {one: each}) == wanted for each in found)


def test_formulas_are_solved_for_each_of_their_keys(subtests):
    for name, key, wanted, found in [
        ("V*D", "V", 768 * 96, [96]),
        ("V*D", "V", 768 * 96 + 1, []),
        ("K*D/H", "K", 128, [2]),
        ("K*D/H", "H", 128, [24]),
        ("patches", "I", 50, [112]),
        ("patches", "P", 50, [32]),
        ("ceil(D/16)", "D", 66, [528]),
    ]:
        with subtests.test(name=name, key=key, wanted=wanted, found=found):
            size = FORMULAS[name]
            [one] = [each for each in size.symbols if each.key == key]
            assert list(solutions(size, one, wanted)) == found
