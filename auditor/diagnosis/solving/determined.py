"""The sizes of a config that the stored tensors determine, read off one axis at a time.

An axis of `V` rows, or a list of `N` layers, has one unknown key, and its length says its value.
An axis of `H*d` rows has two: a model of twice the heads, half as wide, stores the same tensors.
It determines `H` only after another axis has determined `d`. A length that several values of the
key give, such as `floor(I/P)`, determines nothing; where the declared image is a whole number of
patches, `I/P`, so is the stored one.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Symbol
from auditor.diagnosis.solving.formulas import size_with, solutions
from auditor.diagnosis.solving.holdings import HeldTensors
from auditor.diagnosis.solving.outline import Leaf, leaves
from auditor.diagnosis.solving.trials import ClassTree, spellings


def determined_sizes(
    expected: ClassTree, stored: HeldTensors, given: Mapping[str, int]
) -> Mapping[Symbol, int]:
    """The value of each key of the formulas that the stored lengths leave no choice of.

    The values in `given`, by key, are taken for granted, and not returned. A key for which two
    lengths give different values is left out.
    """
    lengths = set(_lengths(expected, stored))
    symbols = frozenset().union(*(size.symbols for size, _ in lengths))
    granted = {symbol: given[symbol.key] for symbol in symbols if symbol.key in given}
    known, disputed = dict(granted), set[Symbol]()
    while True:
        found: dict[Symbol, set[int]] = {}
        for size, length in lengths:
            unknown = [symbol for symbol in size.symbols if symbol not in known]
            if len(unknown) == 1:
                value = _only_solution(size, unknown[0], length, known)
                if value is not None:
                    found.setdefault(unknown[0], set()).add(value)
        if not found:
            break
        disputed |= {symbol for symbol, values in found.items() if len(values) > 1}
        known |= {symbol: min(values) for symbol, values in found.items()}
    return {
        symbol: value
        for symbol, value in known.items()
        if symbol not in disputed and symbol not in granted
    }


def _lengths(expected: ClassTree, stored: HeldTensors) -> Iterator[tuple[Dim, int]]:
    """The formula and the stored length of each axis, and of each list of modules."""
    for leaf in leaves(expected.tree):
        for name in spellings(leaf.name, expected.prefix):
            shape = stored.shapes.get(name)
            if shape is not None and len(shape) == len(leaf.shape):
                yield from zip(map(dim, leaf.shape), shape, strict=True)
                yield from _counts(leaf, name, stored)
                break


def _counts(leaf: Leaf, name: str, stored: HeldTensors) -> Iterator[tuple[Dim, int]]:
    """The formula and the stored number of modules of each list around a stored tensor."""
    for modules in leaf.lists:
        end = len(name) - len(leaf.name) + len(modules.name)  # the name may lack the prefix
        if (count := stored.counts.get(name[: max(end, 0)])) is not None:
            yield modules.modules, count


def _only_solution(
    size: Dim, symbol: Symbol, length: int, others: Mapping[Symbol, int]
) -> int | None:
    """The one value of the symbol that gives the length; None if there is none, or several."""
    found = list(islice(solutions(size, symbol, length, others), 2))
    if len(found) != 1:
        return None
    near = (size_with(size, {**others, symbol: found[0] + step}) for step in (-1, 1))
    return None if length in near else found[0]
