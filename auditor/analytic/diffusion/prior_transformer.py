"""PriorTransformer: the transformer that turns a text's embedding into an image's (unCLIP)."""

from types import MappingProxyType

from auditor.analytic.blocks import LayerNorm, Linear, Module, Param, module, repeat, sequential
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import LibraryForm, counts_by_block, require, size
from auditor.analytic.diffusion.layers import biased_attention, time_embedding
from auditor.analytic.dims import Dim
from auditor.analytic.family import Family

PRIOR = Family(
    model_type="PriorTransformer",
    prefix="",
    base="PriorTransformer",
    letters=MappingProxyType({"embedding_dim": "E"}),
    own=MappingProxyType(
        {
            "num_attention_heads": 32,
            "attention_head_dim": 64,
            "num_layers": 20,
            "embedding_dim": 768,
            "num_embeddings": 77,
            "additional_embeddings": 4,
            "dropout": 0.0,
            "time_embed_act_fn": "silu",
            "norm_in_type": None,
            "embedding_proj_norm_type": None,
            "encoder_hid_proj_type": "linear",
            "added_emb_type": "prd",
            "time_embed_dim": None,
            "embedding_proj_dim": None,
            "clip_embed_dim": None,
        }
    ),
)


def _layer(D: Dim) -> Module:  # noqa: N803 - a letter of formulas
    """Return a BasicTransformerBlock over the image and the text at once."""
    ff = module(net=sequential(module(proj=Linear(D, 4 * D)), None, Linear(4 * D, D)))
    attention = biased_attention(D, is_normed=False)
    return module(norm1=LayerNorm(D), attn1=attention, norm3=LayerNorm(D), ff=ff)


def prior_transformer(c: Config) -> Module:
    for key, value in (
        ("norm_in_type", "layer"),
        ("embedding_proj_norm_type", "layer"),
        ("encoder_hid_proj_type", "linear"),
        ("added_emb_type", "prd"),
    ):
        require(c, key, None, value)
    counts_by_block(c, "num_layers", 1)  # bounded
    D, E = size(c, "num_attention_heads") * size(c, "attention_head_dim"), size(c, "embedding_dim")
    time, projected, clip = (
        size(c, key) if c.truth(key) else other
        for key, other in (
            ("time_embed_dim", D),
            ("embedding_proj_dim", E),
            ("clip_embed_dim", E),
        )
    )
    places = c.dim("num_embeddings") + c.dim("additional_embeddings")
    has_norm = c.present("embedding_proj_norm_type")
    return module(
        positional_embedding=Param((1, places, D)),
        prd_embedding=Param((1, 1, D)) if c.present("added_emb_type") else None,
        clip_mean=Param((1, clip)),
        clip_std=Param((1, clip)),
        time_embedding=time_embedding(D, time, outputs=D),
        proj_in=Linear(E, D),
        embedding_proj_norm=LayerNorm(projected) if has_norm else None,
        embedding_proj=Linear(projected, D),
        encoder_hidden_states_proj=Linear(E, D) if c.present("encoder_hid_proj_type") else None,
        transformer_blocks=repeat(c.dim("num_layers"), lambda: _layer(D)),
        norm_in=LayerNorm(D) if c.present("norm_in_type") else None,
        norm_out=LayerNorm(D),
        proj_to_clip_embeddings=Linear(D, clip),
    )


CLASSES = MappingProxyType({"PriorTransformer": LibraryForm(PRIOR, prior_transformer)})
