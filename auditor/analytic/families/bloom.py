"""BLOOM, https://arxiv.org/abs/2211.05100: ALiBi positions, neither learned nor stored."""

from functools import partial
from types import MappingProxyType
from typing import Any

from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.families._heads import (
    heads,
    labelled,
    language_model,
    score,
    span,
)

BLOOM = Family(
    model_type="bloom",
    prefix="transformer",
    base="BloomModel",
    keys="vocab_size hidden_size n_layer n_head tie_word_embeddings",
    older=MappingProxyType({"n_embed": "hidden_size"}),
)


@architecture("BloomModel", BLOOM)
def bloom_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        word_embeddings=Embedding(c.dim("vocab_size"), D),
        word_embeddings_layernorm=LayerNorm(D),
        h=repeat(c.dim("n_layer"), partial(block, c)),
        ln_f=LayerNorm(D),
    )


def block(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        input_layernorm=LayerNorm(D),
        self_attention=module(query_key_value=Linear(D, 3 * D), dense=Linear(D, D)),
        post_attention_layernorm=LayerNorm(D),
        mlp=module(dense_h_to_4h=Linear(D, 4 * D), dense_4h_to_h=Linear(4 * D, D)),
    )


@derived_defaults("BloomConfig")
def from_older_key(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set hidden_size from `n_embed`, its older name."""
    width = others.pop("n_embed", None)
    if width is not None:
        config.set("hidden_size", width)


heads(
    BLOOM,
    "Bloom",
    bloom_model,
    ForCausalLM=language_model("transformer.word_embeddings.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=labelled,
    ForQuestionAnswering=span,
)
