"""OPT, https://arxiv.org/abs/2205.01068."""

from functools import partial
from typing import Any

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Tied,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import heads

OPT = Family(
    model_type="opt",
    prefix="model",
    base="OPTModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers ffn_dim max_position_embeddings "
        "num_attention_heads word_embed_proj_dim do_layer_norm_before "
        "_remove_final_layer_norm enable_bias layer_norm_elementwise_affine "
        "tie_word_embeddings"
    ),
)

PADDING = 2  # rows before the row of the first position


@architecture("OPTModel", OPT)
def opt_model(c: Config) -> Module:
    D, W, V = c.dim("hidden_size"), outer_width(c), c.dim("vocab_size")
    final_norm = c.flag("do_layer_norm_before") and not c.flag("_remove_final_layer_norm")
    projected = W.value != D.value
    decoder = module(
        embed_tokens=Embedding(V, W),
        embed_positions=Embedding(c.dim("max_position_embeddings") + PADDING, D),
        project_out=Linear(D, W, bias=False) if projected else None,
        project_in=Linear(W, D, bias=False) if projected else None,
        final_layer_norm=norm(c) if final_norm else None,
        layers=repeat(c.dim("num_hidden_layers"), partial(layer, c)),
    )
    return module(decoder=decoder)


def outer_width(c: Config) -> Dim:
    """Return the width of the embedding and of the heads, which is smaller in the 350M model."""
    return c.optional("word_embed_proj_dim") or c.dim("hidden_size")


def norm(c: Config) -> Module | None:
    return LayerNorm(c.dim("hidden_size")) if c.flag("layer_norm_elementwise_affine") else None


def layer(c: Config) -> Module:
    D, F, bias = c.dim("hidden_size"), c.dim("ffn_dim"), c.flag("enable_bias")
    return module(
        self_attn=attention(c),
        self_attn_layer_norm=norm(c),
        activation_fn=activation(c, "activation_function"),
        fc1=Linear(D, F, bias=bias),
        fc2=Linear(F, D, bias=bias),
        final_layer_norm=norm(c),
    )


def attention(c: Config) -> Module:
    D, bias = c.dim("hidden_size"), c.flag("enable_bias")
    return module(
        k_proj=Linear(D, D, bias=bias),
        v_proj=Linear(D, D, bias=bias),
        q_proj=Linear(D, D, bias=bias),
        out_proj=Linear(D, D, bias=bias),
    )


def language_model(c: Config) -> Module:
    tied = module(weight=Tied("model.decoder.embed_tokens.weight"))
    untied = Linear(outer_width(c), c.dim("vocab_size"), bias=False)
    return module(lm_head=tied if c.flag("tie_word_embeddings") else untied)


def score(c: Config) -> Module:
    return module(score=Linear(outer_width(c), c.num_labels, bias=False))


def span(c: Config) -> Module:
    return module(qa_outputs=Linear(outer_width(c), 2))


@derived_defaults("OPTConfig")
def outer_size(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set the embeddings' width to the layers' width, if the config has null."""
    del others
    if config["word_embed_proj_dim"] is None:
        config.set("word_embed_proj_dim", config["hidden_size"])


heads(
    OPT,
    "OPT",
    opt_model,
    ForCausalLM=language_model,
    ForSequenceClassification=score,
    ForQuestionAnswering=span,
)
