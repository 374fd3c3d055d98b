"""Llava, https://arxiv.org/abs/2304.08485: any vision tower with any language model."""

from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import Linear, Module, module
from auditor.analytic.catalogue import Family, architecture, base_model, completed_config
from auditor.analytic.config import Config
from auditor.analytic.families._vlm import LLAVA_MODEL_RENAMES, LLAVA_RENAMES, llava, llava_head
from auditor.analytic.family import LoadingFacts, loads

LLAVA = Family(
    model_type="llava",
    prefix="model",
    base="LlavaModel",
    keys="vision_feature_layer multimodal_projector_bias tie_word_embeddings",
    own=MappingProxyType(
        {
            "vision_config": MappingProxyType(
                {
                    "hidden_size": 1024,
                    "intermediate_size": 4096,
                    "num_hidden_layers": 24,
                    "num_attention_heads": 16,
                    "image_size": 336,
                    "patch_size": 14,
                }
            )
        }
    ),
)


def parts(c: Config) -> tuple[Config, Config]:
    vision = completed_config(c.nested("vision_config"), "clip_vision_model")
    return vision, completed_config(c.nested("text_config"), "llama")


@architecture("LlavaModel", LLAVA)
def llava_model(c: Config) -> Module:
    vision, text = parts(c)
    return llava(base_model(vision), projector(c, vision, text), base_model(text))


@architecture("LlavaForConditionalGeneration", LLAVA)
def for_conditional_generation(c: Config) -> Module:
    vision, text = parts(c)
    model = base_model(text)
    tied = c.flag("tie_word_embeddings") or text.flag("tie_word_embeddings")
    head = llava_head(text, model, tied=tied)
    return llava(base_model(vision), projector(c, vision, text), model, head)


def projector(c: Config, vision: Config, text: Config) -> Module:
    """Return the projector: two layers, on the joined outputs of some vision layers."""
    inputs, D = (
        c.length("vision_feature_layer") * vision.dim("hidden_size"),
        text.dim("hidden_size"),
    )
    bias = c.flag("multimodal_projector_bias")
    return module(
        linear_1=Linear(inputs, D, bias=bias),
        act=activation(c, "projector_hidden_act"),
        linear_2=Linear(D, D, bias=bias),
    )


loads(
    "llava",
    LoadingFacts(
        rules=LLAVA_RENAMES,
        inside=(
            ("vision_tower", "vision_config", "clip_vision_model"),
            ("language_model", "text_config", "llama"),
        ),
    ),
)
loads("LlavaModel", LoadingFacts(rules=LLAVA_MODEL_RENAMES))
