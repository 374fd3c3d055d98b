"""Falcon, https://arxiv.org/abs/2311.16867: 1B and 7B, and the "new" decoder of 40B and 180B."""

from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from auditor.analytic.activations import activation
from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import (
    heads,
    labelled,
    language_model,
    score,
    span,
)
from auditor.analytic.family import LoadingFacts, loads

FALCON = Family(
    model_type="falcon",
    taken_over=True,
    prefix="transformer",
    base="FalconModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads num_kv_heads "
        "ffn_hidden_size num_ln_in_parallel_attn new_decoder_architecture multi_query "
        "parallel_attn bias tie_word_embeddings"
    ),
    older=MappingProxyType({"n_embed": "hidden_size"}),
)

# The code in the repositories of the first checkpoints had these keys, and the new decoder if
# n_head_kv is stated; transformers' conversion script uses the same rule.
REFINED_WEB = replace(
    FALCON,
    older=MappingProxyType(
        {
            **FALCON.older,
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_head_kv": "num_kv_heads",
        }
    ),
)
OF_REFINED_WEB = frozenset({"RefinedWeb", "RefinedWebModel"})


@architecture("FalconModel", FALCON)
def falcon_model(c: Config) -> Module:
    if c.model_type in OF_REFINED_WEB:
        c = replace(c, family=REFINED_WEB)
    D = c.dim("hidden_size")
    return module(
        word_embeddings=Embedding(c.dim("vocab_size"), D),
        h=repeat(c.dim("num_hidden_layers"), partial(block, c)),
        ln_f=LayerNorm(D),
    )


def block(c: Config) -> Module:
    D, bias = c.dim("hidden_size"), flag(c, "bias")
    F = c.optional("ffn_hidden_size") or 4 * D
    return module(
        self_attention=module(
            query_key_value=Linear(D, queries_keys_values(c), bias=bias),
            dense=Linear(D, D, bias=bias),
        ),
        mlp=module(
            dense_h_to_4h=Linear(D, F, bias=bias),
            dense_4h_to_h=Linear(F, D, bias=bias),
            act=activation(c, "activation"),
        ),
        **{name: LayerNorm(D) for name in norms(c)},
    )


def queries_keys_values(c: Config) -> Dim:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    head = D.floor(H)
    if new_decoder(c):
        return (2 * (c.optional("num_kv_heads") or H) + H) * head
    return H * head + 2 * head if flag(c, "multi_query") else 3 * H * head


def norms(c: Config) -> tuple[str, ...]:
    """Return the names of the norms: parallel attention and feed-forward may share one."""
    if not flag(c, "parallel_attn"):
        return ("post_attention_layernorm", "input_layernorm")
    if c.present("num_ln_in_parallel_attn"):
        number = c.integer("num_ln_in_parallel_attn")
    else:
        number = 2 if new_decoder(c) else 1
    return ("ln_attn", "ln_mlp") if number == 2 else ("input_layernorm",)  # noqa: PLR2004 - a norm each


def new_decoder(c: Config) -> bool:
    if c.model_type in OF_REFINED_WEB:
        return c.states("num_kv_heads")
    return flag(c, "new_decoder_architecture")


def flag(c: Config, key: str) -> bool:
    """Return a flag of Falcon's config; null counts as false, whatever the default is."""
    return c.present(key) and c.flag(key)


@derived_defaults("FalconConfig")
def sizes(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set the width from its older key, and two sizes that depend on others if they are null."""
    width = others.pop("n_embed", None)
    if width is not None:
        config.set("hidden_size", width)
    if config["num_kv_heads"] is None:
        config.set("num_kv_heads", config["num_attention_heads"])
    if config["ffn_hidden_size"] is None:
        config.set("ffn_hidden_size", 4 * config["hidden_size"])


heads(
    FALCON,
    "Falcon",
    falcon_model,
    ForCausalLM=language_model("transformer.word_embeddings.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=labelled,
    ForQuestionAnswering=span,
)

loads("falcon", LoadingFacts(rotary=True))
