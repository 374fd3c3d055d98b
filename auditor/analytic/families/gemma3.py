"""Gemma 3, https://arxiv.org/abs/2503.19786: Gemma 2 with normed heads, and SigLIP for images."""

from auditor.analytic.blocks import Linear, Module, Param, RMSNorm, module
from auditor.analytic.catalogue import Family, architecture, base_model, completed_config
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import (
    KEYS,
    NORMS,
    attention,
    decoder_of,
    gated_mlp,
    head_dim,
    headed,
    layer,
    register,
)
from auditor.analytic.families._vlm import LLAVA_MODEL_RENAMES, LLAVA_RENAMES, llava, llava_head
from auditor.analytic.family import LoadingFacts, loads

GEMMA3_TEXT = Family(
    model_type="gemma3_text",
    prefix="model",
    base="Gemma3TextModel",
    keys=f"{KEYS} head_dim attention_bias",
)
GEMMA3 = Family(
    model_type="gemma3",
    prefix="model",
    base="Gemma3Model",
    keys="tie_word_embeddings",
)


def block(c: Config) -> Module:
    bias = c.flag("attention_bias")
    heads = attention(c, head_dim(c), qkv_bias=bias, out_bias=bias, qk_norm=True)
    return layer(c, self_attn=heads, norms=NORMS, mlp=gated_mlp(c, act="hidden_activation"))


gemma3_text_model = decoder_of(block)


register(GEMMA3_TEXT, "Gemma3Text", gemma3_text_model, heads=["SequenceClassification"])
architecture("Gemma3ForCausalLM", GEMMA3_TEXT)(headed(gemma3_text_model, "CausalLM"))


def parts(c: Config) -> tuple[Config, Config]:
    vision = completed_config(c.nested("vision_config"), "siglip_vision_model")
    return vision, c.nested("text_config", GEMMA3_TEXT)


def projector(vision: Config, text: Config) -> Module:
    seen = vision.dim("hidden_size")
    return module(
        mm_input_projection_weight=Param((seen, text.dim("hidden_size"))),
        mm_soft_emb_norm=RMSNorm(seen),
    )


@architecture("Gemma3Model", GEMMA3)
def gemma3_model(c: Config) -> Module:
    vision, text = parts(c)
    return llava(base_model(vision), projector(vision, text), gemma3_text_model(text))


@architecture("Gemma3ForConditionalGeneration", GEMMA3)
def for_conditional_generation(c: Config) -> Module:
    vision, text = parts(c)
    model = gemma3_text_model(text)
    head = llava_head(text, model, tied=c.flag("tie_word_embeddings"))
    return llava(base_model(vision), projector(vision, text), model, head)


@architecture("Gemma3ForSequenceClassification", GEMMA3)
def for_sequence_classification(c: Config) -> Module:
    _, text = parts(c)
    score = Linear(text.dim("hidden_size"), c.num_labels, bias=False)
    return Module((*gemma3_model(c).children, ("score", score)))


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
