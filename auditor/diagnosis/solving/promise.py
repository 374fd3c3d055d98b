"""Whether other names would close anything: of a large model, before it is audited again."""

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.solving.holdings import HeldTensors
from auditor.diagnosis.solving.trials import Trials
from auditor.errors import CheckpointError

# Tensors from which on an audit takes longer than a comparison of kinds: 0.1 s.
LARGE = 5000


def promises(case: Case, undoing: Undoing) -> bool:
    """Whether fewer kinds of tensors differ under an undoing's names; true where none are known."""
    if case.size < LARGE or not undoing.renames:
        return True
    try:
        expected = case.tree(case.snapshot)
    except CheckpointError:
        return True
    if expected is None:
        return True
    shapes = case.holdings.shapes
    renamed = {undoing.renames.get(name, name): shape for name, shape in shapes.items()}
    before = Trials(case.holdings, None).compare(expected).differ
    return Trials(HeldTensors(renamed), None).compare(expected).differ < before
