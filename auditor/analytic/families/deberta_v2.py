"""DeBERTa, versions 2 and 3, https://arxiv.org/abs/2006.03654: positions separate from contents."""

from functools import partial
from types import MappingProxyType
from typing import Any

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Conv,
    Embedding,
    Extra,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    Param,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import Head, answers, choice, heads, labelled
from auditor.analytic.families.bert import dense_output, predictions
from auditor.analytic.family import LoadingFacts, loads

DEBERTA_V2 = Family(
    model_type="deberta-v2",
    prefix="deberta",
    base="DebertaV2Model",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
        "max_position_embeddings type_vocab_size position_biased_input relative_attention "
        "pos_att_type max_relative_positions legacy tie_word_embeddings embedding_size "
        "attention_head_size pooler_hidden_size"
    ),
    own=MappingProxyType(
        {
            "share_att_key": False,
            "position_buckets": -1,
            "norm_rel_ebd": "none",
            "conv_kernel_size": 0,
            "conv_groups": 1,
        }
    ),
    letters=MappingProxyType({"pooler_hidden_size": "D_pooler"}),
)


@architecture("DebertaV2Model", DEBERTA_V2)
def deberta_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    reach = c.positive("position_buckets") or c.positive("max_relative_positions")
    distances = 2 * (reach or c.dim("max_position_embeddings"))
    return module(
        embeddings=embeddings(c),
        encoder=module(
            layer=repeat(c.dim("num_hidden_layers"), partial(layer, c)),
            rel_embeddings=Embedding(distances, D) if c.flag("relative_attention") else None,
            LayerNorm=LayerNorm(D) if "layer_norm" in _words(c, "norm_rel_ebd") else None,
            conv=convolution(c),
        ),
    )


def width(c: Config) -> Dim:
    """Return the width of the embeddings."""
    return c.optional("embedding_size") or c.dim("hidden_size")


def embeddings(c: Config) -> Module:
    D, E = c.dim("hidden_size"), width(c)
    L, T, V = c.dim("max_position_embeddings"), c.dim("type_vocab_size"), c.dim("vocab_size")
    places = Embedding(L, E)
    return module(
        position_ids=Legacy((1, L)),  # stored up to transformers 4.30
        word_embeddings=Embedding(V, E),
        # Some checkpoints store these unused tensors; the class ignores them in loading.
        position_embeddings=places if c.flag("position_biased_input") else Extra(places),
        token_type_embeddings=Embedding(T, E) if T.value > 0 else None,
        embed_proj=Linear(E, D, bias=False) if E.value != D.value else None,
        LayerNorm=LayerNorm(D),
    )


def layer(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(
        attention=module(self=attention(c), output=dense_output(c, D)),
        intermediate=module(dense=Linear(D, F), intermediate_act_fn=activation(c)),
        output=dense_output(c, F),
    )


def attention(c: Config) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    own_width = c.has("attention_head_size")
    project = Linear(D, H * (c.dim("attention_head_size") if own_width else D.floor(H)))
    own = c.flag("relative_attention") and not c.flag("share_att_key")
    kinds = _words(c, "pos_att_type") if own and c.present("pos_att_type") else ()
    return module(
        query_proj=project,
        key_proj=project,
        value_proj=project,
        pos_key_proj=project if "c2p" in kinds else None,
        pos_query_proj=project if "p2c" in kinds else None,
    )


def convolution(c: Config) -> Module | None:
    D, kernel = c.dim("hidden_size"), c.positive("conv_kernel_size")
    if kernel is None:
        return None
    conv = Conv(D, D, kernel=(kernel,), groups=c.dim("conv_groups"))
    return module(conv=conv, LayerNorm=LayerNorm(D))


def _words(c: Config, key: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in c.texts(key, separator="|"))


def language_modelling(c: Config) -> Module:
    """Return the head that the key `legacy` selects, and extra heads that some files store."""
    D, V, legacy = c.dim("hidden_size"), c.dim("vocab_size"), c.flag("legacy")
    old = module(predictions=predictions(c, prefix=DEBERTA_V2.prefix, width=width(c)))
    normed = {"dense": Linear(D, D), "LayerNorm": LayerNorm(D)}
    activated = None if legacy else activation(c)
    new = module(lm_head=module(**normed, transform_act_fn=activated, bias=Param((V,))))
    return module(
        cls=old if legacy else None,
        lm_predictions=Extra(new) if legacy else new,
        mask_predictions=Extra(module(**normed, classifier=Linear(D, 1))),
    )


def pooled(head: Head) -> Head:
    """Return a builder of a pooler, whose width has its own config key, and of the head."""

    def behind(c: Config) -> Module:
        D = c.optional("pooler_hidden_size") or c.dim("hidden_size")
        pooler = module(dense=Linear(D, D))
        return Module((("pooler", pooler), *head(c).children))

    return behind


@derived_defaults("DebertaV2Config")
def pooler_width(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set the pooler's width to the model's, unless the config states it."""
    config.set("pooler_hidden_size", others.get("pooler_hidden_size", config["hidden_size"]))


heads(
    DEBERTA_V2,
    "DebertaV2For",
    deberta_model,
    MaskedLM=language_modelling,
    SequenceClassification=pooled(labelled),
    MultipleChoice=pooled(choice),
    TokenClassification=labelled,
    QuestionAnswering=answers,
)

loads("deberta-v2", LoadingFacts(silent=("position_embeddings",), positions=True))
loads("DebertaV2ForMaskedLM", LoadingFacts(silent=("mask_predictions.*",)))
