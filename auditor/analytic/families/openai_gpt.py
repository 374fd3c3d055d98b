"""GPT, the first one, whose linear layers are stored as (in, out) like GPT-2's."""

from functools import partial

from auditor.analytic.blocks import (
    Conv1D,
    Embedding,
    LayerNorm,
    Legacy,
    Module,
    Unbuildable,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import heads, language_model, score
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import dropout, refused, shares, unstored
from auditor.messages import described

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
        position_ids=Legacy((L,)),  # this and the mask: stored up to transformers 4.30
        tokens_embed=Embedding(c.dim("vocab_size"), D),
        positions_embed=Embedding(L, D),
        drop=dropout(c, "embd_pdrop"),
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
            act=own_activation(c),
            dropout=dropout(c, "resid_pdrop"),
        ),
        ln_2=LayerNorm(D),
    )


def attention(c: Config) -> Module:
    D, H, L = c.dim("n_embd"), c.dim("n_head"), c.dim("n_positions")
    return module(
        bias=Legacy((1, 1, L, L)),
        mask=unstored(c, L, L),
        heads=shares(c, D, H, scale="none"),
        c_attn=Conv1D(D, 3 * D),
        c_proj=Conv1D(D, D),
        attn_dropout=dropout(c, "attn_pdrop"),
        resid_dropout=dropout(c, "resid_pdrop"),
    )


def own_activation(c: Config) -> Unbuildable | None:
    """One of the few that the first GPT knows, and not all that transformers has."""
    name = c.attribute("afn")
    if c.settled is None or name in ("relu", "silu", "gelu", "swish"):
        return None
    known = '"relu", "silu", "gelu" and "swish" are known'
    return refused(c, f"{c.path}afn is {described(name)}; {known}", "afn")


heads(
    GPT,
    "OpenAIGPT",
    gpt_model,
    LMHeadModel=language_model("transformer.tokens_embed.weight"),
    ForSequenceClassification=score,
)

loads("openai-gpt", LoadingFacts(positions=True))
