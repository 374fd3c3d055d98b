"""Audit Hugging Face checkpoints: what is stored against what the config implies.

    >>> import auditor
    >>> report = auditor.audit("bert-base-chinese")
    >>> report.observed.parameters - report.expected.parameters, report.residual
    (592130, 0)

`audit` returns a Report, or Unaudited with a reason; both carry `findings` (one class for each
kind, see auditor.reconciler.findings) and `modules_frame()`, a pandas DataFrame. `claim` says what
a published count is worth.
"""

from typing import TYPE_CHECKING, Any

from auditor.audit.options import Options
from auditor.audit.pipeline import audit, examine, explain
from auditor.errors import AuditError, CheckpointError, Reason, SourceError, UsageError
from auditor.reconciler import Finding, ModuleRow, Severity
from auditor.report import Expected, Observed, Report, Unaudited

if TYPE_CHECKING:
    from auditor.audit.claiming import Claim, claim

__all__ = [
    "AuditError",
    "CheckpointError",
    "Claim",
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
    "examine",
    "explain",
]


def __getattr__(name: str) -> Any:
    """`claim` and its Claim are imported when they are asked for: no audit needs them."""
    if name not in {"Claim", "claim"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from auditor.audit import claiming  # noqa: PLC0415 - see above

    return getattr(claiming, name)
