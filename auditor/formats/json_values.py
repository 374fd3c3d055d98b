"""Values of JSON: those of a config that every reader takes, and what identifies a finding."""

from collections.abc import Mapping
from math import isfinite
from typing import Any


def finite(value: Any) -> Any:
    """A value of a config as JSON has it: NaN and Infinity, which Python reads, as their names."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [finite(one) for one in value]
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    return value


def identity(finding: Mapping[str, Any]) -> tuple[str, ...]:
    """What stays of a finding from audit to audit, within its model; independent of order.

    The finding is as JSON has it, with its component.
    """
    place = (finding.get("component") or "", finding.get("file") or "")
    return (finding["kind"], *place, *sorted(finding["folded"]))
