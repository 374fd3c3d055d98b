"""BERT: the nine classes of transformers 5, https://arxiv.org/abs/1810.04805."""

from collections.abc import Callable
from functools import partial

from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    Param,
    Tied,
    Unbuildable,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import Head, answers, choice, dropped, heads, labelled
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import Scale, activation, dropout, padding, refused, shares, unstored

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
def bert_model(c: Config, *, pooler: bool = True, padded: bool = False) -> Module:
    return module(
        embeddings=embeddings(c, padded=padded),
        encoder=encoder(c, partial(encoder_layer, c)),
        pooler=pooled(c) if pooler else None,
    )


bare = partial(bert_model, pooler=False)


def embeddings(
    c: Config,
    width: Dim | None = None,
    *,
    types: bool = True,
    padded: bool = False,
    row: int | None = None,
    **more: Module,
) -> Module:
    """Words, places and types of tokens; `width` where it is not that of the layers.

    `padded`: a place is kept for padding, too; `row`: the one for padding, if it never changes.
    """
    V, L = c.dim("vocab_size"), c.dim("max_position_embeddings")
    D = width or c.dim("hidden_size")
    return module(
        position_ids=Legacy((1, L)),  # stored up to transformers 4.30
        word_embeddings=Embedding(V, D, padding=padding(c, V, row=row)),
        places=unstored(c, L, width=8),
        position_embeddings=Embedding(L, D, padding=padding(c, L, row=row) if padded else None),
        **more,
        token_type_embeddings=Embedding(c.dim("type_vocab_size"), D) if types else None,
        LayerNorm=LayerNorm(D),
        dropout=dropout(c, "hidden_dropout_prob"),
    )


def encoder(c: Config, layer: Callable[[], Module]) -> Module:
    return module(layer=repeat(c.dim("num_hidden_layers"), layer))


def pooled(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(dense=Linear(D, D))


def crossing(c: Config) -> Unbuildable | None:
    """Layers that attend to those of another model, too: only a decoder's may."""
    if c.flag("is_decoder"):
        return None
    reason = f"{c.path}add_cross_attention is true, and {c.path}is_decoder is not"
    return refused(c, reason, "add_cross_attention", "is_decoder")


def encoder_layer(
    c: Config,
    *,
    crosses: bool | None = None,
    across: Dim | None = None,
    scale: Scale = "power",
) -> Module:
    """One layer; `across` is the width of what it attends to, where that is not its own."""
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    crosses = c.flag("add_cross_attention") if crosses is None else crosses
    return module(
        attention=attention(c, scale=scale),
        crossattention=attention(c, across, scale=scale) if crosses else None,
        crossing=crossing(c) if crosses else None,
        intermediate=module(dense=Linear(D, F), intermediate_act_fn=activation(c)),
        output=dense_output(c, F),
    )


def attention(c: Config, across: Dim | None = None, *, scale: Scale = "power") -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    width, to = H * D.floor(H), across or D  # D again, where the heads share it evenly
    even = not c.has("embedding_size")  # as ELECTRA has it, whose heads may leave a rest
    return module(
        self=module(
            query=Linear(D, width),
            key=Linear(to, width),
            value=Linear(to, width),
            heads=shares(c, D, H, even=even, scale=scale),
            dropout=dropout(c, "attention_probs_dropout_prob"),
        ),
        output=dense_output(c, D),
    )


def dense_output(c: Config, width: Dim) -> Module:
    D, share = c.dim("hidden_size"), dropout(c, "hidden_dropout_prob")
    return module(dense=Linear(width, D), LayerNorm=LayerNorm(D), dropout=share)


def predictions(
    c: Config, *, prefix: str = BERT.prefix, width: Dim | None = None, tie: bool = False
) -> Module:
    """The language model's head, on the word embeddings' matrix; `tie`: even if c has it untied."""
    V, D = c.dim("vocab_size"), c.dim("hidden_size")
    E = width or D
    tied = module(
        weight=Tied(f"{prefix}.embeddings.word_embeddings.weight"),
        bias=Tied("cls.predictions.bias"),
    )
    return module(
        bias=Param((V,)),  # untied, it is stored beside the decoder's bias, and used by nothing
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


def own_dropout(head: Head) -> Head:
    """The head behind a dropout of its own, or where that is null the layers'."""
    return dropped(head, "classifier_dropout", "hidden_dropout_prob")


heads(
    BERT,
    "BertFor",
    bert_model,
    SequenceClassification=own_dropout(labelled),
    MultipleChoice=own_dropout(choice),
)
heads(
    BERT,
    "BertFor",
    bare,
    TokenClassification=own_dropout(labelled),
    QuestionAnswering=answers,
)

loads("bert", LoadingFacts(positions=True))
