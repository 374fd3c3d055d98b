"""PaliGemma, https://arxiv.org/abs/2407.07726: SigLIP before a Gemma, connected by one layer."""

from types import MappingProxyType

from auditor.analytic.blocks import Linear, Module, module
from auditor.analytic.catalogue import Family, architecture, base_model, completed_config
from auditor.analytic.config import Config
from auditor.analytic.families._vlm import LLAVA_MODEL_RENAMES, LLAVA_RENAMES, llava, llava_head
from auditor.analytic.family import LoadingFacts, loads

PALIGEMMA = Family(
    model_type="paligemma",
    prefix="model",
    base="PaliGemmaModel",
    keys="projection_dim tie_word_embeddings",
    own=MappingProxyType(
        {
            "vision_config": MappingProxyType(
                {
                    "hidden_size": 1152,
                    "intermediate_size": 4096,
                    "num_hidden_layers": 27,
                    "num_attention_heads": 16,
                    "image_size": 224,
                    "patch_size": 14,
                    "vision_use_head": False,
                }
            ),
            "text_config": MappingProxyType(
                {
                    "vocab_size": 257152,
                    "hidden_size": 2048,
                    "intermediate_size": 16384,
                    "num_hidden_layers": 18,
                    "num_attention_heads": 8,
                    "num_key_value_heads": 1,
                }
            ),
        }
    ),
)


def parts(c: Config) -> tuple[Config, Config]:
    vision = completed_config(c.nested("vision_config"), "siglip_vision_model")
    return vision, completed_config(c.nested("text_config"), "gemma")


def projector(c: Config, vision: Config) -> Module:
    """Return the layer from the vision tower's width to `projection_dim`."""
    return module(linear=Linear(vision.dim("hidden_size"), c.dim("projection_dim")))


@architecture("PaliGemmaModel", PALIGEMMA)
def paligemma_model(c: Config) -> Module:
    vision, text = parts(c)
    return llava(base_model(vision), projector(c, vision), base_model(text))


@architecture("PaliGemmaForConditionalGeneration", PALIGEMMA)
def for_conditional_generation(c: Config) -> Module:
    vision, text = parts(c)
    model = base_model(text)
    head = llava_head(text, model, tied=c.flag("tie_word_embeddings"))
    return llava(base_model(vision), projector(c, vision), model, head)


loads(
    "paligemma",
    LoadingFacts(
        rules=LLAVA_RENAMES,
        inside=(
            ("vision_tower", "vision_config", "siglip_vision_model"),
            ("language_model", "text_config", "gemma"),
        ),
    ),
)
loads("PaliGemmaModel", LoadingFacts(rules=LLAVA_MODEL_RENAMES))
