"""The expectation of a tree of blocks: its tensors, its formula, and the letters of the formula."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from auditor.analytic.blocks import Module, bounded_tensor_count, symbols
from auditor.analytic.config_classes import ConfigFault
from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Expectation, ModuleFormula, Names, Symbol
from auditor.analytic.listing import Inventory, inventory
from auditor.analytic.loading import PLAIN, Loading
from auditor.analytic.lookup import NameLookup


def tree_expectation(  # noqa: PLR0913 - the parts of an answer, and whose it is
    tree: Module,
    target: str,
    *,
    model_type: str = "",
    prefix: str = "",
    by: Literal["closed-form", "generated"] = "closed-form",
    library: str | None = None,
    loading: Loading = PLAIN,
    defaults: tuple[str, ...] = (),
    faults: tuple[ConfigFault, ...] = (),
) -> Expectation:
    """Return the expectation of a tree; raise CheckpointError if it has impossible sizes."""
    write = _written if bounded_tensor_count(tree) <= _MOST_KEPT else _written.__wrapped__
    written = write(tree)
    return Expectation(
        target=target,
        model_type=model_type,
        prefix=prefix,
        by=by,
        library=library,
        listed=written.inventory,
        parameters=written.total.parameters,
        formula=written.total.formula,
        legend=written.legend,
        active=written.active,
        loading=loading,
        defaults=defaults,
        faults=faults,
    )


class Sibling(NamedTuple):
    """A class of the target's family, whose tensors are looked up by name and not listed."""

    target: str
    prefix: str
    names: Names  # by loaded name, if loading renames
    loading: Loading = PLAIN


def tree_sibling(tree: Module, target: str, prefix: str, loading: Loading) -> Sibling:
    """Return the class of a tree as a sibling."""
    names: Names = NameLookup(tree)
    if loading.renames:
        listed = inventory(tree, {}).tensors
        renamed = loading.renamed([tensor.name for tensor in listed])
        names = dict(zip(renamed, listed, strict=True))
    return Sibling(target, prefix, names, loading)


class _Written(NamedTuple):
    """The fields of an expectation that depend only on the tree of blocks."""

    inventory: Inventory
    total: ModuleFormula
    active: ModuleFormula | None
    legend: tuple[Symbol, ...]


# Trees of more tensors are not cached. A BERT has 200, which take 70 kB (tracemalloc);
# Mixtral 8x7B has 995.
_MOST_KEPT = 2048


@lru_cache(maxsize=32)
def _written(tree: Module) -> _Written:
    letters = _by_letter(sorted(symbols(tree)))  # in the same order in every process
    replacements = _multiples(letters)
    listed = inventory(tree, replacements)
    formula = listed.listing.formula
    total, active = formula(listed.total), formula(listed.active) if listed.active else None
    printed = total.formula + (active.formula if active else "")
    legend = tuple(_legend(printed, letters, replacements))
    return _Written(listed, total, active, legend)


def _by_letter(keys: Iterable[Symbol]) -> dict[str, Symbol]:
    letters: dict[str, Symbol] = {}
    for symbol in keys:
        if letters.setdefault(symbol.letter, symbol) != symbol:
            both = f"{letters[symbol.letter].key} and {symbol.key}"
            raise ValueError(f"{both} would both be {symbol.letter} in one formula")
    return letters


def _multiples(letters: Mapping[str, Symbol]) -> dict[Symbol, Dim]:
    """Return replacements such as 4*D for F, so that a layer is written 12*D^2 + 13*D."""
    replacements: dict[Symbol, Dim] = {}
    for letter, F in letters.items():
        head, _, subscript = letter.partition("_")
        D = letters.get(f"D_{subscript}", letters.get("D"))
        if head == "F" and D is not None and F.value and D.value and not F.value % D.value:
            replacements[F] = F.value // D.value * dim(D)
    return replacements


def _legend(
    formula: str, letters: Mapping[str, Symbol], replacements: Mapping[Symbol, Dim]
) -> Iterator[Symbol]:
    """Yield the letters of the formula in order, then the letters that were replaced."""
    for letter in dict.fromkeys(re.findall(r"[A-Za-z_]\w*(?:\[\d+\])?", formula)):
        if letter in letters:  # not ceil or floor
            yield letters[letter]
    for symbol, by in replacements.items():
        yield symbol._replace(formula=str(by))
