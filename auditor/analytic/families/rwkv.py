"""RWKV-4, https://arxiv.org/abs/2305.13048: no attention over tokens, but a decay over time."""

from types import MappingProxyType
from typing import Any

from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, Param, module, stack
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.families._heads import heads, language_model

RWKV = Family(
    model_type="rwkv",
    prefix="rwkv",
    base="RwkvModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers attention_hidden_size intermediate_size "
        "tie_word_embeddings"
    ),
    letters=MappingProxyType({"attention_hidden_size": "A"}),
)


@architecture("RwkvModel", RWKV)
def rwkv_model(c: Config) -> Module:
    D = c.dim("hidden_size")

    def block(first: bool) -> Module:  # noqa: FBT001 - the only difference of blocks
        return module(
            pre_ln=LayerNorm(D) if first else None,
            ln1=LayerNorm(D),
            ln2=LayerNorm(D),
            attention=attention(c),
            feed_forward=feed_forward(c),
        )

    return module(
        embeddings=Embedding(c.dim("vocab_size"), D),
        blocks=stack(c.dim("num_hidden_layers"), lambda number: number == 0, block),
        ln_out=LayerNorm(D),
    )


def attention(c: Config) -> Module:
    D = c.dim("hidden_size")
    A = c.optional("attention_hidden_size") or D
    mix = Param((1, 1, D))
    return module(
        time_decay=Param((A,)),
        time_first=Param((A,)),
        time_mix_key=mix,
        time_mix_value=mix,
        time_mix_receptance=mix,
        key=Linear(D, A, bias=False),
        value=Linear(D, A, bias=False),
        receptance=Linear(D, A, bias=False),
        output=Linear(A, D, bias=False),
    )


def feed_forward(c: Config) -> Module:
    D = c.dim("hidden_size")
    F = c.optional("intermediate_size") or 4 * D
    return module(
        time_mix_key=Param((1, 1, D)),
        time_mix_receptance=Param((1, 1, D)),
        key=Linear(D, F, bias=False),
        receptance=Linear(D, D, bias=False),
        value=Linear(F, D, bias=False),
    )


@derived_defaults("RwkvConfig")
def inner_sizes(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set two sizes that depend on the width if the config's values are null."""
    del others
    if config["attention_hidden_size"] is None:
        config.set("attention_hidden_size", config["hidden_size"])
    if config["intermediate_size"] is None:
        config.set("intermediate_size", 4 * config["hidden_size"])


heads(
    RWKV,
    "Rwkv",
    rwkv_model,
    ForCausalLM=language_model("rwkv.embeddings.weight", name="head"),
)
