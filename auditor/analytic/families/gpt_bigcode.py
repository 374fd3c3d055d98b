"""StarCoder and SantaCoder, https://arxiv.org/abs/2305.06161: all heads share one key and value."""

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
from auditor.analytic.families._heads import heads, labelled, language_model, score

GPT_BIGCODE = Family(
    model_type="gpt_bigcode",
    prefix="transformer",
    base="GPTBigCodeModel",
    keys=(
        "vocab_size n_positions n_embd n_layer n_head n_inner multi_query add_cross_attention "
        "tie_word_embeddings"
    ),
)


@architecture("GPTBigCodeModel", GPT_BIGCODE)
def gpt_bigcode_model(c: Config) -> Module:
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
        crossattention=cross_attention(c) if cross else None,
        ln_cross_attn=LayerNorm(D) if cross else None,
        mlp=module(
            c_fc=Linear(D, F),
            c_proj=Linear(F, D),
            act=activation(c, "activation_function"),
        ),
    )


def attention(c: Config) -> Module:
    D, H = c.dim("n_embd"), c.dim("n_head")
    keys = D.floor(H) if c.flag("multi_query") else D
    return module(
        c_attn=Linear(D, D + 2 * keys),
        c_proj=Linear(D, D),
    )


def cross_attention(c: Config) -> Module:
    D = c.dim("n_embd")
    return module(c_attn=Linear(D, 2 * D), q_attn=Linear(D, D), c_proj=Linear(D, D))


heads(
    GPT_BIGCODE,
    "GPTBigCode",
    gpt_bigcode_model,
    ForCausalLM=language_model("transformer.wte.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=labelled,
)
