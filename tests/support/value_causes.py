"""What an audit says of the numbers of a checkpoint."""

from auditor.findings import is_of_values
from auditor.report import Outcome


def causes_of(outcome: Outcome) -> list[tuple[str, str]]:
    """What was found in numbers; that a copy is the same is no fault."""
    found = [one for one in outcome.findings if is_of_values(one)]
    return [(one.kind, str(one.severity)) for one in found if one.kind != "duplicate"]
