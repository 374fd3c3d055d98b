"""The heads of encoders and of GPT, on a base model that has its own prefix."""

from collections.abc import Callable, Mapping

from auditor.analytic.activations import activation
from auditor.analytic.blocks import Legacy, Linear, Module, Param, Tied, module
from auditor.analytic.catalogue import Builder, Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim

Head = Callable[[Config], Module]


def heads(family: Family, stem: str, bare: Builder, **named: Head) -> None:
    """Register a class for each keyword, e.g. `Bert` + `ForTokenClassification`."""
    for name, head in named.items():
        architecture(stem + name, family)(_with_head(family.prefix, bare, head))


def _with_head(prefix: str, bare: Builder, head: Head) -> Builder:
    def build(c: Config, /) -> Module:
        return Module(((prefix, bare(c)), *head(c).children))

    return build


def labelled(c: Config) -> Module:
    return module(classifier=Linear(c.dim("hidden_size"), c.num_labels))


def dense_labelled(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(classifier=module(dense=Linear(D, D), out_proj=Linear(D, c.num_labels)))


def choice(c: Config) -> Module:
    return module(classifier=Linear(c.dim("hidden_size"), 1))


def answers(c: Config) -> Module:
    return module(qa_outputs=Linear(c.dim("hidden_size"), c.num_labels))


def summary(c: Config) -> Module:
    """Return the layer that combines the vectors of all tokens into one vector."""
    D, labels = c.dim("hidden_size"), c.num_labels
    width = labels if c.truth("summary_proj_to_labels") and labels.value else D
    return module(
        summary=Linear(D, width) if c.truth("summary_use_proj") else None,
        activation=activation(c, "summary_activation") if c.truth("summary_activation") else None,
    )


# --- Shared by GPT and related models -------------------------------------------------------------

# The causal mask that old versions stored, and the heads.


def causal_mask(positions: Dim) -> Mapping[str, Legacy]:
    """Return the causal mask and its fill value, which old versions stored in each attention."""
    return {"bias": Legacy((1, 1, positions, positions)), "masked_bias": Legacy(())}


def language_model(embedding: str, *, name: str = "lm_head", bias: bool = False) -> Head:
    """Return a head, tied to the matrix with the full name `embedding` if the config ties it."""

    def head(c: Config) -> Module:
        D, V = c.dim("hidden_size"), c.dim("vocab_size")
        tied = module(weight=Tied(embedding), bias=Param((V,)) if bias else None)
        return module(**{name: tied if c.flag("tie_word_embeddings") else Linear(D, V, bias=bias)})

    return head


def score(c: Config) -> Module:
    return module(score=Linear(c.dim("hidden_size"), c.num_labels, bias=False))


def span(c: Config) -> Module:
    """Return the question answering head, for the start and the end of an answer."""
    return module(qa_outputs=Linear(c.dim("hidden_size"), 2))
