"""uneven-layers: tensors of one name have other shapes from layer to layer.

Pruning by layer writes such files, and so does a merge of models of two widths. The class has one
shape for all layers, and no value of the config describes them.

To do: Merge models of one width; load a pruned model with the library that pruned it, or prune all
layers alike.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Proposal, differing_axes
from auditor.names.kinds import NameKind, runs

CAUSE = "uneven-layers"
_FEWEST = 4  # mismatched tensors of such names; fewer are rather broken than pruned
_MOST_SHOWN = 3  # shapes of one name


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model with the expected shapes, if the class has one shape for all layers."""
    expected = {pair.stored.name: pair.expected.shape for pair in case.mismatched}
    uneven = [
        kind
        for kind in case.stored.kinds
        if kind.places and len({case.shapes[name] for name in kind.names}) > 1
        if len({expected.get(name, case.shapes[name]) for name in kind.names}) == 1
    ]
    names = {name for kind in uneven for name in kind.names}
    found = [pair for pair in case.mismatched if pair.stored.name in names]
    if len(found) < _FEWEST:
        return
    lengths = {one for pair in found for one in differing_axes(pair).values()}
    alike = [pair for pair in case.mismatched if lengths.issuperset(differing_axes(pair).values())]
    largest = max(uneven, key=lambda kind: len(expected.keys() & set(kind.names)))
    name = largest.pattern.replace(".0.", ".N.", 1)
    yield Proposal(
        cause=CAUSE,
        change=case.as_expected(alike),
        summary=f"{len(found):,} tensors have other shapes from layer to layer, which no value of "
        f"the config describes: {name} is {_by_shape(case, largest)}",
        fix="merge models of one width, if models were merged; load a pruned model with the "
        "library that pruned it, or prune all layers alike",
        evidence=tuple(pair.stored.name for pair in found[:_MOST_SHOWN]),
    )


def _by_shape(case: Case, kind: NameKind) -> str:
    """Return the shapes of a name, with the layers that have them."""
    layers: dict[tuple[int, ...] | None, set[int]] = {}
    for name, numbers in zip(kind.names, kind.numbers, strict=True):
        layers.setdefault(case.shapes[name], set()).add(int(numbers[0]))
    shown = [f"{shape} in layers {runs(which)}" for shape, which in layers.items()]
    return " and ".join(shown[:_MOST_SHOWN]) + (" ..." if len(shown) > _MOST_SHOWN else "")
