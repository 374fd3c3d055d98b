"""RoBERTa, https://arxiv.org/abs/1907.11692, and models with equal tensors.

RoBERTa has BERT's tensors; positions begin after the padding id: 514 rows for 512 tokens.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from auditor.analytic.blocks import LayerNorm, Linear, Module, Param, Tied, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import (
    Head,
    answers,
    choice,
    dense_labelled,
    heads,
    labelled,
)
from auditor.analytic.families.bert import BERT, bare, bert_model
from auditor.analytic.family import LoadingFacts, loads

ROBERTA = Family(
    model_type="roberta",
    prefix="roberta",
    base="RobertaModel",
    keys=BERT.keys,
)
XLM_ROBERTA = replace(BERT, model_type="xlm-roberta", prefix="roberta", base="XLMRobertaModel")
CAMEMBERT = replace(BERT, model_type="camembert", prefix="roberta", base="CamembertModel")


def lm_head(prefix: str, *, decoder_bias: bool = True) -> Head:
    """Return the language model's head, whose matrix may be tied to the word embeddings."""

    def head(c: Config) -> Module:
        V, D = c.dim("vocab_size"), c.dim("hidden_size")
        tied = module(
            weight=Tied(f"{prefix}.embeddings.word_embeddings.weight"),
            bias=Tied("lm_head.bias") if decoder_bias else None,
        )
        untied = Linear(D, V, bias=decoder_bias)
        return module(
            lm_head=module(
                bias=Param((V,)),
                dense=Linear(D, D),
                layer_norm=LayerNorm(D),
                decoder=tied if c.flag("tie_word_embeddings") else untied,
            )
        )

    return head


def heads_without_pooler(prefix: str) -> Mapping[str, Head]:
    """Return the heads that RoBERTa and MPNet have on a model without a pooler."""
    return {
        "ForMaskedLM": lm_head(prefix),
        "ForSequenceClassification": dense_labelled,
        "ForTokenClassification": labelled,
        "ForQuestionAnswering": answers,
    }


for family, stem in ((ROBERTA, "Roberta"), (XLM_ROBERTA, "XLMRoberta"), (CAMEMBERT, "Camembert")):
    own = heads_without_pooler(family.prefix)
    architecture(family.base, family)(bert_model)
    heads(family, stem, bare, ForCausalLM=lm_head(family.prefix), **own)
    heads(family, stem, bert_model, ForMultipleChoice=choice)

loads("camembert", LoadingFacts(positions=True))
loads("roberta", LoadingFacts(positions=True))
loads("xlm-roberta", LoadingFacts(positions=True))
