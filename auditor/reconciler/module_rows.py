"""Stored against expected, module prefix by module prefix, as the checkpoint names them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from auditor.analytic import Expectation, ModuleFormula, Role
from auditor.reconciler.matching import Step
from auditor.reconciler.reconcile import Absent, Reconciled
from auditor.reconciler.status import ModuleStatus, status_of
from auditor.tensors import natural_key
from auditor.walker import Tally, Walk, parent


class ModuleRow(NamedTuple):
    """The tally of one module prefix, as the checkpoint names it; the root is ""."""

    prefix: str
    depth: int  # dots + 1; the root is 0
    tensors: int
    elements: int | None
    parameters: int | None
    trainable: int | None
    bytes: int | None
    share: float | None  # of all stored parameters, 0 to 1
    expected: int | None  # parameters; None: no expectation
    difference: int | None  # parameters - expected
    formula: str | None
    status: ModuleStatus


# tensors, elements, parameters, trainable, bytes: of a tally as of a row
_Counts = tuple[int, int | None, int | None, int | None, int | None]

_NOT_STORED = Tally()
_NOT_EXPECTED = ModuleFormula(0, "0")


def compared_rows(
    reconciled: Reconciled,
    expectation: Expectation,
    walked: Walk,
    *,
    depth: int | None,
    shapes: bool,
) -> tuple[ModuleRow, ...]:
    """A row for every prefix that is stored or expected, down to `depth`, the walk's own.

    Without `shapes` (names from an index alone) the stored counts are None.
    """
    tallies = walked.by_prefix()
    older = reconciled.moved or any(Step.OLDER in hit.steps for hit in reconciled.answered)
    formulas = (
        _as_stored(reconciled, expectation, depth)
        if older
        else _on_disk(expectation, reconciled.shift, depth)
    )
    fates = _absent_fates(reconciled.absent, expectation.prefix, reconciled.shift, depth)
    whole = tallies[""].parameters
    prefixes = sorted({**formulas, **tallies, **fates}, key=natural_key)  # nearly in order, so fast
    stored = [tallies.get(prefix, _NOT_STORED) for prefix in prefixes]
    both = zip(prefixes, stored, strict=True)
    statuses = [status_of(tally.fates | fates.get(prefix, 0)) for prefix, tally in both]
    return tuple(
        _row(
            prefix,
            tally,
            formulas.get(prefix, _NOT_EXPECTED),
            status,
            whole if shapes else None,
        )
        for prefix, tally, status in zip(prefixes, stored, statuses, strict=True)
    )


def stored_rows(walked: Walk, *, shapes: bool) -> tuple[ModuleRow, ...]:
    """Rows of what is stored, without an expectation to compare with."""
    tallies = walked.by_prefix()
    whole = tallies[""].parameters if shapes else None
    return tuple(
        _row(prefix, tallies[prefix], None, "unchecked", whole)
        for prefix in sorted(tallies, key=natural_key)
    )


def _row(
    prefix: str,
    tally: Tally,
    formula: ModuleFormula | None,
    status: ModuleStatus,
    whole: int | None,
) -> ModuleRow:
    known = whole is not None
    expected = formula.parameters if formula else None
    counts: _Counts = tally[:5] if known else (tally.tensors, None, None, None, None)
    return ModuleRow(
        prefix,
        depth_of(prefix),
        *counts,
        tally.parameters / whole if whole else None,
        expected,
        tally.parameters - expected if known and expected is not None else None,
        formula.formula if formula else None,
        status,
    )


def depth_of(prefix: str) -> int:
    return prefix.count(".") + 1 if prefix else 0


def _on_disk(
    expectation: Expectation, shift: Step | None, depth: int | None
) -> Mapping[str, ModuleFormula]:
    """The expectation's modules under the names that this checkpoint gives them."""
    found = expectation.modules
    if shift is not None:
        pairs = ((_shifted(name, expectation.prefix, shift), of) for name, of in found.items())
        found = {name: of for name, of in pairs if name is not None} | {"": found[""]}
    if depth is None:
        return found
    return {name: of for name, of in found.items() if not name or name.count(".") < depth}


def _as_stored(
    reconciled: Reconciled, expectation: Expectation, depth: int | None
) -> Mapping[str, ModuleFormula]:
    """What is expected of each module as the file cuts it up, where its names are older ones.

    A module that the file has under another path keeps its formula; of others there is the count.
    """
    counts: dict[str, int] = {"": 0}
    formulas = {"": expectation.modules[""]}
    stored = {hit.expected.name: hit.stored.name for hit in reconciled.answered}
    if reconciled.moved:
        stored.update((name, tensor.name) for name, tensor in reconciled.plain.items())
    for tensor in expectation.tensors:
        if tensor.role.optional:
            continue
        name = stored.get(tensor.name, tensor.name)
        ours, theirs = parent(tensor.name), parent(name)
        same = tensor.name.rpartition(".")[2] == name.rpartition(".")[2]
        while theirs:
            if same and ours in expectation.modules:
                formulas[theirs] = expectation.modules[ours]
            counts[theirs] = counts.get(theirs, 0) + (
                tensor.elements if tensor.role is Role.PARAMETER else 0
            )
            same = same and ours.rpartition(".")[2] == theirs.rpartition(".")[2]
            ours, theirs = parent(ours), parent(theirs)
    found = {"": expectation.modules[""]}
    for prefix, count in counts.items():
        if prefix and (depth is None or depth_of(prefix) <= depth):
            formula = formulas.get(prefix)
            exact = formula is not None and formula.parameters == count
            found[prefix] = formula if formula and exact else ModuleFormula(count, str(count))
    return found


def _shifted(prefix: str, base: str, shift: Step | None) -> str | None:
    """A module's name in the file; None where the file has no such level.

    STRIPPED: the file says `bert.encoder` where BertModel says `encoder`.
    ADDED: the file says `encoder` where BertForMaskedLM says `bert.encoder`.
    """
    if shift is Step.STRIPPED:
        return f"{base}.{prefix}" if prefix else base
    if shift is Step.ADDED and (prefix == base or prefix.startswith(f"{base}.")):
        return prefix[len(base) + 1 :] or None
    return prefix


def _absent_fates(
    absent: Iterable[Absent], base: str, shift: Step | None, depth: int | None
) -> Mapping[str, int]:
    """For every prefix, the or-ed fates of the expected tensors below it that nothing answers."""
    fates: dict[str, int] = {}
    for tensor, fate in absent:
        prefix = _shifted(parent(tensor.name), base, shift) or ""
        if depth is not None:
            prefix = ".".join(prefix.split(".")[:depth])
        while True:
            fates[prefix] = fates.get(prefix, 0) | fate
            if not prefix:
                break
            prefix = parent(prefix)
    return fates
