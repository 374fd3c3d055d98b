"""The first GPT, whose linear layers are stored as (in, out) like GPT-2's."""

from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Conv1D,
    Embedding,
    LayerNorm,
    Legacy,
    Module,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import heads, language_model, score
from auditor.analytic.family import LoadingFacts, loads

GPT = Family(
    model_type="openai-gpt",
    prefix="transformer",
    base="OpenAIGPTModel",
    keys="vocab_size n_positions n_embd n_layer n_head tie_word_embeddings",
)


@architecture("OpenAIGPTModel", GPT)
def gpt_model(c: Config) -> Module:
    D, L = c.dim("n_embd"), c.dim("n_positions")
    return module(
        position_ids=Legacy((L,)),  # stored up to transformers 4.30, like the mask
        tokens_embed=Embedding(c.dim("vocab_size"), D),
        positions_embed=Embedding(L, D),
        h=repeat(c.dim("n_layer"), partial(block, c)),
    )


def block(c: Config) -> Module:
    D = c.dim("n_embd")
    return module(
        attn=attention(c),
        ln_1=LayerNorm(D),
        mlp=module(
            c_fc=Conv1D(D, 4 * D),
            c_proj=Conv1D(4 * D, D),
            act=activation(c, "afn"),
        ),
        ln_2=LayerNorm(D),
    )


def attention(c: Config) -> Module:
    D, L = c.dim("n_embd"), c.dim("n_positions")
    return module(
        bias=Legacy((1, 1, L, L)),
        c_attn=Conv1D(D, 3 * D),
        c_proj=Conv1D(D, D),
    )


heads(
    GPT,
    "OpenAIGPT",
    gpt_model,
    LMHeadModel=language_model("transformer.tokens_embed.weight"),
    ForSequenceClassification=score,
)

loads("openai-gpt", LoadingFacts(positions=True))
