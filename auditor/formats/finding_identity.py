"""What stays of a finding from audit to audit."""

from collections.abc import Mapping
from typing import Any


def identity(finding: Mapping[str, Any]) -> tuple[str, ...]:
    """Of a finding as JSON, with its component, within its model; independent of order."""
    place = (finding.get("component") or "", finding.get("file") or "")
    return (finding["kind"], *place, *sorted(finding["folded"]))
