"""LayoutLM, https://arxiv.org/abs/1912.13318: BERT with the positions of words on the page."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.blocks import Embedding, Module, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import answers, heads, labelled
from auditor.analytic.families.bert import (
    embeddings,
    encoder,
    encoder_layer,
    pooled,
    predictions,
)
from auditor.analytic.family import LoadingFacts, loads

LAYOUTLM = Family(
    model_type="layoutlm",
    prefix="layoutlm",
    base="LayoutLMModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
        "max_position_embeddings type_vocab_size tie_word_embeddings "
        "max_2d_position_embeddings"
    ),
    own=MappingProxyType({"is_decoder": False, "add_cross_attention": False}),
    letters=MappingProxyType({"max_2d_position_embeddings": "L_2d"}),
)


@architecture("LayoutLMModel", LAYOUTLM)
def layoutlm_model(c: Config) -> Module:
    place = Embedding(c.dim("max_2d_position_embeddings"), c.dim("hidden_size"))
    return module(
        embeddings=embeddings(
            c,
            x_position_embeddings=place,
            y_position_embeddings=place,
            h_position_embeddings=place,
            w_position_embeddings=place,
        ),
        encoder=encoder(c, partial(encoder_layer, c, crosses=False)),
        pooler=pooled(c),
    )


def language_modelling(c: Config) -> Module:
    return module(cls=module(predictions=predictions(c, prefix=LAYOUTLM.prefix)))


heads(
    LAYOUTLM,
    "LayoutLMFor",
    layoutlm_model,
    MaskedLM=language_modelling,
    SequenceClassification=labelled,
    TokenClassification=labelled,
    QuestionAnswering=answers,
)

loads("layoutlm", LoadingFacts(positions=True))
