"""What an audit says of the numbers of a checkpoint."""

from auditor.report import Outcome

LEVEL = "of_values"  # the module of findings that only numbers can show


def causes_of(outcome: Outcome) -> list[tuple[str, str]]:
    """What was found in numbers; that a copy is the same is no fault."""
    found = [one for one in outcome.findings if type(one).__module__.endswith(LEVEL)]
    return [(one.kind, str(one.severity)) for one in found if one.kind != "duplicate"]
