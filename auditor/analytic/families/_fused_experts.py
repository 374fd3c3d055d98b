"""Experts that transformers 5 fuses when it loads them: on disk each is stored by itself."""

from auditor.analytic.family import Conversions
from auditor.analytic.loading import Operation, Rule

_STACKED = Operation("MergeModulelist")  # an axis of experts in front
_ABOVE = Operation("Concatenate", axes=(1,))  # what gates above what is gated, in each expert


def fused_experts(gate: str, up: str, down: str, module: str) -> Conversions:
    """The experts of a layer become two tensors, (E, 2F, D) and (E, D, F)."""
    each = [f"{module}.*.{name}.weight" for name in (gate, up, down)]
    return (
        Rule((each[0], each[1]), (f"{module}.gate_up_proj",), operations=(_STACKED, _ABOVE)),
        Rule((each[2],), (f"{module}.down_proj",), operations=(_STACKED,)),
    )


FUSED_EXPERTS = fused_experts("gate_proj", "up_proj", "down_proj", "mlp.experts")
