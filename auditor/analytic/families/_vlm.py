"""Modules of models with images before a language model: the head, and Llava's names on disk."""

from auditor.analytic.blocks import Linear, Module, Submodel, Tied, module
from auditor.analytic.config import Config
from auditor.analytic.family import Renames
from auditor.errors import CheckpointError


def lm_head(text: Config, *, tied: str | None) -> Module:
    """Return the language model's head; `tied` is the name of the embeddings it shares, if any."""
    if tied is not None:
        return module(weight=Tied(tied))
    return Linear(text.dim("hidden_size"), text.dim("vocab_size"), bias=False)


def llava(
    vision: Module,
    projector: Module,
    text: Module,
    lm_head: Module | None = None,
) -> Module:
    """Return two towers; on disk the language model keeps its `model.`, next to the head."""
    return module(
        vision_tower=Submodel(vision),
        multi_modal_projector=projector,
        language_model=module(model=Submodel(text), lm_head=lm_head),
    )


def llava_head(text: Config, model: Module, *, tied: bool) -> Module:
    """Return the head of a language model, whose embeddings must have Llama's name to be tied."""
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
