"""Llama's decoder, with options for the differences of related models.

The decoder has `embed_tokens`, `layers` and `norm`; a layer is norm, attention, norm, gated
feed-forward.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Block,
    Embedding,
    Experts,
    Legacy,
    Linear,
    Module,
    Param,
    Repeat,
    RMSNorm,
    Stack,
    Tied,
    list_indices,
    module,
    repeat,
)
from auditor.analytic.catalogue import Builder, Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.family import Conversions
from auditor.analytic.loading import Operation, Rule
from auditor.errors import CheckpointError

# The keys that shape the tensors of most decoders.
KEYS = (
    "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "num_key_value_heads tie_word_embeddings"
)
# The heads of most decoders; a family with fewer heads has the first ones.
HEADS = ("CausalLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")

# The norms of a layer of Gemma 2 and its successors.
NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)

Norm = Callable[[Dim], Module]


def decoder(
    c: Config,
    layers: Repeat | Stack | Callable[[], Module],
    *,
    norm: Norm = RMSNorm,
) -> Module:
    """Return a decoder of these layers, or of num_hidden_layers layers that `layers` builds."""
    D, V = c.dim("hidden_size"), c.dim("vocab_size")
    if not isinstance(layers, Repeat | Stack):
        layers = repeat(c.dim("num_hidden_layers"), layers)
    return module(
        embed_tokens=Embedding(V, D),
        layers=layers,
        norm=norm(D),
    )


def decoder_of(block: Builder, *, norm: Norm = RMSNorm) -> Builder:
    """Return a builder of a decoder with num_hidden_layers layers that `block` builds."""

    def build(c: Config, /) -> Module:
        return decoder(c, partial(block, c), norm=norm)

    return build


def layer(
    c: Config,
    *,
    self_attn: Module,
    norm: Norm = RMSNorm,
    norms: Collection[str] = ("input_layernorm", "post_attention_layernorm"),
    **feed_forward: Module,
) -> Module:
    """Return a layer; the keyword argument names the feed-forward block, usually `mlp`."""
    D = c.dim("hidden_size")
    return module(self_attn=self_attn, **feed_forward, **{name: norm(D) for name in norms})


def attention(  # noqa: PLR0913 - an option for each difference
    c: Config,
    head_dim: Dim,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: bool = False,
    frequencies: bool = False,
    norms: Mapping[str, Module] = MappingProxyType({}),
) -> Module:
    """Return grouped-query attention: H query heads share K key heads and K value heads.

    `qk_norm` adds a norm of a head's width for queries and one for keys, `norms` adds other norms.
    `frequencies` adds the rotary frequencies that versions up to transformers 4.31 stored.
    """
    D, H, K = c.dim("hidden_size"), c.dim("num_attention_heads"), key_value_heads(c)
    if qk_norm:
        norms = {"q_norm": RMSNorm(head_dim), "k_norm": RMSNorm(head_dim)}
    return module(
        q_proj=Linear(D, H * head_dim, bias=qkv_bias),
        k_proj=Linear(D, K * head_dim, bias=qkv_bias),
        v_proj=Linear(D, K * head_dim, bias=qkv_bias),
        o_proj=Linear(H * head_dim, D, bias=out_bias),
        **norms,
        rotary_emb=module(inv_freq=Legacy((head_dim.ceil(2),))) if frequencies else None,
    )


def key_value_heads(c: Config) -> Dim:
    """Return num_key_value_heads; the number of query heads if the config has null."""
    return c.optional("num_key_value_heads") or c.dim("num_attention_heads")


def layer_types(c: Config, otherwise: Callable[[int], str]) -> tuple[str, ...]:
    """Return the type of each layer: from `layer_types`, or from its number if the list is null."""
    count = list_indices(c.dim("num_hidden_layers"))
    if c.present("layer_types"):
        return c.texts("layer_types", length=len(count))
    return tuple(otherwise(number) for number in count)


def types_of_layers(c: Config) -> tuple[str, ...]:
    """Return `layer_types`; raise CheckpointError if there are fewer types than layers."""
    types, count = c.texts("layer_types"), c.integer("num_hidden_layers")
    if len(types) < count:
        keys = (f"{c.path}layer_types", f"{c.path}num_hidden_layers")
        raise CheckpointError(
            f"{keys[0]} has {len(types)} entries, and {keys[1]} is {count}", *keys
        )
    return types


def head_dim(c: Config) -> Dim:
    """Return the width of a head: `head_dim`, or D/H rounded down if it is null or absent."""
    shared = c.dim("hidden_size").floor(c.dim("num_attention_heads"))
    return (c.optional("head_dim") if c.has("head_dim") else None) or shared


def either_head_dim(c: Config) -> Dim:
    """Return the width of a head: `head_dim`, or D/H rounded down if it is null or zero."""
    stated = c.optional("head_dim")
    if stated is not None and stated.value:
        return stated
    return c.dim("hidden_size").floor(c.dim("num_attention_heads"))


def gated_mlp(
    c: Config, *, width: Dim | None = None, bias: bool = False, act: str | None = "hidden_act"
) -> Module:
    """Return a gated feed-forward; `act` is the key of its activation, None in an expert."""
    D, F = c.dim("hidden_size"), width or c.dim("intermediate_size")
    return module(
        gate_proj=Linear(D, F, bias=bias),
        up_proj=Linear(D, F, bias=bias),
        down_proj=Linear(F, D, bias=bias),
        act_fn=activation(c, act) if act else None,
    )


def fused_mlp(c: Config) -> Module:
    """Return a gated feed-forward with gate and up projection in one matrix, the gate first."""
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(
        gate_up_proj=Linear(D, 2 * F, bias=False),
        down_proj=Linear(F, D, bias=False),
        activation_fn=activation(c),
    )


def gated_experts(c: Config, count: Dim, *, width: Dim | None = None) -> Block:
    """Return `count` gated feed-forwards; each token uses `num_experts_per_tok` of them."""
    return experts(c, count, partial(gated_mlp, c, width=width, act=None))


def experts(c: Config, count: Dim, expert: Callable[[], Module]) -> Block:
    experts_block = repeat(count, expert)
    if count.value < 1:
        return experts_block
    return Experts(experts_block, count=count, active=c.dim("num_experts_per_tok"))


def lm_head(c: Config, *, bias: bool = False) -> Module:
    V = c.dim("vocab_size")
    if c.flag("tie_word_embeddings"):
        return module(weight=Tied("model.embed_tokens.weight"), bias=Param((V,)) if bias else None)
    return Linear(c.dim("hidden_size"), V, bias=bias)


def score(c: Config, *, bias: bool = False) -> Module:
    return Linear(c.dim("hidden_size"), c.num_labels, bias=bias)


# The modules of a class beside the model, by the part of its name after `For`.
_BESIDE: Mapping[str, Callable[[Config], Mapping[str, Block]]] = MappingProxyType(
    {
        "CausalLM": lambda c: {"lm_head": lm_head(c)},
        "SequenceClassification": lambda c: {"score": score(c)},
        "TokenClassification": lambda c: {"score": score(c, bias=True)},
        "QuestionAnswering": lambda c: {"qa_outputs": Linear(c.dim("hidden_size"), 2)},
    }
)


def headed(model: Builder, head: str, prefix: str = "model") -> Builder:
    """Return a builder of the model under its prefix, with the named head."""

    def build(c: Config) -> Module:
        return module(**{prefix: model(c)}, **_BESIDE[head](c))

    return build


def register(
    family: Family,
    stem: str,
    model: Builder,
    *,
    heads: Collection[str] = HEADS,
    qa: Family | None = None,
) -> None:
    """Register a family's classes: the model, and the model with each head (by default four).

    `qa` is the family of question answering, if its prefix is not the model's.
    """
    architecture(f"{stem}Model", family)(model)
    for head in heads:
        at = qa if qa and head == "QuestionAnswering" else family
        architecture(f"{stem}For{head}", at)(headed(model, head, at.prefix))


# --- Experts that transformers 5 fuses when it loads them -----------------------------------------

# On disk, each expert is stored separately.

_STACKED = Operation("MergeModulelist")  # adds an axis of experts in front
_ABOVE = Operation("Concatenate", axes=(1,))  # the gate above the up projection, in each expert


def fused_experts(gate: str, up: str, down: str, module: str) -> Conversions:
    """Return the conversions that fuse a layer's experts into (E, 2F, D) and (E, D, F)."""
    sources = [f"{module}.*.{name}.weight" for name in (gate, up, down)]
    return (
        Rule((sources[0], sources[1]), (f"{module}.gate_up_proj",), operations=(_STACKED, _ABOVE)),
        Rule((sources[2],), (f"{module}.down_proj",), operations=(_STACKED,)),
    )


FUSED_EXPERTS = fused_experts("gate_proj", "up_proj", "down_proj", "mlp.experts")
