"""Findings: kinds.py is the table of their kinds, evidence.py has a class for each evidence.

finding.py has what all findings share, and findings as JSON has them.
"""

from auditor.findings.evidence import *  # noqa: F403 - all classes
from auditor.findings.evidence import (
    OfCount,
    OfFolders,
    OfKeys,
    OfPairs,
    OfTensors,
    OfValues,
)
from auditor.findings.finding import *  # noqa: F403
from auditor.findings.finding import Finding, FindingKind
from auditor.findings.kinds import *  # noqa: F403 - all rows of the table
from auditor.findings.kinds import (
    FINDING_KINDS,
    AdapterBeside,
    AddedBiasNotZero,
    AddedBiasZero,
    DifferingDuplicate,
    EqualDuplicate,
    EqualsBase,
)

_OF_NUMBERS = (AddedBiasNotZero, AddedBiasZero, DifferingDuplicate, EqualDuplicate, EqualsBase)
_ROWS = {(row.kind, row.severity): row for row in FINDING_KINDS}


def kind_of(finding: Finding) -> FindingKind[..., Finding]:
    """Return the row of the table for a finding."""
    return _ROWS[finding.kind, finding.severity]


def is_of_tensors(finding: Finding) -> bool:
    """Whether the finding's names are names of stored or expected tensors."""
    return isinstance(finding, OfTensors | OfPairs)


def is_of_repository(finding: Finding) -> bool:
    """Whether the finding concerns companion files, components, config keys or published counts.

    Findings about an adapter next to the model are included.
    """
    return isinstance(finding, OfKeys | OfCount | OfFolders) or AdapterBeside.describes(finding)


def is_of_values(finding: Finding) -> bool:
    """Whether only numbers, or digests of files, show the finding."""
    return isinstance(finding, OfValues) or kind_of(finding) in _OF_NUMBERS
