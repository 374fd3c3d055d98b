"""BLIP, https://arxiv.org/abs/2201.12086: a vision tower, and BERTs with cross-attention to it."""

from functools import partial

from auditor.analytic.blocks import (
    Conv,
    LayerNorm,
    Linear,
    Module,
    Param,
    Submodel,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families import bert
from auditor.analytic.families._towers import mlp, patches
from auditor.analytic.family import LoadingFacts, loads

TEXT = Family(
    model_type="blip_text_model",
    prefix="bert",
    base="BlipTextModel",
    keys=(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "max_position_embeddings is_decoder tie_word_embeddings"
    ),
)
VISION = Family(
    model_type="blip_vision_model",
    prefix="blip",
    base="BlipVisionModel",
    keys=(
        "hidden_size intermediate_size num_hidden_layers num_attention_heads image_size patch_size"
    ),
)
BLIP = Family(
    model_type="blip",
    prefix="blip",
    base="BlipModel",
    keys="projection_dim image_text_hidden_size tie_word_embeddings",
)


def parts(c: Config) -> tuple[Config, Config]:
    return c.nested("text_config", TEXT), c.nested("vision_config", VISION)


@architecture("BlipModel", BLIP)
def blip_model(c: Config) -> Module:
    text, vision = parts(c)
    shared, D = c.dim("projection_dim"), text.dim("hidden_size")
    return module(
        logit_scale=Param(()),
        text_model=text_model(text, vision, pooler=True),
        vision_model=vision_model(vision),
        visual_projection=Linear(vision.dim("hidden_size"), shared, bias=False),
        text_projection=Linear(D, shared, bias=False),
    )


@architecture("BlipForConditionalGeneration", BLIP)
def for_conditional_generation(c: Config) -> Module:
    text, vision = parts(c)
    decoder = text_decoder(c, text, vision)
    tower = vision_model(vision)
    return module(vision_model=tower, text_decoder=decoder)


@architecture("BlipForQuestionAnswering", BLIP)
def for_question_answering(c: Config) -> Module:
    text, vision = parts(c)
    return module(
        vision_model=vision_model(vision),
        text_encoder=text_model(text, vision),
        text_decoder=text_decoder(c, text, vision),
    )


@architecture("BlipForImageTextRetrieval", BLIP)
def for_image_text_retrieval(c: Config) -> Module:
    text, vision = parts(c)
    shared, D = c.dim("image_text_hidden_size"), text.dim("hidden_size")
    return module(
        vision_model=vision_model(vision),
        text_encoder=text_model(text, vision),
        vision_proj=Linear(vision.dim("hidden_size"), shared),
        text_proj=Linear(D, shared),
        itm_head=Linear(D, 2),
    )


def vision_model(c: Config) -> Module:
    D, P = c.dim("hidden_size"), c.dim("patch_size")
    return module(
        embeddings=module(
            class_embedding=Param((1, 1, D)),
            position_embedding=Param((1, patches(c) + 1, D), drawn=True),
            patch_embedding=Conv(3, D, kernel=(P, P)),
        ),
        encoder=module(layers=repeat(c.dim("num_hidden_layers"), partial(vision_layer, c))),
        post_layernorm=LayerNorm(D),
    )


def vision_layer(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        self_attn=module(qkv=Linear(D, 3 * D), projection=Linear(D, D)),
        layer_norm1=LayerNorm(D),
        mlp=mlp(c),
        layer_norm2=LayerNorm(D),
    )


def text_model(c: Config, vision: Config, *, pooler: bool = False) -> Module:
    """Return a BERT without token types; as a decoder, its layers also attend to the image."""
    across = vision.dim("hidden_size")
    layer = partial(bert.encoder_layer, c, crosses=c.flag("is_decoder"), across=across)
    return module(
        embeddings=bert.embeddings(c, types=False),
        encoder=bert.encoder(c, layer),
        pooler=bert.pooled(c) if pooler else None,
    )


def text_decoder(c: Config, text: Config, vision: Config) -> Submodel:
    """Return a language model; its head is tied if either config ties the embeddings."""
    head = bert.predictions(text, tie=c.flag("tie_word_embeddings"))
    return Submodel(module(bert=text_model(text, vision), cls=module(predictions=head)))


loads("blip", LoadingFacts(positions=True))
