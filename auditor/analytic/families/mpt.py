"""MPT, of whose options transformers builds one choice: no biases, no learned positions."""

from functools import partial
from typing import Any

from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Unbuildable,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules
from auditor.analytic.config_classes.base import settled_part
from auditor.analytic.config_classes.declarations import SubConfig
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import (
    behind_any,
    heads,
    labelled,
    language_model,
    score,
    span,
)
from auditor.analytic.parts import dropout, refused, shares

MPT = Family(
    model_type="mpt",
    taken_over=True,
    prefix="transformer",
    base="MptModel",
    keys="vocab_size d_model n_layers n_heads tie_word_embeddings",
)


@architecture("MptModel", MPT)
def mpt_model(c: Config) -> Module:
    D = c.dim("d_model")
    return module(
        wte=Embedding(c.dim("vocab_size"), D),
        blocks=repeat(c.dim("n_layers"), partial(block, c)),
        norm_f=LayerNorm(D, bias=False),
    )


def block(c: Config) -> Module:
    """`expansion_ratio` is not read: the feed-forward is four times as wide as the model."""
    D, H, own = c.dim("d_model"), c.dim("n_heads"), c.nested("attn_config")
    scale = own.attribute("softmax_scale")
    attention = module(
        heads=shares(c, D, H, even=False, scale="none"),
        scale=rooted(c, D, H) if scale is None else None,
        Wqkv=Linear(D, 3 * D, bias=False),
        out_proj=Linear(D, D, bias=False),
    )
    return module(
        norm_1=LayerNorm(D, bias=False),
        attn=attention,
        resid_attn_dropout=dropout(own, "attn_pdrop"),
        norm_2=LayerNorm(D, bias=False),
        ffn=module(up_proj=Linear(D, 4 * D, bias=False), down_proj=Linear(4 * D, D, bias=False)),
    )


def rooted(c: Config, width: Dim, by: Dim) -> Unbuildable | None:
    """Attention is scaled by 1 / sqrt(D/H), where nothing else is said."""
    if width.value * by.value > 0:
        return None
    reason = f"attention cannot be scaled by the root of {width.named} over {by.named}"
    return refused(c, reason, "d_model", "n_heads")


def first(config: Settled, others: dict[str, Any]) -> None:
    del others
    part = SubConfig("MptAttentionConfig", "", {}, optional=False)
    config.values["attn_config"] = settled_part(config, "attn_config", part, config["attn_config"])


config_rules("MptConfig", first=first)

heads(
    MPT,
    "Mpt",
    mpt_model,
    ForCausalLM=language_model("transformer.wte.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=behind_any(labelled, "classifier_dropout", "hidden_dropout"),
    ForQuestionAnswering=span,
)
