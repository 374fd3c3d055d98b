"""ALBERT, https://arxiv.org/abs/1909.11942: one group of layers, run repeatedly."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import LayerNorm, Linear, Module, Param, Tied, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import answers, choice, heads, labelled
from auditor.analytic.families.bert import embeddings
from auditor.analytic.family import LoadingFacts, loads

ALBERT = Family(
    model_type="albert",
    prefix="albert",
    base="AlbertModel",
    keys=(
        "vocab_size embedding_size hidden_size num_hidden_groups inner_group_num "
        "num_attention_heads intermediate_size max_position_embeddings type_vocab_size "
        "tie_word_embeddings"
    ),
    letters=MappingProxyType({"num_hidden_groups": "N_groups", "inner_group_num": "N_inner"}),
)


@architecture("AlbertModel", ALBERT)
def albert_model(c: Config, *, pooler: bool = True) -> Module:
    D, E = c.dim("hidden_size"), c.dim("embedding_size")
    return module(
        embeddings=embeddings(c, E),
        encoder=module(
            embedding_hidden_mapping_in=Linear(E, D),
            albert_layer_groups=repeat(c.dim("num_hidden_groups"), partial(group, c)),
        ),
        pooler=Linear(D, D) if pooler else None,
    )


def group(c: Config) -> Module:
    return module(albert_layers=repeat(c.dim("inner_group_num"), partial(layer, c)))


def layer(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(
        full_layer_layer_norm=LayerNorm(D),
        attention=attention(c),
        ffn=Linear(D, F),
        ffn_output=Linear(F, D),
        activation=activation(c),
    )


def attention(c: Config) -> Module:
    """Return attention, of H * floor(D/H) features: fewer than D if H does not divide D."""
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    width = H * D.floor(H)
    return module(
        query=Linear(D, width),
        key=Linear(D, width),
        value=Linear(D, width),
        dense=Linear(D, D),
        LayerNorm=LayerNorm(D),
    )


def language_modelling(c: Config) -> Module:
    V, D, E = c.dim("vocab_size"), c.dim("hidden_size"), c.dim("embedding_size")
    tied = module(
        weight=Tied("albert.embeddings.word_embeddings.weight"), bias=Tied("predictions.bias")
    )
    return module(
        predictions=module(
            bias=Param((V,)),
            LayerNorm=LayerNorm(E),
            dense=Linear(D, E),
            decoder=tied if c.flag("tie_word_embeddings") else Linear(E, V),
            activation=activation(c),
        )
    )


def pre_training(c: Config) -> Module:
    order = module(sop_classifier=labelled(c))
    return Module((*language_modelling(c).children, *order.children))


heads(
    ALBERT,
    "AlbertFor",
    albert_model,
    PreTraining=pre_training,
    SequenceClassification=labelled,
    MultipleChoice=choice,
)
heads(
    ALBERT,
    "AlbertFor",
    partial(albert_model, pooler=False),
    MaskedLM=language_modelling,
    TokenClassification=labelled,
    QuestionAnswering=answers,
)

loads("albert", LoadingFacts(positions=True))
