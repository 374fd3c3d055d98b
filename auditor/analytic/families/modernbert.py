"""ModernBERT, https://arxiv.org/abs/2412.13663: gated, rotary, and without most of the biases."""

from typing import Any

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
from auditor.analytic.config_classes import Settled, config_rules, layers, rope
from auditor.analytic.families._heads import Head, choice, dropped, heads, labelled
from auditor.analytic.parts import activation, dropout, padding, shares
from auditor.analytic.rotation import kinds_of_layers, plain_frequencies, rotation

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
        embeddings=module(
            tok_embeddings=Embedding(V, c.dim("hidden_size"), padding=padding(c, V)),
            norm=norm(c),
            drop=dropout(c, "embedding_dropout"),
        ),
        layers=layers,
        final_norm=norm(c),
        rotary_emb=rotation(c, plain_frequencies, kinds=kinds_of_layers(c)),
    )


def norm(c: Config) -> Module:
    return LayerNorm(c.dim("hidden_size"), bias=c.flag("norm_bias"))


def layer(c: Config, *, first: bool) -> Module:
    """The first one takes what the norm of the embeddings has just been over."""
    return module(
        attn_norm=None if first else norm(c),
        attn=attention(c),
        mlp_norm=norm(c),
        mlp=mlp(c),
    )


def attention(c: Config) -> Module:
    D, H, bias = c.dim("hidden_size"), c.dim("num_attention_heads"), c.flag("attention_bias")
    share = c.attribute("attention_dropout")
    return module(
        heads=shares(c, D, H, scale="none"),
        Wqkv=Linear(D, 3 * H * D.floor(H), bias=bias),
        Wo=Linear(D, D, bias=bias),
        out_drop=dropout(c, "attention_dropout") if share is None or share > 0 else None,
    )


def mlp(c: Config) -> Module:
    D, F, bias = c.dim("hidden_size"), c.dim("intermediate_size"), c.flag("mlp_bias")
    return module(
        Wi=Linear(D, 2 * F, bias=bias),
        act=activation(c, "hidden_activation"),
        drop=dropout(c, "mlp_dropout"),
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
    """The head that all of them have first, and then that one."""

    def head(c: Config) -> Module:
        D = c.dim("hidden_size")
        first = module(
            dense=Linear(D, D, bias=c.flag("classifier_bias")),
            act=activation(c, "classifier_activation"),
            norm=norm(c),
        )
        return Module((("head", first), *last(c).children))

    return head


classified = dropped(labelled, "classifier_dropout")


# --- the config --------------------------------------------------------------------------------

_BASES = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}


def first(config: Settled, others: dict[str, Any]) -> None:
    every = others.get("global_attn_every_n_layers", 3)
    layers.fill_layer_types(
        config, lambda n: "sliding_attention" if n % every else "full_attention"
    )


rotation_of = rope.rope_by_layer_kind(_BASES, scaled=_BASES)

config_rules("ModernBertConfig", first=first, rotation=rotation_of)

heads(
    MODERNBERT,
    "ModernBertFor",
    modernbert_model,
    MaskedLM=behind_dense(language_modelling),
    SequenceClassification=behind_dense(classified),
    TokenClassification=behind_dense(classified),
    QuestionAnswering=behind_dense(classified),
    MultipleChoice=behind_dense(dropped(choice, "classifier_dropout")),
)
