"""What is wrong by kind and name, so that it can be told before from after names were changed."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from auditor.reconciler.findings import Finding

AlarmKey = tuple[str, str]  # the kind of a finding, and one of its names
UNCHANGED: Mapping[str, str] = MappingProxyType({})


def alarm_keys(finding: Finding, renames: Mapping[str, str] = UNCHANGED) -> Iterator[AlarmKey]:
    """A key for each name, as it is after the change; one for a model as a whole."""
    for name in finding.names or ("",):
        yield finding.kind, renames.get(name, name)


def composed(first: Mapping[str, str], then: Mapping[str, str]) -> Mapping[str, str]:
    """Renames of the original names, by one change and another one after it."""
    return {**then, **{name: then.get(other, other) for name, other in first.items()}}
