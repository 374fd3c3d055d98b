"""BERT: the nine classes of transformers 5, https://arxiv.org/abs/1810.04805."""

from collections.abc import Callable
from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    Param,
    Tied,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import answers, choice, heads, labelled
from auditor.analytic.family import LoadingFacts, loads

BERT = Family(
    model_type="bert",
    prefix="bert",
    base="BertModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
        "max_position_embeddings type_vocab_size is_decoder add_cross_attention "
        "tie_word_embeddings"
    ),
)


@architecture("BertModel", BERT)
def bert_model(c: Config, *, pooler: bool = True) -> Module:
    return module(
        embeddings=embeddings(c),
        encoder=encoder(c, partial(encoder_layer, c)),
        pooler=pooled(c) if pooler else None,
    )


bare = partial(bert_model, pooler=False)


def embeddings(
    c: Config,
    width: Dim | None = None,
    *,
    types: bool = True,
    **more: Module,
) -> Module:
    """Return word, position and type embeddings; `width` is given if it is not hidden_size."""
    L, D = c.dim("max_position_embeddings"), width or c.dim("hidden_size")
    return module(
        position_ids=Legacy((1, L)),  # stored up to transformers 4.30
        word_embeddings=Embedding(c.dim("vocab_size"), D),
        position_embeddings=Embedding(L, D),
        **more,
        token_type_embeddings=Embedding(c.dim("type_vocab_size"), D) if types else None,
        LayerNorm=LayerNorm(D),
    )


def encoder(c: Config, layer: Callable[[], Module]) -> Module:
    return module(layer=repeat(c.dim("num_hidden_layers"), layer))


def pooled(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(dense=Linear(D, D))


def encoder_layer(c: Config, *, crosses: bool | None = None, across: Dim | None = None) -> Module:
    """Return a layer; `across` is the width of the other sequence in cross-attention."""
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    crosses = c.flag("add_cross_attention") if crosses is None else crosses
    return module(
        attention=attention(c),
        crossattention=attention(c, across) if crosses else None,
        intermediate=module(dense=Linear(D, F), intermediate_act_fn=activation(c)),
        output=dense_output(c, F),
    )


def attention(c: Config, across: Dim | None = None) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    width, to = H * D.floor(H), across or D  # equal to D if the heads divide D
    return module(
        self=module(
            query=Linear(D, width),
            key=Linear(to, width),
            value=Linear(to, width),
        ),
        output=dense_output(c, D),
    )


def dense_output(c: Config, width: Dim) -> Module:
    D = c.dim("hidden_size")
    return module(dense=Linear(width, D), LayerNorm=LayerNorm(D))


def predictions(
    c: Config, *, prefix: str = BERT.prefix, width: Dim | None = None, tie: bool = False
) -> Module:
    """Return the language model's head; `tie` ties it even if the config does not."""
    V, D = c.dim("vocab_size"), c.dim("hidden_size")
    E = width or D
    tied = module(
        weight=Tied(f"{prefix}.embeddings.word_embeddings.weight"),
        bias=Tied("cls.predictions.bias"),
    )
    return module(
        bias=Param((V,)),  # if untied, stored in addition to the decoder's bias, and unused
        transform=module(
            dense=Linear(D, E), transform_act_fn=activation(c), LayerNorm=LayerNorm(E)
        ),
        decoder=tied if tie or c.flag("tie_word_embeddings") else Linear(E, V),
    )


def next_sentence(c: Config) -> Module:
    return Linear(c.dim("hidden_size"), 2)


@architecture("BertForPreTraining", BERT)
def for_pre_training(c: Config) -> Module:
    return module(
        bert=bert_model(c),
        cls=module(predictions=predictions(c), seq_relationship=next_sentence(c)),
    )


@architecture("BertLMHeadModel", BERT)
@architecture("BertForMaskedLM", BERT)
def for_language_modelling(c: Config) -> Module:
    return module(bert=bare(c), cls=module(predictions=predictions(c)))


@architecture("BertForNextSentencePrediction", BERT)
def for_next_sentence_prediction(c: Config) -> Module:
    return module(bert=bert_model(c), cls=module(seq_relationship=next_sentence(c)))


heads(BERT, "BertFor", bert_model, SequenceClassification=labelled, MultipleChoice=choice)
heads(BERT, "BertFor", bare, TokenClassification=labelled, QuestionAnswering=answers)

loads("bert", LoadingFacts(positions=True))
