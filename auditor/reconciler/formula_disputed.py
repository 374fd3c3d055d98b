"""The differences between two expectations of one class: the closed form's and the oracle's."""

from collections.abc import Iterator

from auditor.analytic import Expectation, ExpectedTensor
from auditor.findings import DisputedTensor, FormulaDisputed
from auditor.tensors import natural_key


def formula_disputes(expectation: Expectation, second: Expectation) -> Iterator[FormulaDisputed]:
    """Yield a finding for each kind of difference: names, shapes, roles and ties, the total.

    The closed form may have more optional tensors, which other versions stored.
    """
    ours = {tensor.name: tensor for tensor in expectation.tensors}
    theirs = {tensor.name: tensor for tensor in second.tensors}
    whose = second.library or "the oracle"
    groups: dict[str, list[DisputedTensor]] = {}
    for name in sorted({*ours, *theirs}, key=natural_key):
        dispute = DisputedTensor(name=name, closed_form=ours.get(name), oracle=theirs.get(name))
        reason = _reason(dispute, whose)
        if reason is not None:
            groups.setdefault(reason, []).append(dispute)
    for reason, found in groups.items():
        yield FormulaDisputed(target=expectation.target, disputes=tuple(found), reason=reason)
    if expectation.parameters != second.parameters:
        reason = (
            f"{expectation.parameters:,} parameters by the closed form, "
            f"{second.parameters:,} by {whose}"
        )
        yield FormulaDisputed(target=expectation.target, disputes=(), reason=reason)


def _reason(dispute: DisputedTensor, whose: str) -> str | None:
    """Describe both sides of a dispute; None if they do not differ."""
    ours, theirs = dispute.closed_form, dispute.oracle
    if ours == theirs:
        return None
    if theirs is None:
        of_old = ours is None or ours.role.optional
        return None if of_old else f"the closed form has it, {whose} does not"
    if ours is None:
        return f"{whose} has it, the closed form does not"
    if ours.shape != theirs.shape:
        return f"{ours.shape} by the closed form, {theirs.shape} by {whose}"
    return f"{_role(ours)} by the closed form, {_role(theirs)} by {whose}"


def _role(tensor: ExpectedTensor) -> str:
    return f"tied to {tensor.tied_to}" if tensor.tied_to else tensor.role.value
