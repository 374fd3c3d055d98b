"""The tensors that a config implies: names, shapes, counts and formulas; no weights are read."""

from auditor.analytic import catalogue
from auditor.analytic.config import Config, read_config
from auditor.analytic.expectation import (
    Expectation,
    ExpectedTensor,
    ModuleFormula,
    Role,
    Symbol,
    Written,
)

__all__ = [
    "Config",
    "Expectation",
    "ExpectedTensor",
    "ModuleFormula",
    "Role",
    "Symbol",
    "Written",
    "catalogue",
    "read_config",
]
