"""The step from findings to causes: reverse each candidate cause in memory and audit again.

A cause is a module of `causes/`, with an entry in `engine.CAUSES` and a function `proposals(case)`.
It yields proposals: changes of the snapshot that reverse what the cause may have done.
"""

from auditor.diagnosis.engine import diagnose

__all__ = ["diagnose"]
