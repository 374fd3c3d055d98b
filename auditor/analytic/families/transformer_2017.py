"""The Transformer of 2017, https://arxiv.org/abs/1706.03762, as the paper describes it.

Projections have no bias, the feed-forward block has two, positions are computed, and one matrix is
the embedding of both languages and the output. Keys and names are this package's, because the
Hub has no checkpoint of this model. The defaults are those of the paper's base model.
"""

from types import MappingProxyType

from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, Repeat, Tied, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.family import LoadingFacts, loads

TRANSFORMER_2017 = Family(
    model_type="transformer-2017",
    prefix="",
    base="Transformer2017",
    keys="d_k d_v",
    own=MappingProxyType(
        {"vocab_size": 37000, "d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
    ),
    older=MappingProxyType(
        {
            "hidden_size": "d_model",
            "num_attention_heads": "num_heads",
            "num_hidden_layers": "num_layers",
        }
    ),
)


@architecture("Transformer2017", TRANSFORMER_2017)
def transformer(c: Config) -> Module:
    return module(
        embedding=Embedding(c.dim("vocab_size"), c.dim("d_model")),
        encoder=module(layers=Repeat(c.dim("num_layers"), layer(c))),
        decoder=module(layers=Repeat(c.dim("num_layers"), layer(c, decoder=True))),
        output=module(weight=Tied("embedding.weight")),
    )


def layer(c: Config, *, decoder: bool = False) -> Module:
    D, F = c.dim("d_model"), c.dim("d_ff")
    return module(
        self_attention=attention(c),
        self_attention_norm=LayerNorm(D),
        encoder_attention=attention(c) if decoder else None,
        encoder_attention_norm=LayerNorm(D) if decoder else None,
        feed_forward=module(inner=Linear(D, F), outer=Linear(F, D)),
        feed_forward_norm=LayerNorm(D),
    )


def attention(c: Config) -> Module:
    D, H = c.dim("d_model"), c.dim("num_heads")
    keys = H * (c.optional("d_k") or D // H)
    values = H * (c.optional("d_v") or D // H)
    return module(
        query=Linear(D, keys, bias=False),
        key=Linear(D, keys, bias=False),
        value=Linear(D, values, bias=False),
        output=Linear(values, D, bias=False),
    )


loads("transformer-2017", LoadingFacts(of_library=False))
