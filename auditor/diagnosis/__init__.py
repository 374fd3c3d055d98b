"""Why: from findings to causes. Each is tested by undoing it, in memory, and auditing again.

A cause is a file of `causes/` with a function `undoings(case)`, and a place in `engine.CAUSES`.
"""

from auditor.diagnosis.engine import diagnose

__all__ = ["diagnose"]
