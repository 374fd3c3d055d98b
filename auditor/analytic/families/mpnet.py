"""MPNet, https://arxiv.org/abs/2004.09297: RoBERTa with one table of relative position biases."""

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
from auditor.analytic.families._heads import choice, heads
from auditor.analytic.families.bert import dense_output, embeddings, pooled
from auditor.analytic.families.roberta import heads_without_pooler
from auditor.analytic.family import LoadingFacts, loads

MPNET = Family(
    model_type="mpnet",
    prefix="mpnet",
    base="MPNetModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
        "max_position_embeddings relative_attention_num_buckets tie_word_embeddings"
    ),
)


def bare(c: Config) -> Module:
    H, buckets = c.dim("num_attention_heads"), c.dim("relative_attention_num_buckets")
    return module(
        embeddings=embeddings(c, types=False),
        encoder=module(
            layer=repeat(c.dim("num_hidden_layers"), partial(layer, c)),
            relative_attention_bias=Embedding(buckets, H),
        ),
    )


def layer(c: Config) -> Module:
    D, F, H = c.dim("hidden_size"), c.dim("intermediate_size"), c.dim("num_attention_heads")
    width = H * D.floor(H)  # equal to D if the heads divide D
    return module(
        attention=module(
            attn=module(q=Linear(D, width), k=Linear(D, width), v=Linear(D, width), o=Linear(D, D)),
            LayerNorm=LayerNorm(D),
        ),
        intermediate=module(dense=Linear(D, F), intermediate_act_fn=activation(c)),
        output=dense_output(c, F),
    )


@architecture("MPNetModel", MPNET)
def mpnet_model(c: Config, *, pooler: bool = True) -> Module:
    return Module((*bare(c).children, ("pooler", pooled(c)))) if pooler else bare(c)


heads(MPNET, "MPNet", bare, **heads_without_pooler(MPNET.prefix))
heads(MPNET, "MPNet", mpnet_model, ForMultipleChoice=choice)

loads("mpnet", LoadingFacts(positions=True))
