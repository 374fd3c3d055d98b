"""Audit Hugging Face checkpoints: what is stored against what the config implies.

    >>> import auditor
    >>> report = auditor.audit("bert-base-chinese")
    >>> report.observed.parameters - report.expected.parameters, report.residual
    (592130, 0)

`audit` returns a Report, or Unaudited with a reason; both carry `findings` (one class for each
kind, see auditor.reconciler.findings) and `modules_frame()`, a pandas DataFrame. `claim` says what
a published count is worth, `diff` what one checkpoint has otherwise than another.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from auditor.audit.options import Options
from auditor.audit.pipeline import audit, diff, examine, explain
from auditor.errors import AuditError, CheckpointError, Reason, SourceError, UsageError
from auditor.reconciler import Finding, ModuleRow, Severity
from auditor.report import Expected, Observed, Report, Unaudited
from auditor.request import AuditRequest

if TYPE_CHECKING:
    from auditor.audit.claiming import Claim, claim
    from auditor.comparing import Comparison

__all__ = [
    "AuditError",
    "AuditRequest",
    "CheckpointError",
    "Claim",
    "Comparison",
    "Expected",
    "Finding",
    "ModuleRow",
    "Observed",
    "Options",
    "Reason",
    "Report",
    "Severity",
    "SourceError",
    "Unaudited",
    "UsageError",
    "audit",
    "claim",
    "diff",
    "examine",
    "explain",
]


_ON_DEMAND = {
    "Claim": "auditor.audit.claiming",
    "claim": "auditor.audit.claiming",
    "Comparison": "auditor.comparing",
}


def __getattr__(name: str) -> Any:
    """What no audit needs is imported when it is asked for."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)
