"""GPT-NeoX, https://arxiv.org/abs/2204.06745, and Pythia."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import (
    causal_mask,
    heads,
    labelled,
    language_model,
    score,
    span,
)
from auditor.analytic.family import LoadingFacts, loads

GPT_NEOX = Family(
    model_type="gpt_neox",
    prefix="gpt_neox",
    base="GPTNeoXModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
        "max_position_embeddings attention_bias tie_word_embeddings"
    ),
    own=MappingProxyType({"rotary_pct": 0.25}),
)


@architecture("GPTNeoXModel", GPT_NEOX)
def gpt_neox_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        embed_in=Embedding(c.dim("vocab_size"), D),
        layers=repeat(c.dim("num_hidden_layers"), partial(layer, c)),
        final_layer_norm=LayerNorm(D),
    )


def layer(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(
        input_layernorm=LayerNorm(D),
        post_attention_layernorm=LayerNorm(D),
        attention=attention(c),
        mlp=module(
            dense_h_to_4h=Linear(D, F), dense_4h_to_h=Linear(F, D), act=activation(c, "hidden_act")
        ),
    )


def attention(c: Config) -> Module:
    D, H, bias = c.dim("hidden_size"), c.dim("num_attention_heads"), c.flag("attention_bias")
    width = D.floor(H)
    return module(
        **causal_mask(c.dim("max_position_embeddings")),  # up to transformers 4.30
        rotary_emb=module(inv_freq=Legacy((frequencies(c, width.value),))),  # up to 4.31
        query_key_value=Linear(D, 3 * D, bias=bias),
        dense=Linear(D, D, bias=bias),
    )


def frequencies(c: Config, width: int) -> int:
    """Return the number of rotary frequencies, half of the features that are rotated."""
    turning = min(max(c.real("rotary_pct"), 0.0), 1.0)
    return max((int(width * turning) + 1) // 2, 0)


# transformers 5 names the head lm_head, but stores it as embed_out like older versions.
heads(
    GPT_NEOX,
    "GPTNeoX",
    gpt_neox_model,
    ForCausalLM=language_model("gpt_neox.embed_in.weight", name="embed_out"),
    ForSequenceClassification=score,
    ForTokenClassification=labelled,
    ForQuestionAnswering=span,
)

loads("gpt_neox", LoadingFacts(silent=("attention.bias", "attention.masked_bias"), rotary=True))
loads("GPTNeoXForCausalLM", LoadingFacts(rules=((r"^embed_out\.", "lm_head."),)))
