"""One small config for each model type: the richest of a few that its own strategy draws."""

import re
from importlib import import_module
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from support.bert_configs import config_of

from auditor.analytic import Expectation, catalogue
from auditor.analytic.families import FILES
from auditor.errors import AuditError

EXAMPLES = 300  # as many are drawn at most, always the same ones; of paligemma 1 in 40 is small
ENOUGH = 25  # small ones to choose from
LARGEST = 400_000  # elements that any class of the type may have, since loading fills them
MANY = 260  # tensors, of which more would show nothing new

# Models of papers alone, which transformers does not have.
PAPERS = frozenset({"transformer-2017"})
# Small for types whose strategies seldom draw all parts small at once.
MODEL_TYPES = tuple(each for each in catalogue.model_types() if each not in PAPERS)


def small_config(model_type: str, number: int = 0) -> dict[str, Any]:
    """The config with the most kinds of tensors, of those whose classes are all small.

    Another number draws others.
    """
    strategies = import_module(f"support.strategies.{FILES[model_type]}")
    drawn: list[tuple[tuple[int, int], dict[str, Any]]] = []

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategies.VALUES[model_type])
    def draw(values: dict[str, Any]) -> None:
        if len(drawn) == ENOUGH:
            return
        richness = _richness(model_type, values)
        if richness is not None:
            drawn.append((richness, values))

    draw()
    if not drawn:
        raise LookupError(f"no small config of {model_type} in {EXAMPLES} draws")
    return max(drawn, key=lambda item: item[0])[1]


def _richness(model_type: str, values: dict[str, Any]) -> tuple[int, int] | None:
    """Kinds of tensors, names without their numbers; then tensors. None: too large, or no model.

    A config that one class of the type cannot be built from is of no use, either.
    """
    try:
        each = [expectation(model_type, values, name) for name in catalogue.siblings(model_type)]
    except AuditError:
        return None
    if any(one.faults or one.parameters > LARGEST or len(one.tensors) > MANY for one in each):
        return None
    names = [tensor.name for one in each for tensor in one.tensors]
    return len({re.sub(r"\d+", "#", name) for name in names}), len(names)


def expectation(model_type: str, values: dict[str, Any], target: str) -> Expectation:
    return catalogue.expect(config_of(**{**values, "model_type": model_type}), target)
