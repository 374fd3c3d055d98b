"""MPT in the variant that transformers builds: no biases, no learned positions."""

from functools import partial

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
    heads,
    labelled,
    language_model,
    score,
    span,
)

MPT = Family(
    model_type="mpt",
    taken_over=True,
    prefix="transformer",
    base="MptModel",
    keys="vocab_size d_model n_layers n_heads tie_word_embeddings",
)


@architecture("MptModel", MPT)
def mpt_model(c: Config) -> Module:
    D = c.dim("d_model")
    return module(
        wte=Embedding(c.dim("vocab_size"), D),
        blocks=repeat(c.dim("n_layers"), partial(block, c)),
        norm_f=LayerNorm(D, bias=False),
    )


def block(c: Config) -> Module:
    """Return a block; its feed-forward is always four times as wide as the model."""
    D = c.dim("d_model")
    attention = module(
        Wqkv=Linear(D, 3 * D, bias=False),
        out_proj=Linear(D, D, bias=False),
    )
    return module(
        norm_1=LayerNorm(D, bias=False),
        attn=attention,
        norm_2=LayerNorm(D, bias=False),
        ffn=module(up_proj=Linear(D, 4 * D, bias=False), down_proj=Linear(4 * D, D, bias=False)),
    )


heads(
    MPT,
    "Mpt",
    mpt_model,
    ForCausalLM=language_model("transformer.wte.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=labelled,
    ForQuestionAnswering=span,
)
