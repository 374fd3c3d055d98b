"""The comparison of observed and expected tensors: each accounted for, each difference named."""

from auditor.findings import Finding, Severity
from auditor.reconciler.rows import ModuleRow

__all__ = ["Finding", "ModuleRow", "Severity"]
