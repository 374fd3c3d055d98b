"""Audit Hugging Face checkpoints: what is stored against what the config implies.

    >>> import auditor
    >>> report = auditor.audit("bert-base-chinese")
    >>> report.observed.parameters - report.expected.parameters, report.residual
    (592130, 0)

`audit` returns a Report, or Unaudited with a reason; both carry `findings` (one class for each
kind, see auditor.findings) and `modules_frame()`, a pandas DataFrame. `explain`, `claim`, `diff`,
`memory`, `fix` and `snapshot` do what the commands of these names do; docs/api.md lists all. The
logger `auditor` gets a line for each audit (INFO) and each request (DEBUG).
"""

import sys
from importlib import import_module
from types import ModuleType

from auditor import presented, version

# As in `typing`, whose import would take more time than the rest of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from auditor.audit.claiming import Claim, claim
    from auditor.audit.options import Options
    from auditor.audit.pipeline import audit, diff, examine, explain
    from auditor.comparing import Comparison
    from auditor.errors import (
        AuditError,
        CheckpointError,
        FixError,
        Reason,
        SourceError,
        UsageError,
    )
    from auditor.functions import fix, memory, snapshot
    from auditor.options import AuditRequest
    from auditor.reconciler import Finding, ModuleRow, Severity
    from auditor.report import Expected, Observed, Report, Unaudited

__all__ = [
    "AuditError",
    "AuditRequest",
    "CheckpointError",
    "Claim",
    "Comparison",
    "Expected",
    "Finding",
    "FixError",
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
    "fix",
    "memory",
    "snapshot",
]

__version__ = version.VERSION

# The module of each name, imported at the first use, because the command line must set up signal
# handling before slow imports.
_MODULES = {
    "auditor.audit.claiming": ("Claim", "claim"),
    "auditor.audit.options": ("Options",),
    "auditor.audit.pipeline": ("audit", "diff", "examine", "explain"),
    "auditor.comparing": ("Comparison",),
    "auditor.errors": (
        "AuditError",
        "CheckpointError",
        "FixError",
        "Reason",
        "SourceError",
        "UsageError",
    ),
    "auditor.functions": ("fix", "memory", "snapshot"),
    "auditor.reconciler": ("Finding", "ModuleRow", "Severity"),
    "auditor.report": ("Expected", "Observed", "Report", "Unaudited"),
    "auditor.options": ("AuditRequest",),
}
_MODULE_BY_NAME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = value
    return value


def _function_of(method: str) -> "Callable[..., object]":
    """Return the function behind a method of `auditor.presented`."""
    function: Callable[..., object] = getattr(import_module("auditor.presentation"), method)
    return function


presented.function_of = _function_of


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The type of this package; its attribute `audit` stays the function, not the subpackage."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name == "audit" and isinstance(value, ModuleType)):  # set by an import
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
