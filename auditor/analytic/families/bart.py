"""BART, https://arxiv.org/abs/1910.13461."""

from typing import Any

from auditor.analytic.config_classes import Settled, config_rules
from auditor.analytic.config_classes.base import set_num_labels
from auditor.analytic.families._seq2seq import (
    Style,
    family,
    learned_positions,
    register,
    register_classifiers,
)
from auditor.analytic.family import LoadingFacts, loads

BART = family("bart", "BartModel", num_labels=3)

STYLE = Style(positions=learned_positions, embedding_norm=True, versioned=True)


def first(config: Settled, others: dict[str, Any]) -> None:
    if config["id2label"] is None:
        set_num_labels(config, others.pop("num_labels", 3))


config_rules("BartConfig", first=first)

register(BART, "Bart", STYLE)
register_classifiers(BART, "Bart", STYLE)

loads("bart", LoadingFacts(silent=("encoder.version", "decoder.version")))
loads(
    "BartForConditionalGeneration",
    LoadingFacts(taken=("^final_logits_bias$",), unmissed=("final_logits_bias",)),
)
