"""Gemma 4, which may see, and may hear."""

from auditor.analytic.blocks import Linear, Module, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._gemma4_text import TEXT, text_model
from auditor.analytic.families._vlm import lm_head
from auditor.analytic.families.gemma4_audio import AUDIO, audio_model
from auditor.analytic.families.gemma4_vision import VISION, vision_model
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import generates

GEMMA4 = Family(
    model_type="gemma4",
    prefix="model",
    base="Gemma4Model",
    keys="vision_config audio_config tie_word_embeddings",
)


@architecture("Gemma4Model", GEMMA4)
def gemma4_model(c: Config) -> Module:
    D = c.nested("text_config", TEXT).dim("hidden_size")
    seen = c.nested("vision_config", VISION) if c.present("vision_config") else None
    heard = c.nested("audio_config", AUDIO) if c.present("audio_config") else None
    return module(
        vision_tower=vision_model(seen) if seen else None,
        language_model=text_model(c.nested("text_config", TEXT)),
        audio_tower=audio_model(heard) if heard else None,
        embed_vision=embedder(seen.dim("hidden_size"), D) if seen else None,
        embed_audio=embedder(heard.dim("output_proj_dims"), D) if heard else None,
    )


def embedder(inputs: Dim, outputs: Dim) -> Module:
    return module(embedding_projection=Linear(inputs, outputs, bias=False))


@architecture("Gemma4ForConditionalGeneration", GEMMA4)
def for_conditional_generation(c: Config) -> Module:
    tied = "model.language_model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    head = lm_head(c.nested("text_config", TEXT), tied=tied)
    return module(model=gemma4_model(c), lm_head=head, generation=generates(c))


loads(
    "gemma4",
    LoadingFacts(
        inside=(
            ("vision_tower", "vision_config", "gemma4_vision"),
            ("language_model", "text_config", "gemma4_text"),
        ),
    ),
)
