"""GPT-Neo, whose every other layer looks at a window only: the tensors are the same."""

from collections.abc import Iterable
from functools import partial
from itertools import islice
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
from auditor.analytic.config_classes import Settled, config_rules, layers
from auditor.analytic.families._heads import (
    causal_mask,
    dropped,
    heads,
    labelled,
    language_model,
    score,
    span,
)
from auditor.analytic.parts import activation, dropout, refused, shares, unstored
from auditor.messages import described

GPT_NEO = Family(
    model_type="gpt_neo",
    prefix="transformer",
    base="GPTNeoModel",
    keys=(
        "vocab_size max_position_embeddings hidden_size num_layers num_heads "
        "intermediate_size tie_word_embeddings"
    ),
)


@architecture("GPTNeoModel", GPT_NEO)
def gpt_neo_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        wte=Embedding(c.dim("vocab_size"), D),
        wpe=Embedding(c.dim("max_position_embeddings"), D),
        drop=dropout(c, "embed_dropout"),
        h=repeat(c.dim("num_layers"), partial(block, c)),
        ln_f=LayerNorm(D),
    )


def block(c: Config) -> Module:
    D = c.dim("hidden_size")
    F = c.optional("intermediate_size") or 4 * D
    return module(
        ln_1=LayerNorm(D),
        attn=module(attention=attention(c)),
        ln_2=LayerNorm(D),
        mlp=module(
            c_fc=Linear(D, F),
            c_proj=Linear(F, D),
            act=activation(c, "activation_function"),
            dropout=dropout(c, "resid_dropout"),
        ),
    )


def attention(c: Config) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_heads")
    L = c.dim("max_position_embeddings")
    return module(
        **causal_mask(L),  # up to transformers 4.30
        mask=unstored(c, L, L, width=1),
        kinds=kinds(c),
        heads=shares(c, D, H, scale="none"),
        attn_dropout=dropout(c, "attention_dropout"),
        resid_dropout=dropout(c, "resid_dropout"),
        k_proj=Linear(D, D, bias=False),
        v_proj=Linear(D, D, bias=False),
        q_proj=Linear(D, D, bias=False),
        out_proj=Linear(D, D),
    )


# --- the kinds of layers -----------------------------------------------------------------------

_LAYERS = "attention_layers"
_TYPES = "attention_types"


def kinds(c: Config) -> Unbuildable | None:
    """Layers see all that came before, or no farther than a window, which 64 bits can count."""
    each = c.attribute(_LAYERS) or ()
    if unknown := [kind for kind in each if kind not in ("global", "local")]:
        what = f"{c.path}{_LAYERS} has {described(unknown[0])}"
        return refused(c, f'{what}, expected "global" or "local"', _TYPES)
    if "local" in each and abs(c.attribute("window_size")) >= 2**63:
        return refused(c, f"{c.path}window_size is more than torch can count", "window_size")
    return None


def expanded_kinds(config: Settled, others: dict[str, Any]) -> None:
    """`attention_types` says how many times each list of kinds is repeated."""
    if config[_TYPES] is None:
        config.set(_TYPES, [[["global", "local"], 12]])
    with config.working_with(_TYPES):
        every = (kind for each in config[_TYPES] for kind in _repeated(each[0], each[1]))
        expanded = list(islice(every, layers.MOST + 1))
        if len(expanded) > layers.MOST:
            raise ValueError(f"more than {layers.MOST:,} layers")
        config.set(_LAYERS, expanded)
    others.pop(_LAYERS, None)


def _repeated(kinds: Iterable[Any], times: int) -> Iterable[Any]:
    return (kind for _ in range(times) for kind in kinds)


def one_a_layer(config: Settled, others: dict[str, Any]) -> None:
    del others
    count = len(config.get(_LAYERS, ()))
    if _LAYERS in config and count != config["num_layers"]:
        implied = f"{config.path}{_TYPES} implies {count} layers"
        config.refuse(f"{implied}, and {config.shown('num_layers')}", _TYPES, "num_layers")


config_rules("GPTNeoConfig", first=expanded_kinds, architecture=one_a_layer)

heads(
    GPT_NEO,
    "GPTNeo",
    gpt_neo_model,
    ForCausalLM=language_model("transformer.wte.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=dropped(labelled, "classifier_dropout"),
    ForQuestionAnswering=span,
)
