"""Trees of blocks, drawn at random."""

from hypothesis import strategies as st

from auditor.analytic import Symbol
from auditor.analytic.blocks import (
    Block,
    Buffer,
    Experts,
    Extra,
    Legacy,
    Module,
    Param,
    Repeat,
    Submodel,
    module,
    stack,
)
from auditor.analytic.dims import Dim, dim


def size(letter: str, value: int, key: str = "key") -> Dim:
    return dim(Symbol(letter=letter, key=key, value=value, default=False))


D, N, E = size("D", 6), size("N", 3), size("E", 2)


def blocks() -> st.SearchStrategy[Block]:
    sizes = st.sampled_from((D, 2 * D, D + 1, dim(1))) | st.integers(0, 3)
    shapes = st.lists(sizes, max_size=3).map(tuple)
    return st.recursive(
        shapes.map(Param) | shapes.map(Buffer) | shapes.map(Legacy),
        lambda inner: (
            modules(inner)
            | modules(inner).map(Extra)
            | modules(inner).map(Submodel)
            | st.builds(Repeat, st.sampled_from((N, E, dim(0))), modules(inner))
            | st.builds(stacked, st.sampled_from((N, E, dim(0))), st.lists(modules(inner)))
            | modules(inner).map(lambda body: Experts(Repeat(N, body), count=N, active=E))
        ),
        max_leaves=8,
    )


def stacked(count: Dim, bodies: list[Module]) -> Block:
    """A stack that goes round these bodies."""
    kinds = bodies or [module()]
    return stack(count, lambda number: number % len(kinds), kinds.__getitem__)


def modules(inner: st.SearchStrategy[Block]) -> st.SearchStrategy[Module]:
    return st.dictionaries(
        st.sampled_from(("a", "w1", "w2", "weight", "self")), inner, max_size=3
    ).map(lambda children: module(**children))
