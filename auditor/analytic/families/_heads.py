"""The heads of encoders and of GPT: what stands beside a bare model, which has its own prefix."""

from collections.abc import Callable, Mapping

from auditor.analytic.blocks import Legacy, Linear, Module, Param, Tied, Unbuildable, module
from auditor.analytic.catalogue import Builder, Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.parts import activation, dropout, refused

Head = Callable[[Config], Module]


def heads(family: Family, stem: str, bare: Builder, **named: Head) -> None:
    """Register a class for each name, e.g. `Bert` + `ForTokenClassification`."""
    for name, head in named.items():
        architecture(stem + name, family)(_beside(family.prefix, bare, head))


def _beside(prefix: str, bare: Builder, head: Head) -> Builder:
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


def dropped(head: Head, key: str, *others: str) -> Head:
    """The head behind a dropout by that key, or by the next one if it is null."""

    def build(c: Config) -> Module:
        stated = (each for each in (key, *others) if c.attribute(each) is not None)
        share = module(dropout=dropout(c, next(stated, (key, *others)[-1])))
        return Module((*share.children, *head(c).children))

    return build


def behind_any(head: Head, *keys: str) -> Head:
    """The same for keys that may all be null or absent: then the head has no dropout."""
    behind = dropped(head, *keys)

    def build(c: Config) -> Module:
        stated = any(c.attribute(key) is not None for key in keys)
        return behind(c) if stated else head(c)

    return build


def answers(c: Config) -> Module:
    return module(qa_outputs=Linear(c.dim("hidden_size"), c.num_labels))


def summary(c: Config) -> Module:
    """What makes one vector of all those of a text; attention was never written."""
    D, labels = c.dim("hidden_size"), c.num_labels
    width = labels if c.truth("summary_proj_to_labels") and labels.value else D
    attends = c.attribute("summary_type") == "attn"
    reason = f'{c.path}summary_type is "attn", which no version has'
    return module(
        type=refused(c, reason, "summary_type") if attends else None,
        summary=Linear(D, width) if c.truth("summary_use_proj") else None,
        activation=activation(c, "summary_activation") if c.truth("summary_activation") else None,
        first_dropout=_summary_dropout(c, "summary_first_dropout"),
        last_dropout=_summary_dropout(c, "summary_last_dropout"),
    )


def _summary_dropout(c: Config, key: str) -> Unbuildable | None:
    """A dropout that zero or less leaves out."""
    share = c.attribute(key)
    none = isinstance(share, int | float) and not share > 0
    return None if none or not c.has(key) else dropout(c, key)


# --- What GPT and its many relatives share --------------------------------------------------------

# The causal mask of old versions, and their heads.


def causal_mask(positions: Dim) -> Mapping[str, Legacy]:
    """The mask that old versions stored in every attention, and the number it puts there."""
    return {"bias": Legacy((1, 1, positions, positions)), "masked_bias": Legacy(())}


def language_model(embedding: str, *, name: str = "lm_head", bias: bool = False) -> Head:
    """A head that shares the embedding's matrix, by its full name, where the config ties them."""

    def head(c: Config) -> Module:
        D, V = c.dim("hidden_size"), c.dim("vocab_size")
        tied = module(weight=Tied(embedding), bias=Param((V,)) if bias else None)
        return module(**{name: tied if c.flag("tie_word_embeddings") else Linear(D, V, bias=bias)})

    return head


def score(c: Config) -> Module:
    return module(score=Linear(c.dim("hidden_size"), c.num_labels, bias=False))


def span(c: Config) -> Module:
    """Where an answer begins and where it ends."""
    return module(qa_outputs=Linear(c.dim("hidden_size"), 2))
