"""The step from findings to causes: undo each candidate cause in memory and audit again.

A cause is a module of `causes/` with a function `undoings(case)`, and an entry in `engine.CAUSES`.
"""

from auditor.diagnosis.engine import diagnose

__all__ = ["diagnose"]
