"""Observed against expected: every tensor accounted for, every difference named."""

from auditor.reconciler.findings import Finding, Severity
from auditor.reconciler.module_rows import ModuleRow

__all__ = ["Finding", "ModuleRow", "Severity"]
