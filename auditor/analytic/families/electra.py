"""ELECTRA, https://arxiv.org/abs/2003.10555: a generator and a discriminator, both BERTs."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import LayerNorm, Linear, Module, Param, Tied, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import (
    answers,
    choice,
    dense_labelled,
    heads,
    labelled,
    summary,
)
from auditor.analytic.families.bert import BERT, embeddings, encoder, encoder_layer
from auditor.analytic.family import LoadingFacts, loads

ELECTRA = Family(
    model_type="electra",
    prefix="electra",
    base="ElectraModel",
    keys=f"{BERT.keys} embedding_size summary_use_proj",
    own=MappingProxyType({"summary_proj_to_labels": False}),
)


@architecture("ElectraModel", ELECTRA)
def electra_model(c: Config) -> Module:
    D, E = c.dim("hidden_size"), c.dim("embedding_size")
    return module(
        embeddings=embeddings(c, E),
        embeddings_project=Linear(E, D) if E.value != D.value else None,
        encoder=encoder(c, partial(encoder_layer, c)),
    )


def generator(c: Config) -> Module:
    V, D, E = c.dim("vocab_size"), c.dim("hidden_size"), c.dim("embedding_size")
    tied = Tied("electra.embeddings.word_embeddings.weight")
    weight = tied if c.flag("tie_word_embeddings") else Param((V, E))
    return module(
        generator_predictions=module(LayerNorm=LayerNorm(E), dense=Linear(D, E)),
        generator_lm_head=module(weight=weight, bias=Param((V,))),
    )


def discriminator(c: Config) -> Module:
    D = c.dim("hidden_size")
    predictions = module(
        dense=Linear(D, D), activation=activation(c), dense_prediction=Linear(D, 1)
    )
    return module(discriminator_predictions=predictions)


def summarized_choice(c: Config) -> Module:
    return Module((("sequence_summary", summary(c)), *choice(c).children))


heads(
    ELECTRA,
    "ElectraFor",
    electra_model,
    PreTraining=discriminator,
    MaskedLM=generator,
    CausalLM=generator,
    SequenceClassification=dense_labelled,
    TokenClassification=labelled,
    QuestionAnswering=answers,
    MultipleChoice=summarized_choice,
)

loads("electra", LoadingFacts(positions=True))
