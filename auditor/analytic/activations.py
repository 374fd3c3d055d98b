"""The activation functions that store tensors; most do not."""

from types import MappingProxyType

from auditor.analytic.blocks import Buffer, Module, Param, module
from auditor.analytic.config import Config

LEARNED = MappingProxyType(
    {
        "prelu": module(weight=Param((1,))),
        "xielu": module(alpha_p=Param((1,)), alpha_n=Param((1,)), beta=Buffer(()), eps=Buffer(())),
    }
)


def activation(c: Config, key: str = "hidden_act") -> Module | None:
    """Return the tensors of the activation under a config key; None if it has no tensors."""
    name = c.attribute(key)
    return LEARNED.get(name) if isinstance(name, str) else None
