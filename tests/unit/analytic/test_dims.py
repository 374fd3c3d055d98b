from operator import add, mul, sub

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.formulas import evaluate

from auditor.analytic import Symbol
from auditor.analytic.dims import Dim, counted_dim, dim, product_of_dims
from auditor.errors import CheckpointError


def symbol(letter: str, value: int, key: str | None = None) -> Symbol:
    return Symbol(letter=letter, key=key or letter, value=value, default=False)


VALUES = {"V": 30, "D": 12, "L": 7, "N": 3, "E": 4, "H": 2, "F": 48, "projection_dim": 5}
LEGEND = tuple(symbol(letter, value) for letter, value in VALUES.items())
V, D, L, N, E, H, F, P = map(dim, LEGEND)
D_text, N_decoder = dim(symbol("D_text", 9)), dim(symbol("N_decoder", 2))


def dims() -> st.SearchStrategy[Dim]:
    divisors = st.sampled_from((H, 5 * D, D + 1, dim(16)))
    leaves = st.sampled_from((V, D, L, N, E, H, F, P)) | st.integers(-5, 5).map(dim)
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(add, inner, inner)
            | st.builds(sub, inner, inner)
            | st.builds(mul, inner, inner)
            | inner.map(lambda size: size * D // H)
            | st.builds(Dim.floor, inner, divisors)
            | st.builds(Dim.ceil, inner, divisors)
            | st.builds(mul, st.integers(0, 3).map(counted_dim), inner)
        ),
        max_leaves=8,
    )


@given(dims())
def test_a_printed_formula_has_the_value_of_its_dim(size):
    assert evaluate(str(size), LEGEND) == size.value


@given(dims(), dims(), dims())
def test_dims_are_a_commutative_ring(a, b, c):
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + 0 == 0 + a == a * 1 == 1 * a == a
    assert a - a == dim(0)
    assert 7 - a == dim(7) - a
    assert a - b == a + -1 * b


@given(dims(), st.sampled_from((V, D, L, H, 3 * D, D * H, dim(2))))
def test_division_undoes_multiplication(a, b):
    assert a * b // b == a
    assert b * (a * b // b) == a * b


@given(st.integers(0, 500), st.integers(1, 40))
def test_a_quotient_is_rounded_as_python_rounds_it(a, b):
    over, by = dim(symbol("V", a)), dim(symbol("D", b))
    assert over.floor(by).value == a // b
    assert over.ceil(by).value == -(-a // b)
    exact = over.floor(by) == over.ceil(by)
    assert exact == (not a % b) or not a


@given(dims(), dims())
def test_equal_dims_print_the_same_formula_in_any_order_of_construction(a, b):
    assert str(a * b + a) == str(a + b * a)


@given(dims())
def test_what_is_substituted_keeps_its_value_and_loses_its_letter(size):
    written = size.substitute({LEGEND[6]: 4 * D})
    assert written.value == size.value
    assert LEGEND[6] not in written.symbols
    assert evaluate(str(written), LEGEND) == size.value


def test_a_formula_reads_as_people_write_it(subtests):
    for size, formula in [
        (V * D + L * D + 4 * D, "V*D + L*D + 4*D"),
        (D * D, "D^2"),
        (13 * D + D * 12 * D, "12*D^2 + 13*D"),
        (N * (12 * D * D + 13 * D) + V, "V + N*(12*D^2 + 13*D)"),
        (N * D * D, "N*D^2"),
        (N * (E * (3 * D * F + D) + D * E + D), "N*(E*(3*D*F + 2*D) + D)"),
        (D // H, "D/H"),
        (H * (D // H), "D"),
        (N * (D // H) * D, "N*D^2/H"),
        ((D // H) * (D // H), "D^2/H^2"),
        (3 * F // 2, "3*F/2"),
        (D - 5, "D - 5"),
        (-1 * D + V * -2, "-2*V - D"),
        (N * (D - V), "-V*N + N*D"),
        (D - D, "0"),
        (dim(7), "7"),
        (D * P, "D*projection_dim"),
        (product_of_dims(()), "1"),
        (D.ceil(16), "ceil(D/16)"),
        ((D + 1).floor(H * D), "floor((D + 1)/(H*D))"),
        ((4 * D).ceil(16), "D/4"),
        (D.floor(5) * D + D.floor(5), "D*floor(D/5) + floor(D/5)"),
        (
            counted_dim(3) * (4 * D * D + D) + counted_dim(58) * (E * D + D),
            "3*(4*D^2 + D) + 58*(E*D + D)",
        ),
        (counted_dim(3) * 4 * D + counted_dim(1) * D, "12*D + D"),
        (D_text * N_decoder * (D_text + V), "V*N_decoder*D_text + N_decoder*D_text^2"),
        (product_of_dims((2, D, D)), "2*D^2"),
    ]:
        with subtests.test(size=size, formula=formula):
            assert str(size) == formula


def test_a_fractional_quotient_is_a_fault_of_the_checkpoint(subtests):
    for divide, message in [
        (
            lambda: dim(symbol("D", 770, "hidden_size")) // dim(symbol("H", 12, "heads")),
            r"^hidden_size 770 is not a multiple of heads 12: 770 = 64 \* 12 \+ 2$",
        ),
        (lambda: (D + 1) // 2, r"^D \+ 1 = 13 is not a multiple of 2: 13 = 6 \* 2 \+ 1$"),
        (lambda: D // (V - V), r"^D 12 cannot be divided by 0$"),
    ]:
        with (
            subtests.test(divide=divide, message=message),
            pytest.raises(CheckpointError, match=message),
        ):
            divide()


def test_only_a_product_divides():
    with pytest.raises(ValueError, match=r"only a product can divide .* not H \+ D"):
        (D + H) * 2 // (D + H)


def test_only_an_equal_value_can_be_put_in_place_of_a_symbol():
    with pytest.raises(ValueError, match=r"F is 48, 3\*D is 36"):
        F.substitute({LEGEND[6]: 3 * D})
