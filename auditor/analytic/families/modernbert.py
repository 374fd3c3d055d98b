"""ModernBERT, https://arxiv.org/abs/2412.13663: gated feed-forward, rotary, few biases."""

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Param,
    Tied,
    module,
    stack,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import Head, choice, heads, labelled

MODERNBERT = Family(
    model_type="modernbert",
    prefix="model",
    base="ModernBertModel",
    keys=(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "norm_bias attention_bias mlp_bias decoder_bias classifier_bias tie_word_embeddings"
    ),
)


@architecture("ModernBertModel", MODERNBERT)
def modernbert_model(c: Config) -> Module:
    V = c.dim("vocab_size")
    layers = stack(
        c.dim("num_hidden_layers"),
        lambda number: number == 0,
        lambda first: layer(c, first=first),
    )
    return module(
        embeddings=module(tok_embeddings=Embedding(V, c.dim("hidden_size")), norm=norm(c)),
        layers=layers,
        final_norm=norm(c),
    )


def norm(c: Config) -> Module:
    return LayerNorm(c.dim("hidden_size"), bias=c.flag("norm_bias"))


def layer(c: Config, *, first: bool) -> Module:
    """Return a layer; the first has no attention norm, because the embeddings are normed."""
    return module(
        attn_norm=None if first else norm(c),
        attn=attention(c),
        mlp_norm=norm(c),
        mlp=mlp(c),
    )


def attention(c: Config) -> Module:
    D, H, bias = c.dim("hidden_size"), c.dim("num_attention_heads"), c.flag("attention_bias")
    return module(
        Wqkv=Linear(D, 3 * H * D.floor(H), bias=bias),
        Wo=Linear(D, D, bias=bias),
    )


def mlp(c: Config) -> Module:
    D, F, bias = c.dim("hidden_size"), c.dim("intermediate_size"), c.flag("mlp_bias")
    return module(
        Wi=Linear(D, 2 * F, bias=bias),
        act=activation(c, "hidden_activation"),
        Wo=Linear(F, D, bias=bias),
    )


def language_modelling(c: Config) -> Module:
    V, D = c.dim("vocab_size"), c.dim("hidden_size")
    tied = Tied("model.embeddings.tok_embeddings.weight")
    weight = tied if c.flag("tie_word_embeddings") else Param((V, D))
    return module(
        decoder=module(weight=weight, bias=Param((V,)) if c.flag("decoder_bias") else None)
    )


def behind_dense(last: Head) -> Head:
    """Return the head that all classes share, followed by `last`."""

    def head(c: Config) -> Module:
        D = c.dim("hidden_size")
        first = module(
            dense=Linear(D, D, bias=c.flag("classifier_bias")),
            act=activation(c, "classifier_activation"),
            norm=norm(c),
        )
        return Module((("head", first), *last(c).children))

    return head


heads(
    MODERNBERT,
    "ModernBertFor",
    modernbert_model,
    MaskedLM=behind_dense(language_modelling),
    SequenceClassification=behind_dense(labelled),
    TokenClassification=behind_dense(labelled),
    QuestionAnswering=behind_dense(labelled),
    MultipleChoice=behind_dense(choice),
)
