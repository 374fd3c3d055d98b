"""Gemma 3, https://arxiv.org/abs/2503.19786: Gemma 2 with normed heads, and SigLIP to see with."""

from functools import partial
from typing import Any

from auditor.analytic.blocks import Linear, Module, Param, RMSNorm, Unbuildable, module
from auditor.analytic.catalogue import Family, architecture, base_model, completed_config
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules, rope
from auditor.analytic.config_classes.completed import WRONG
from auditor.analytic.families import _configs
from auditor.analytic.families._decoder import (
    attention,
    decoder,
    gated_mlp,
    head_dim,
    headed,
    layer,
    register,
)
from auditor.analytic.families._vlm import LLAVA_MODEL_RENAMES, LLAVA_RENAMES, llava, llava_head
from auditor.analytic.families.gemma import GEMMA2, NORMS
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import generates, refused, scaled
from auditor.analytic.rotation import kinds_of_layers

GEMMA3_TEXT = Family(
    model_type="gemma3_text",
    prefix="model",
    base="Gemma3TextModel",
    keys=GEMMA2.keys,
)
GEMMA3 = Family(
    model_type="gemma3",
    prefix="model",
    base="Gemma3Model",
    keys="tie_word_embeddings",
)


def gemma3_text_model(c: Config) -> Module:
    return decoder(c, partial(block, c), kinds=kinds_of_layers(c))


def block(c: Config) -> Module:
    bias, scale = c.flag("attention_bias"), scaled(c, c.dim("query_pre_attn_scalar"))
    heads = attention(c, head_dim(c), qkv_bias=bias, out_bias=bias, qk_norm=True, scale=scale)
    return layer(c, self_attn=heads, norms=NORMS, mlp=gated_mlp(c, act="hidden_activation"))


register(GEMMA3_TEXT, "Gemma3Text", gemma3_text_model, heads=["SequenceClassification"])
architecture("Gemma3ForCausalLM", GEMMA3_TEXT)(headed(gemma3_text_model, "CausalLM"))


def parts(c: Config) -> tuple[Config, Config]:
    vision = completed_config(c.nested("vision_config"), "siglip_vision_model")
    return vision, c.nested("text_config", GEMMA3_TEXT)


def projector(c: Config, vision: Config, text: Config) -> Module:
    seen = vision.dim("hidden_size")
    return module(
        pool=pooled_patches(c, vision),
        mm_input_projection_weight=Param((seen, text.dim("hidden_size"))),
        mm_soft_emb_norm=RMSNorm(seen),
    )


def pooled_patches(c: Config, vision: Config) -> Unbuildable | None:
    """Patches are pooled to a square of `mm_tokens_per_image`, which has to have a side."""
    if vision.settled is None:
        return None
    keys = ("mm_tokens_per_image", "vision_config.image_size", "vision_config.patch_size")
    try:
        side = int(vision.attribute("image_size") // vision.attribute("patch_size"))
        _ = side // int(c.attribute(keys[0]) ** 0.5)
    except WRONG as error:
        reason = f"{', '.join(c.path + key for key in keys)} cannot be used: {error}"
        return refused(c, reason, *keys)
    return None


@architecture("Gemma3Model", GEMMA3)
def gemma3_model(c: Config) -> Module:
    vision, text = parts(c)
    return llava(base_model(vision), projector(c, vision, text), gemma3_text_model(text))


@architecture("Gemma3ForConditionalGeneration", GEMMA3)
def for_conditional_generation(c: Config) -> Module:
    vision, text = parts(c)
    model = gemma3_text_model(text)
    head = llava_head(text, model, tied=c.flag("tie_word_embeddings"))
    return llava(base_model(vision), projector(c, vision, text), model, head, generates(c))


@architecture("Gemma3ForSequenceClassification", GEMMA3)
def for_sequence_classification(c: Config) -> Module:
    _, text = parts(c)
    score = Linear(text.dim("hidden_size"), c.num_labels, bias=False)
    return Module((*gemma3_model(c).children, ("score", score)))


# --- the config of the language model ----------------------------------------------------------

_BASES = {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"}


def first(config: Settled, others: dict[str, Any]) -> None:
    """Every sixth layer sees all, if the config does not say how many."""
    if config["use_bidirectional_attention"] and config["sliding_window"] is not None:
        config.set("sliding_window", config["sliding_window"] // 2 + 1)
    pattern = dict(others)  # it stays with the other keys
    _configs.every(6, "sliding_window_pattern")(config, pattern)


# An older config has one scaling, for the layers that see all.
rotation_of = rope.rope_by_layer_kind(_BASES, scaled=("full_attention",))

config_rules(
    "Gemma3TextConfig", first=first, rotation=rotation_of, architecture=_configs.even_heads
)

loads(
    "gemma3",
    LoadingFacts(
        rules=LLAVA_RENAMES,
        inside=(
            ("vision_tower", "vision_config", "siglip_vision_model"),
            ("language_model", "text_config", "gemma3_text"),
        ),
    ),
)
loads("Gemma3Model", LoadingFacts(rules=LLAVA_MODEL_RENAMES))
