"""The comparison of stored and expected tensors: each is counted, each difference reported."""

from auditor.findings import Finding, Severity
from auditor.reconciler.rows import ModuleRow

__all__ = ["Finding", "ModuleRow", "Severity"]
