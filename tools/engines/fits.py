"""Expressions of config keys that fit observed numbers: sums of products, with a divisor each."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

Numbers = Mapping[str, int]


class Observed(NamedTuple):
    """A number and the values of the keys with which it was seen."""

    keys: Numbers
    number: int


class Term(NamedTuple):
    """A product of keys, divided by another key."""

    factors: tuple[str, ...]
    divisor: str = ""

    def value(self, keys: Numbers) -> Fraction:
        number = Fraction(1)
        for factor in self.factors:
            number *= keys[factor]
        if not self.divisor:
            return number
        return number / keys[self.divisor] if keys[self.divisor] else Fraction(-1, 7)

    def text(self, factor: int) -> str:
        parts = [*([str(factor)] if factor != 1 or not self.factors else []), *self.factors]
        return "*".join(parts) + (f"/{self.divisor}" if self.divisor else "")


def fitted(observed: Sequence[Observed], keys: Iterable[str]) -> str | None:
    """Return the shortest expression of some of the keys that fits; None if there is none."""
    usable = [key for key in keys if all(key in one.keys for one in observed)]
    terms = [*_terms(usable)]
    columns = [[term.value(one.keys) for one in observed] for term in terms]
    wanted = [one.number for one in observed]
    numbers = np.array(columns, dtype=float)
    target = np.array(wanted, dtype=float)
    for count in (1, 2, 3):
        for chosen in itertools.combinations(range(len(terms)), count):
            if count == 3 and len(terms) > 48:
                return None
            solution, *_ = np.linalg.lstsq(numbers[list(chosen)].T, target, rcond=None)
            factors = np.rint(solution)
            if not factors.all() or np.abs(numbers[list(chosen)].T @ factors - target).max() > 1e-6:
                continue
            if len({*map(tuple, zip(*(columns[at] for at in chosen), strict=True))}) < count:
                continue
            texts = [
                terms[at].text(int(factor)) for at, factor in zip(chosen, factors, strict=True)
            ]
            return "+".join(texts)
    halves = [Term(one.factors, one.divisor) for one in terms]
    for term, column in zip(halves, columns, strict=True):
        if (
            term.factors
            and not term.divisor
            and all(n == v // 2 for n, v in zip(wanted, column, strict=True))
        ):
            return f"{term.text(1)}/2"
    return None


def _terms(keys: Sequence[str]) -> Iterator[Term]:
    yield Term(())
    for size in (1, 2):
        for factors in itertools.combinations_with_replacement(keys, size):
            yield Term(factors)
    for size in (1, 2, 3):
        for factors in itertools.combinations(keys, size):
            for divisor in keys:
                if divisor not in factors:
                    yield Term(factors, divisor)
