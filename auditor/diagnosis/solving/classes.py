"""Which classes fit what is stored, by one tensor of each kind: before any audit."""

from collections.abc import Collection

from auditor.diagnosis.case import Case
from auditor.diagnosis.solving.outline import follow
from auditor.diagnosis.solving.trials import Trials
from auditor.errors import CheckpointError


def fitting(case: Case, names: Collection[str], trials: Trials) -> list[str]:
    """The classes of these names that need all that is stored, and nothing else.

    Those come first that have the names as they are stored, with the base model's prefix or
    without.
    """
    found: list[tuple[int, int, str]] = []
    for place, name in enumerate(names):
        try:
            expected = case.tree(case.snapshot, target=name)
        except CheckpointError:
            continue
        if expected is not None and not trials.compare(expected).differ:
            steps = (follow(expected.tree, kind.first) for kind in case.holdings.kinds)
            spelt = sum(step.shape is not None for step in steps)
            found.append((-spelt, place, name))
    return [name for *_, name in sorted(found)]
