"""Qwen3-VL, https://arxiv.org/abs/2511.21631: a vision tower, some of whose layers feed Qwen 3.

Each layer that feeds Qwen 3 has its own merger; one more merger follows the last layer.
"""

from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic.activations import activation
from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import derived_defaults
from auditor.analytic.dims import Dim, dim
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    KEYS,
    attention,
    decoder_of,
    gated_mlp,
    head_dim,
    layer,
)
from auditor.analytic.families._vlm import lm_head
from auditor.analytic.families.qwen2_vl import QWEN2_5_VL_VISION as OLDER
from auditor.analytic.families.qwen2_vl import merged, tower
from auditor.analytic.family import LoadingFacts, loads

TEXT = Family(
    model_type="qwen3_vl_text",
    prefix="model",
    base="Qwen3VLTextModel",
    keys=f"{KEYS} head_dim attention_bias",
    own=MappingProxyType({"tie_word_embeddings": False}),
)
VISION = replace(
    OLDER,
    model_type="qwen3_vl_vision",
    base="Qwen3VLVisionModel",
    keys=f"{OLDER.keys} num_position_embeddings deepstack_visual_indexes",
    letters=MappingProxyType({**OLDER.letters, "num_position_embeddings": "L"}),
)
QWEN3_VL = Family(
    model_type="qwen3_vl",
    prefix="model",
    base="Qwen3VLModel",
    keys="tie_word_embeddings",
)


derived_defaults("Qwen3VLTextConfig")(_configs.key_value_heads)


def block(c: Config) -> Module:
    """Return a layer of Qwen 3, whose heads have their own width; queries and keys are normed."""
    bias, width = c.flag("attention_bias"), head_dim(c)
    return layer(
        c,
        self_attn=attention(c, width, qkv_bias=bias, out_bias=bias, qk_norm=True),
        mlp=gated_mlp(c),
    )


text_model = decoder_of(block)


@architecture("Qwen3VLModel", QWEN3_VL)
def qwen3_vl_model(c: Config) -> Module:
    return module(
        visual=visual(c.nested("vision_config", VISION)),
        language_model=text_model(c.nested("text_config", TEXT)),
    )


@architecture("Qwen3VLForConditionalGeneration", QWEN3_VL)
def for_conditional_generation(c: Config) -> Module:
    tied = "model.language_model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    head = lm_head(c.nested("text_config", TEXT), tied=tied)
    return module(model=qwen3_vl_model(c), lm_head=head)


architecture("Qwen3VLTextModel", TEXT)(text_model)


@architecture("Qwen3VLVisionModel", VISION)
def visual(c: Config) -> Module:
    D = c.dim("hidden_size")
    deep = dim(c.length("deepstack_visual_indexes"))
    return module(
        pos_embed=Embedding(c.dim("num_position_embeddings"), D),
        **tower(c, D, norm=LayerNorm, mlp=partial(vision_mlp, c), bias=True),
        merger=merger(c, LayerNorm(D)),
        deepstack_merger_list=repeat(deep, lambda: merger(c, LayerNorm(merged(c, D)))),
    )


def vision_mlp(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(linear_fc1=Linear(D, F), linear_fc2=Linear(F, D), act_fn=activation(c))


def merger(c: Config, norm: Module) -> Module:
    wide: Dim = merged(c, c.dim("hidden_size"))
    return module(
        norm=norm, linear_fc1=Linear(wide, wide), linear_fc2=Linear(wide, c.dim("out_hidden_size"))
    )


loads("qwen3_vl", LoadingFacts(inside=(("language_model", "text_config", "qwen3_vl_text"),)))
loads("qwen3_vl_text", LoadingFacts(rotary=True))
