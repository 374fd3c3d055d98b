"""The comparison of stored with expected tensors: it counts all, and reports differences."""

from auditor.findings import Finding, Severity
from auditor.reconciler.rows import ModuleRow

__all__ = ["Finding", "ModuleRow", "Severity"]
