"""Modules of the text and image towers of CLIP and related models."""

from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    module,
    repeat,
)
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.family import LoadingFacts, loads


def text_embeddings(c: Config, *, position_ids: Legacy | None = None) -> Module:
    D = c.dim("hidden_size")
    return module(
        position_ids=position_ids,
        token_embedding=Embedding(c.dim("vocab_size"), D),
        position_embedding=Embedding(c.dim("max_position_embeddings"), D),
    )


def patches(c: Config) -> Dim:
    """Return the number of patches of a square image."""
    side = c.dim("image_size").floor(c.dim("patch_size"))
    return side * side


def encoder(c: Config) -> Module:
    return module(layers=repeat(c.dim("num_hidden_layers"), partial(layer, c)))


def layer(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        self_attn=attention(c),
        layer_norm1=LayerNorm(D),
        mlp=mlp(c),
        layer_norm2=LayerNorm(D),
    )


def attention(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        k_proj=Linear(D, D),
        v_proj=Linear(D, D),
        q_proj=Linear(D, D),
        out_proj=Linear(D, D),
    )


def mlp(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(activation_fn=activation(c), fc1=Linear(D, F), fc2=Linear(F, D))


def classifier(c: Config, vision: Config) -> Module | None:
    labels = c.num_labels
    return Linear(vision.dim("hidden_size"), labels) if labels.value > 0 else None


def load_two_towers(model_type: str, name: str) -> None:
    """Declare how the classes whose names begin with `name` load a text and an image tower."""
    text, vision = f"{model_type}_text_model", f"{model_type}_vision_model"
    towers = (("text_model", "text_config", text), ("vision_model", "vision_config", vision))
    loads(model_type, LoadingFacts(inside=towers))
    loads(text, LoadingFacts(positions=True))
    loads(vision, LoadingFacts(positions=True))
    loads(f"{name}TextModel", LoadingFacts(rules=((r"^text_model\.(.+)", r"\1"),)))
    loads(f"{name}VisionModel", LoadingFacts(rules=((r"^vision_model\.(.+)", r"\1"),)))
    loads(f"{name}ForImageClassification", LoadingFacts(only=("vision_model",)))
