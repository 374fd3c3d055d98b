"""GPT-2, whose linear layers are stored as (in, out)."""

from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Conv1D,
    Embedding,
    LayerNorm,
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

GPT2 = Family(
    model_type="gpt2",
    prefix="transformer",
    base="GPT2Model",
    keys=(
        "vocab_size n_positions n_embd n_layer n_head n_inner add_cross_attention "
        "tie_word_embeddings"
    ),
)


@architecture("GPT2Model", GPT2)
def gpt2_model(c: Config) -> Module:
    D = c.dim("n_embd")
    return module(
        wte=Embedding(c.dim("vocab_size"), D),
        wpe=Embedding(c.dim("n_positions"), D),
        h=repeat(c.dim("n_layer"), partial(block, c)),
        ln_f=LayerNorm(D),
    )


def block(c: Config) -> Module:
    D = c.dim("n_embd")
    F = c.optional("n_inner") or 4 * D
    cross = c.flag("add_cross_attention")
    return module(
        ln_1=LayerNorm(D),
        attn=attention(c),
        ln_2=LayerNorm(D),
        crossattention=attention(c, cross=True) if cross else None,
        ln_cross_attn=LayerNorm(D) if cross else None,
        mlp=module(
            c_fc=Conv1D(D, F),
            c_proj=Conv1D(F, D),
            act=activation(c, "activation_function"),
        ),
    )


def attention(c: Config, *, cross: bool = False) -> Module:
    D, L = c.dim("n_embd"), c.dim("n_positions")
    return module(
        **causal_mask(L),  # up to transformers 4.30
        c_attn=Conv1D(D, (2 if cross else 3) * D),
        q_attn=Conv1D(D, D) if cross else None,
        c_proj=Conv1D(D, D),
    )


heads(
    GPT2,
    "GPT2",
    gpt2_model,
    LMHeadModel=language_model("transformer.wte.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=labelled,
    ForQuestionAnswering=span,
)

loads("gpt2", LoadingFacts(silent=("attn.bias", "crossattention.bias")))
