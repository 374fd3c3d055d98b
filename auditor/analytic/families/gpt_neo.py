"""GPT-Neo: every second layer attends to a window only; all layers have equal tensors."""

from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
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

GPT_NEO = Family(
    model_type="gpt_neo",
    prefix="transformer",
    base="GPTNeoModel",
    keys=(
        "vocab_size max_position_embeddings hidden_size num_layers num_heads "
        "intermediate_size tie_word_embeddings"
    ),
)


@architecture("GPTNeoModel", GPT_NEO)
def gpt_neo_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        wte=Embedding(c.dim("vocab_size"), D),
        wpe=Embedding(c.dim("max_position_embeddings"), D),
        h=repeat(c.dim("num_layers"), partial(block, c)),
        ln_f=LayerNorm(D),
    )


def block(c: Config) -> Module:
    D = c.dim("hidden_size")
    F = c.optional("intermediate_size") or 4 * D
    return module(
        ln_1=LayerNorm(D),
        attn=module(attention=attention(c)),
        ln_2=LayerNorm(D),
        mlp=module(
            c_fc=Linear(D, F),
            c_proj=Linear(F, D),
            act=activation(c, "activation_function"),
        ),
    )


def attention(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        **causal_mask(c.dim("max_position_embeddings")),  # up to transformers 4.30
        k_proj=Linear(D, D, bias=False),
        v_proj=Linear(D, D, bias=False),
        q_proj=Linear(D, D, bias=False),
        out_proj=Linear(D, D),
    )


heads(
    GPT_NEO,
    "GPTNeo",
    gpt_neo_model,
    ForCausalLM=language_model("transformer.wte.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=labelled,
    ForQuestionAnswering=span,
)
