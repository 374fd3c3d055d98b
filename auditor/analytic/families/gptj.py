"""GPT-J, whose language model's head has a bias."""

from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import causal_mask, heads, language_model, score, span
from auditor.analytic.family import LoadingFacts, loads

GPTJ = Family(
    model_type="gptj",
    prefix="transformer",
    base="GPTJModel",
    keys="vocab_size n_positions n_embd n_layer n_head n_inner tie_word_embeddings",
)


@architecture("GPTJModel", GPTJ)
def gptj_model(c: Config) -> Module:
    D = c.dim("n_embd")
    return module(
        wte=Embedding(c.dim("vocab_size"), D),
        h=repeat(c.dim("n_layer"), partial(block, c)),
        ln_f=LayerNorm(D),
    )


def block(c: Config) -> Module:
    """Return a block with one norm, whose output both attention and feed-forward read."""
    D = c.dim("n_embd")
    F = c.optional("n_inner") or 4 * D
    return module(
        ln_1=LayerNorm(D),
        attn=attention(c),
        mlp=module(
            fc_in=Linear(D, F),
            fc_out=Linear(F, D),
            act=activation(c, "activation_function"),
        ),
    )


def attention(c: Config) -> Module:
    D = c.dim("n_embd")
    return module(
        **causal_mask(c.dim("n_positions")),  # up to transformers 4.30
        k_proj=Linear(D, D, bias=False),
        v_proj=Linear(D, D, bias=False),
        q_proj=Linear(D, D, bias=False),
        out_proj=Linear(D, D, bias=False),
    )


heads(
    GPTJ,
    "GPTJ",
    gptj_model,
    ForCausalLM=language_model("transformer.wte.weight", bias=True),
    ForSequenceClassification=score,
    ForQuestionAnswering=span,
)

loads("gptj", LoadingFacts(silent=("attn.bias", "attn.masked_bias")))
