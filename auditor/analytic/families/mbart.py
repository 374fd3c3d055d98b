"""mBART, https://arxiv.org/abs/2001.08210: BART with the norms in front, and one at the end."""

from auditor.analytic.families._seq2seq import (
    Style,
    family,
    learned_positions,
    register,
    register_classifiers,
)
from auditor.analytic.family import LoadingFacts, loads

MBART = family("mbart", "MBartModel")

STYLE = Style(positions=learned_positions, embedding_norm=True, final_norm=True)

register(MBART, "MBart", STYLE)
register_classifiers(MBART, "MBart", STYLE)

loads(
    "MBartForConditionalGeneration",
    LoadingFacts(taken=("^final_logits_bias$",), unmissed=("final_logits_bias",)),
)
