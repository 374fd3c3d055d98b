"""Which classes fit what is stored, by one tensor of each kind: before any audit."""

from collections.abc import Collection, Iterator

from auditor.diagnosis.case import Case
from auditor.diagnosis.solving.trials import Trials
from auditor.errors import CheckpointError


def fitting(case: Case, names: Collection[str], trials: Trials) -> Iterator[str]:
    """The classes of these names that need all that is stored, and nothing else."""
    for name in names:
        try:
            expected = case.tree(case.snapshot, target=name)
        except CheckpointError:
            continue
        if expected is not None and not trials.compare(expected).differ:
            yield name
