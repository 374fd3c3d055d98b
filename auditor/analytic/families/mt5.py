"""mT5, https://arxiv.org/abs/2010.11934: T5 with other sizes, gated by default."""

from msgspec.structs import replace

from auditor.analytic.families.t5 import CROSS_BIAS, T5, register
from auditor.analytic.family import LoadingFacts, loads

MT5 = replace(T5, model_type="mt5", base="MT5Model")

register(MT5, "MT5")

loads("MT5ForConditionalGeneration", LoadingFacts(silent=CROSS_BIAS))
loads("MT5ForQuestionAnswering", LoadingFacts(silent=CROSS_BIAS))
loads("MT5ForSequenceClassification", LoadingFacts(silent=CROSS_BIAS))
loads("MT5Model", LoadingFacts(silent=CROSS_BIAS))
