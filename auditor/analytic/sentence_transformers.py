"""The modules of sentence-transformers that learn something beside the transformer itself.

Their config.json names no class: modules.json does. Names are those of the module's own state
dict: `linear` of a Dense, `norm` of a LayerNorm.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from auditor.analytic.blocks import LayerNorm, Linear, Module, module, symbols
from auditor.analytic.config import Config
from auditor.analytic.expectation import Expectation, ModuleFormula
from auditor.analytic.family import Family
from auditor.analytic.inventory import inventory

MODEL_TYPE = "sentence-transformers"

_FAMILY = Family(
    model_type=MODEL_TYPE,
    prefix="",
    base="Dense",
    defaults=MappingProxyType({"bias": True}),
    letters=MappingProxyType({"in_features": "I", "out_features": "O", "dimension": "D"}),
)


def _dense(c: Config) -> Module:
    inputs, outputs = c.dim("in_features"), c.dim("out_features")
    return module(linear=Linear(inputs, outputs, bias=c.flag("bias")))


def _layer_norm(c: Config) -> Module:
    return module(norm=LayerNorm(c.dim("dimension")))


_BUILDERS: Mapping[str, Callable[[Config], Module]] = MappingProxyType(
    {"Dense": _dense, "LayerNorm": _layer_norm}
)
KINDS = tuple(_BUILDERS)


def expect_module(config: Config, kind: str) -> Expectation:
    """What a module of one of the KINDS stores; CheckpointError where its config says none."""
    completed = config.of(_FAMILY)
    tree = _BUILDERS[kind](completed)
    listed = inventory(tree, {})
    total = ModuleFormula(listed.total.value, str(listed.total))
    return Expectation(
        target=kind,
        model_type=MODEL_TYPE,
        prefix="",
        by="closed-form",
        listed=listed,
        parameters=total.parameters,
        formula=total.formula,
        legend=tuple(sorted(symbols(tree), key=lambda symbol: symbol.letter)),
        defaults=completed.defaulted,
    )
