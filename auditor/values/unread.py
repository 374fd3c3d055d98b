"""What an audit says that it did not check of numbers."""

from auditor.report import Report, Unaudited

_HEADERS_ALONE = "values: only headers are read, no weight is"


def without_headers_alone(outcome: Report | Unaudited) -> tuple[str, ...]:
    """What was not checked, but for the sentence that no number was read."""
    return tuple(one for one in outcome.unchecked if one != _HEADERS_ALONE)
