"""DistilBERT, https://arxiv.org/abs/1910.01108: half of BERT's layers, under different names."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Param,
    Tied,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import answers, heads, labelled
from auditor.analytic.family import LoadingFacts, loads

DISTILBERT = Family(
    model_type="distilbert",
    prefix="distilbert",
    base="DistilBertModel",
    keys=("vocab_size max_position_embeddings n_layers n_heads dim hidden_dim tie_word_embeddings"),
    letters=MappingProxyType({"hidden_dim": "F"}),
)


@architecture("DistilBertModel", DISTILBERT)
def distilbert_model(c: Config) -> Module:
    D, V = c.dim("dim"), c.dim("vocab_size")
    return module(
        embeddings=module(
            word_embeddings=Embedding(V, D),
            position_embeddings=Embedding(c.dim("max_position_embeddings"), D),
            LayerNorm=LayerNorm(D),
        ),
        transformer=module(layer=repeat(c.dim("n_layers"), partial(block, c))),
    )


def block(c: Config) -> Module:
    D, F, linear = c.dim("dim"), c.dim("hidden_dim"), Linear(c.dim("dim"), c.dim("dim"))
    return module(
        attention=module(q_lin=linear, k_lin=linear, v_lin=linear, out_lin=linear),
        sa_layer_norm=LayerNorm(D),
        ffn=module(
            lin1=Linear(D, F),
            lin2=Linear(F, D),
            activation=activation(c, "activation"),
        ),
        output_layer_norm=LayerNorm(D),
    )


def language_modelling(c: Config) -> Module:
    V, D = c.dim("vocab_size"), c.dim("dim")
    tied = Tied("distilbert.embeddings.word_embeddings.weight")
    weight = tied if c.flag("tie_word_embeddings") else Param((V, D))
    return module(
        activation=activation(c, "activation"),
        vocab_transform=Linear(D, D),
        vocab_layer_norm=LayerNorm(D),
        vocab_projector=module(weight=weight, bias=Param((V,))),
    )


def sequence_classification(c: Config) -> Module:
    D = c.dim("dim")
    return module(pre_classifier=Linear(D, D), classifier=Linear(D, c.num_labels))


def multiple_choice(c: Config) -> Module:
    D = c.dim("dim")
    return module(pre_classifier=Linear(D, D), classifier=Linear(D, 1))


heads(
    DISTILBERT,
    "DistilBertFor",
    distilbert_model,
    MaskedLM=language_modelling,
    SequenceClassification=sequence_classification,
    TokenClassification=labelled,
    QuestionAnswering=answers,
    MultipleChoice=multiple_choice,
)

loads("distilbert", LoadingFacts(positions=True))
