"""ESM-1b and ESM-2, https://doi.org/10.1126/science.ade2574: a BERT that reads proteins."""

from functools import partial

from auditor.analytic.blocks import (
    Embedding,
    Extra,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import dense_labelled, heads, labelled
from auditor.analytic.families.bert import pooled
from auditor.analytic.families.roberta import lm_head
from auditor.analytic.family import LoadingFacts, loads

ESM = Family(
    model_type="esm",
    prefix="esm",
    base="EsmModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
        "max_position_embeddings position_embedding_type emb_layer_norm_before is_decoder "
        "add_cross_attention tie_word_embeddings"
    ),
)

# transformers 5 has one tensor for all layers, and stores it under this name, star included.
SHARED_FREQUENCIES = "encoder.layer.*.attention.self.rotary_embeddings.inv_freq"


def bare(c: Config) -> Module:
    D, N, H = c.dim("hidden_size"), c.dim("num_hidden_layers"), c.dim("num_attention_heads")
    frequencies = {SHARED_FREQUENCIES: Legacy((D.floor(H).ceil(2),))} if rotary(c) else {}
    return module(
        embeddings=embeddings(c),
        encoder=module(layer=repeat(N, partial(layer, c)), emb_layer_norm_after=LayerNorm(D)),
        **frequencies,
        contact_head=module(regression=Linear(N * H, 1)),
    )


@architecture("EsmModel", ESM)
def esm_model(c: Config, *, pooler: bool = True) -> Module:
    return Module((*bare(c).children, ("pooler", pooled(c)))) if pooler else bare(c)


def rotary(c: Config) -> bool:
    return position_type(c) == "rotary"


def position_type(c: Config) -> str | None:
    key = "position_embedding_type"
    return c.text(key) if c.present(key) else None


def embeddings(c: Config) -> Module:
    D, L = c.dim("hidden_size"), c.dim("max_position_embeddings")
    places = Embedding(L, D)
    return module(
        position_ids=Legacy((1, L)),  # stored up to transformers 4.30
        word_embeddings=Embedding(c.dim("vocab_size"), D),
        layer_norm=LayerNorm(D) if _true(c, "emb_layer_norm_before") else None,
        # transformers 4.30 stored these for every type, but read them only for this type.
        position_embeddings=places if position_type(c) == "absolute" else Extra(places),
    )


def layer(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(
        attention=attention(c),
        crossattention=attention(c) if _true(c, "add_cross_attention") else None,
        intermediate=module(dense=Linear(D, F)),
        output=module(dense=Linear(F, D)),
        LayerNorm=LayerNorm(D),
    )


def attention(c: Config) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    head_dim = D.floor(H)
    width = H * head_dim  # equal to D if the heads divide D
    frequencies = module(inv_freq=Legacy((head_dim.ceil(2),))) if rotary(c) else None
    return module(
        self=module(
            query=Linear(D, width),
            key=Linear(D, width),
            value=Linear(D, width),
            rotary_embeddings=frequencies,  # stored up to transformers 4, one a layer
        ),
        output=module(dense=Linear(D, D)),
        LayerNorm=LayerNorm(D),
    )


def _true(c: Config, key: str) -> bool:
    """Return the flag under a key; null counts as false."""
    return c.present(key) and c.flag(key)


heads(
    ESM,
    "EsmFor",
    bare,
    MaskedLM=lm_head(ESM.prefix, decoder_bias=False),
    SequenceClassification=dense_labelled,
    TokenClassification=labelled,
)

loads(
    "esm",
    LoadingFacts(
        rules=(
            (
                "encoder.layer.*.attention.self.rotary_embeddings.inv_freq",
                "rotary_embeddings.inv_freq",
            ),
            ("LayerNorm.gamma", "LayerNorm.weight"),
            ("LayerNorm.beta", "LayerNorm.bias"),
        ),
        silent=("position_embeddings.weight",),
        optional_buffers=(r"(^|\.)attention\.self\.rotary_embeddings\.inv_freq$",),
        positions=True,
    ),
)
