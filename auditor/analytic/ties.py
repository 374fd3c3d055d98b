"""Heads that a class ties to its embeddings though the config says that they are not tied.

The config classes of T5 and its relatives force tie_word_embeddings to true. Checkpoints of T5 v1.1
say false and store both matrices, and loading keeps both; where one is stored, it ties the other.
"""

import re
from collections.abc import Callable, Collection
from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic.config import Config
from auditor.analytic.expectation import Expectation, ModuleFormula, Role, Written

_INPUTS = re.compile(r"(embed\w*|shared|wte)\.weight$")  # of a tower, which shares them always


def untied_heads(
    config: Config, expectation: Expectation, stored: Callable[[], Collection[str] | None]
) -> tuple[str, ...]:
    """The tied heads that are tensors of their own: both they and their sources are `stored`.

    It is asked for where there is such a head; None: nothing is known of what is stored, and the
    config's word stands.
    """
    outline = expectation.outline
    if not config.denies_ties or (outline and all(one.tied_to is None for one in outline.tensors)):
        return ()
    heads = [
        tensor
        for tensor in expectation.tensors
        if tensor.role is Role.TIED and not _INPUTS.search(tensor.name)
    ]
    names = stored() if heads else ()
    both = (head for head in heads if names is None or {head.name, head.tied_to} <= set(names))
    return tuple(head.name for head in both)


def with_untied(expectation: Expectation, names: Collection[str]) -> Expectation:
    """The expectation with tied tensors counted as tensors of their own."""
    apart = [tensor for tensor in expectation.tensors if tensor.name in names]
    more = sum(tensor.elements for tensor in apart)
    tensors = tuple(
        tensor._replace(role=Role.PARAMETER, tied_to=None) if tensor.name in names else tensor
        for tensor in expectation.tensors
    )
    modules = dict(expectation.modules)
    for tensor in apart:
        parts = tensor.name.split(".")[:-1]
        for length in range(len(parts) + 1):
            prefix = ".".join(parts[:length])
            if prefix in modules:
                modules[prefix] = _plus(modules[prefix], tensor.elements)
    whole = _plus(ModuleFormula(expectation.parameters, expectation.formula), more)
    return replace(
        expectation,
        listed=Written(tensors=tensors, modules=MappingProxyType(modules)),
        parameters=whole.parameters,
        formula=whole.formula,
    )


def _plus(formula: ModuleFormula, elements: int) -> ModuleFormula:
    """A count without letters stays one."""
    total = formula.parameters + elements
    if formula.formula == str(formula.parameters):
        return ModuleFormula(total, str(total))
    return ModuleFormula(total, f"{formula.formula} + {elements}")
