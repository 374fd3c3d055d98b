"""The Dim class: a size as an expression in config keys together with its value."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import chain, groupby
from operator import mul

from msgspec import Struct

from auditor.analytic.expectation import Symbol
from auditor.errors import CheckpointError
from auditor.messages import described

# The order of letters in products and of terms in sums: counts first, widths last (V*D, K*D).
# A letter's subscript is ignored: D_text has the place of D.
_PLACES = {letter: place for place, letter in enumerate("VLTCNEkKHDF")}
# A letter that counts whole blocks goes before brackets: N*(12*D^2 + 13*D).
_COUNTS = frozenset("NEk")


class Count(Struct, frozen=True):
    """The number of equal layers in an uneven stack; formulas write it before the product."""

    value: int

    @property
    def letter(self) -> str:
        return str(self.value)


class Rounded(Struct, frozen=True):
    """A quotient that is not a whole number, rounded up or down: `ceil(D/16)`."""

    how: str  # "ceil" or "floor"
    over: "Dim"
    by: "Dim"
    value: int

    @property
    def letter(self) -> str:
        over = f"({self.over})" if len(self.over.terms) > 1 else str(self.over)
        by = str(self.by)
        return f"{self.how}({over}/{by if by.isalnum() else f'({by})'})"


_Atom = Symbol | Count | Rounded
_Factor = tuple[_Atom, int]  # a factor and its power; a divisor's power is negative
_Monomial = tuple[_Factor, ...]  # in the order of _PLACES
_Coefficient = int | Fraction  # a Fraction only if a Dim was divided by a number
_Term = tuple[_Monomial, _Coefficient]


class Dim(Struct, frozen=True):
    """A sum of products of config keys, e.g. `V*D + 4*D`, and its value; built by `dim`."""

    terms: tuple[_Term, ...]
    value: int

    def __add__(self, other: "Dim | int") -> "Dim":
        other = dim(other)
        return _collect((*self.terms, *other.terms), self.value + other.value)

    def __mul__(self, other: "Dim | int") -> "Dim":
        other = dim(other)
        terms = tuple(_times(left, right) for left in self.terms for right in other.terms)
        value = self.value * other.value
        return _collect(terms, value) if len(terms) > 1 else Dim(terms, value)

    __radd__ = __add__
    __rmul__ = __mul__

    def __sub__(self, other: "Dim | int") -> "Dim":
        return self + -1 * dim(other)

    def __rsub__(self, other: int) -> "Dim":
        return -1 * self + other

    def __floordiv__(self, other: "Dim | int") -> "Dim":
        """Return the exact quotient by a product, so that `H * (D//H)` is `D`; else raise."""
        other = dim(other)
        quotient, remainder = self._divided(other)
        if remainder:
            raise CheckpointError(
                f"{self.named} is not a multiple of {other.named}: "
                f"{self.value} = {quotient} * {other.value} + {remainder}"
            )
        inverse = _power(_single(other), -1)
        return _collect((_times(term, inverse) for term in self.terms), quotient)

    def floor(self, other: "Dim | int") -> "Dim":
        """Return the quotient rounded down: `D/H` if it is exact, else `floor(D/H)`."""
        return self._rounded("floor", dim(other), 0)

    def ceil(self, other: "Dim | int") -> "Dim":
        """Return the quotient rounded up: `D/16` if it is exact, else `ceil(D/16)`."""
        return self._rounded("ceil", dim(other), 1)

    def _rounded(self, how: str, other: "Dim", up: int) -> "Dim":
        quotient, remainder = self._divided(other)
        if not remainder and len(other.terms) == 1:
            return self // other
        value = quotient + up if remainder else quotient
        return Dim(((((Rounded(how, self, other, value), 1),), 1),), value)

    def _divided(self, other: "Dim") -> tuple[int, int]:
        if not other.value:
            keys = {symbol.key for symbol in self.symbols | other.symbols}
            raise CheckpointError(f"{self.named} cannot be divided by {other.named}", *sorted(keys))
        return divmod(self.value, other.value)

    def __str__(self) -> str:
        return _sum_text(self.terms)

    @property
    def symbols(self) -> frozenset[Symbol]:
        atoms = {atom for monomial, _ in self.terms for atom, _ in monomial}
        return frozenset().union(*map(_symbols, atoms))

    @property
    def named(self) -> str:
        """The key with its value for error messages, e.g. `hidden_size 768`."""
        match self.terms:
            case ((((Symbol() as symbol, 1),), 1),):
                return f"{symbol.key} {described(self.value)}"
            case () | (((), _),):
                return described(self.value)
        return f"{self} = {described(self.value)}"

    def substitute(self, replacements: Mapping[Symbol, "Dim"]) -> "Dim":
        """Return an equal Dim with symbols replaced, each by a product of the same value."""
        if not replacements:
            return self
        for symbol, other in replacements.items():
            if symbol.value != other.value:
                raise ValueError(f"{symbol.letter} is {symbol.value}, {other} is {other.value}")
        terms = (_rewrite(term, replacements) for term in self.terms)
        return _collect(terms, self.value)


def dim(source: Dim | Symbol | int) -> Dim:
    """Return the Dim of a symbol or of a plain number."""
    match source:
        case Dim():
            return source
        case Symbol():
            return Dim(((((source, 1),), 1),), source.value)
        case int():
            return Dim((((), source),) if source else (), source)


def counted_dim(number: int) -> Dim:
    """Return a number of blocks as a Dim; formulas keep it before brackets: `3*(4*D^2 + D)`."""
    return dim(number) if number <= 1 else Dim(((((Count(number), 1),), 1),), number)


def product_of_dims(factors: Iterable[Dim | int]) -> Dim:
    sizes = tuple(map(dim, factors))
    return reduce(mul, sizes) if sizes else dim(1)


def sum_of_dims(sizes: Sequence[Dim]) -> Dim:
    """Return the sum of the sizes; faster than repeated `+`, which sorts terms each time."""
    if len(sizes) == 1:
        return sizes[0]
    terms = chain.from_iterable(size.terms for size in sizes)
    return _collect(terms, sum(size.value for size in sizes))


def _symbols(atom: _Atom) -> frozenset[Symbol]:
    match atom:
        case Symbol():
            return frozenset({atom})
        case Count():
            return frozenset()
        case Rounded(_, over, by):
            return over.symbols | by.symbols


def _collect(terms: Iterable[_Term], value: int) -> Dim:
    collected: dict[_Monomial, _Coefficient] = {}
    for monomial, coefficient in terms:
        collected[monomial] = collected.get(monomial, 0) + coefficient
    nonzero = [term for term in collected.items() if term[1]]
    if len(nonzero) > 1:
        nonzero.sort(key=lambda term: (*map(_factor_key, term[0]), _LAST))
    return Dim(tuple(nonzero), value)


def _times(left: _Term, right: _Term) -> _Term:
    if not left[0] or not right[0]:  # one factor is a plain number
        return left[0] or right[0], left[1] * right[1]
    powers = dict(left[0])
    for atom, power in right[0]:
        powers[atom] = powers.get(atom, 0) + power
    nonzero = [item for item in powers.items() if item[1]]
    if len(nonzero) > 1:
        nonzero.sort(key=_factor_key)
    return tuple(nonzero), left[1] * right[1]


def _power(term: _Term, power: int) -> _Term:
    monomial, coefficient = term
    raised = Fraction(coefficient) ** power if power < 0 else coefficient**power
    if raised.denominator == 1:  # adding a Fraction takes 0.9 us, adding ints 0.02
        raised = raised.numerator
    return tuple((atom, exponent * power) for atom, exponent in monomial), raised


def _single(divisor: Dim) -> _Term:
    if len(divisor.terms) != 1:
        raise ValueError(f"only a product can divide or be put in place of a symbol, not {divisor}")
    return divisor.terms[0]


def _rewrite(term: _Term, replacements: Mapping[Symbol, Dim]) -> _Term:
    monomial, coefficient = term
    if not any(atom in replacements or isinstance(atom, Rounded) for atom, _ in monomial):
        return term
    rewritten: _Term = ((), coefficient)
    for atom, power in monomial:
        rewritten = _times(rewritten, _power(_replaced(atom, replacements), power))
    return rewritten


def _replaced(atom: _Atom, replacements: Mapping[Symbol, Dim]) -> _Term:
    match atom:
        case Symbol() if atom in replacements:
            return _single(replacements[atom])
        case Rounded(how, over, by, value):
            over, by = over.substitute(replacements), by.substitute(replacements)
            return ((Rounded(how, over, by, value), 1),), 1
    return ((atom, 1),), 1


_FactorKey = tuple[int, str, str, int, int]
_LAST: _FactorKey = (len(_PLACES) + 1, "", "", 0, 0)  # V*D before V, and a plain number at the end


def _factor_key(factor: _Factor) -> _FactorKey:
    atom, power = factor
    match atom:
        case Symbol(letter=letter, key=key):
            return (_place(letter), letter, key, atom.value, -power)
        case Count():
            return (_PLACES["N"], "", "", atom.value, -power)
        case Rounded():
            return (len(_PLACES), atom.letter, "", atom.value, -power)


@lru_cache(maxsize=1024)
def _place(letter: str) -> int:
    return _PLACES.get(_head(letter), len(_PLACES))


def _head(letter: str) -> str:
    """Return the letter without subscript and index: D for D_text, N for N[0]."""
    return letter.partition("[")[0].partition("_")[0]


def _sum_text(terms: Iterable[_Term]) -> str:
    pieces: list[str] = []
    for count, group in groupby(terms, key=_count):
        same_count = tuple(group)
        if count is None or len(same_count) == 1:
            pieces.extend(map(_term_text, same_count))
        else:
            inner = _sum_text((monomial[1:], coefficient) for monomial, coefficient in same_count)
            pieces.append(f"{count.letter}*({inner})")
    return " + ".join(pieces).replace("+ -", "- ") or "0"


def _count(term: _Term) -> Symbol | Count | None:
    match term[0]:
        case ((Symbol() as symbol, 1), *_) if _head(symbol.letter) in _COUNTS:
            return symbol
        case ((Count() as count, 1), *_):
            return count
    return None


def _term_text(term: _Term) -> str:
    monomial, coefficient = term
    for atom, power in monomial:
        if isinstance(atom, Count):
            coefficient *= Fraction(atom.value) ** power
    shown = [(atom, power) for atom, power in monomial if not isinstance(atom, Count)]
    factors = [_power_text(atom, power) for atom, power in shown if power > 0]
    divisors = [_power_text(atom, -power) for atom, power in shown if power < 0]
    sign = "-" if coefficient < 0 else ""
    if abs(coefficient.numerator) != 1 or not factors:
        factors.insert(0, str(abs(coefficient.numerator)))
    if coefficient.denominator != 1:
        divisors.insert(0, str(coefficient.denominator))
    return sign + "/".join(["*".join(factors), *divisors])


def _power_text(atom: _Atom, power: int) -> str:
    return atom.letter if power == 1 else f"{atom.letter}^{power}"
