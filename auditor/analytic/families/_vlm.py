"""Modules of vision-language models: the language model's head, and Llava's names on disk."""

from auditor.analytic.blocks import Linear, Module, Submodel, Tied, module
from auditor.analytic.config import Config
from auditor.analytic.family import Renames
from auditor.errors import CheckpointError


def lm_head(text: Config, *, tied: str | None) -> Module:
    """Return the language model's head, tied to the embeddings named `tied` unless None."""
    if tied is not None:
        return module(weight=Tied(tied))
    return Linear(text.dim("hidden_size"), text.dim("vocab_size"), bias=False)


def llava(
    vision: Module,
    projector: Module,
    text: Module,
    lm_head: Module | None = None,
) -> Module:
    """Return a vision tower and a language model, which has its own `model.` prefix on disk."""
    return module(
        vision_tower=Submodel(vision),
        multi_modal_projector=projector,
        language_model=module(model=Submodel(text), lm_head=lm_head),
    )


def llava_head(text: Config, model: Module, *, tied: bool) -> Module:
    """Return the language model's head; raise CheckpointError if tied without `embed_tokens`."""
    if tied and "embed_tokens" not in dict(model.children):
        raise CheckpointError(
            f"tie_word_embeddings is true, but the model of {text.path.rstrip('.')} has no "
            "embed_tokens that its head could share"
        )
    return lm_head(text, tied="language_model.model.embed_tokens.weight" if tied else None)


LLAVA_RENAMES: Renames = (
    ("^language_model.lm_head", "lm_head"),
    ("^language_model", "model.language_model"),
    ("^vision_tower", "model.vision_tower"),
    ("^multi_modal_projector", "model.multi_modal_projector"),
)
LLAVA_MODEL_RENAMES: Renames = (("^language_model.model", "language_model"),)
