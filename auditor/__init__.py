"""Audit Hugging Face checkpoints: what is stored against what the config implies.

    >>> import auditor
    >>> report = auditor.audit("bert-base-chinese")
    >>> report.observed.parameters - report.expected.parameters, report.residual
    (592130, 0)

`audit` returns a Report, or Unaudited with a reason; both carry `findings` (one class for each
kind, see auditor.reconciler.findings) and `modules_frame()`, a pandas DataFrame.
"""

from auditor.audit.options import Options
from auditor.audit.pipeline import audit, examine, explain
from auditor.errors import AuditError, CheckpointError, Reason, SourceError, UsageError
from auditor.reconciler import Finding, ModuleRow, Severity
from auditor.report import Expected, Observed, Report, Unaudited

__all__ = [
    "AuditError",
    "CheckpointError",
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
    "examine",
    "explain",
]
