"""PEGASUS, https://arxiv.org/abs/1912.08777: positions that are computed, and stored."""

from auditor.analytic.families._seq2seq import Style, family, register, sinusoids
from auditor.analytic.family import LoadingFacts, loads

register(family("pegasus", "PegasusModel"), "Pegasus", Style(positions=sinusoids, final_norm=True))

loads(
    "PegasusForConditionalGeneration",
    LoadingFacts(
        taken=("^final_logits_bias$",),
        unmissed=("final_logits_bias",),
    ),
)
