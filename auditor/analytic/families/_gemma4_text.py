"""Gemma 4's language model: layers with two widths of heads, some of which share keys and values.

A layer can also have a separate embedding of every token, and experts next to its feed-forward.
"""

from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Block,
    Buffer,
    Embedding,
    Experts,
    Extra,
    Linear,
    Module,
    Param,
    RMSNorm,
    module,
    stack,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim, dim
from auditor.analytic.families._decoder import (
    KEYS,
    NORMS,
    decoder,
    gated_mlp,
    headed,
    layer_types,
)
from auditor.errors import CheckpointError

# --- kinds of layers: their heads, and whether they have keys and values of their own -------------

_MOST_DIGITS = 8  # the most digits of a layer's number, which may be padded


class Kind(NamedTuple):
    """The properties of a layer that differ between layers."""

    values: bool  # whether there is a value projection; else the keys are also the values
    width: Dim  # the width of a head
    pairs: Dim  # the number of key and value heads
    shared: bool  # whether the layer uses keys and values of an earlier layer


def kinds(c: Config) -> tuple[Kind, ...]:
    types = layer_types(c, lambda n: "full_attention" if not (n + 1) % 6 else "sliding_attention")
    types = (*types[:-1], "full_attention") if types else ()
    sharing = c.integer("num_kv_shared_layers")
    own = len(types) - sharing
    if sharing and types:
        _check_sources(c, types, own)
    is_shared = c.flag("attention_k_eq_v")
    return tuple(
        Kind(not is_shared or kind == "sliding_attention", *heads(c, number, kind), number >= own)
        for number, kind in enumerate(types)
    )


def _check_sources(c: Config, types: tuple[str, ...], own: int) -> None:
    """Raise CheckpointError if a type has no layer with own keys and values to share."""
    sources = types[0:own][::-1]  # as in transformers, a negative number counts from the end
    last = [own - 1 - sources.index(kind) for kind in set(types) if kind in sources]
    if set(sources) != set(types) or not all(-len(types) <= n < len(types) for n in last):
        named = c.dim("num_kv_shared_layers").named
        key = f"{c.path}num_kv_shared_layers"
        raise CheckpointError(f"{named} leaves no layer of some type to share with", key)


def heads(c: Config, number: int, kind: str) -> tuple[Dim, Dim]:
    """Return the width of a layer's heads, and the number of key and value heads.

    transformers writes `per_layer_config`, in which layer 5 of 30 is "05"; older versions had one
    key for all full-attention layers.
    """
    width, pairs = c.dim("head_dim"), c.dim("num_key_value_heads")
    if c.states("per_layer_config"):
        single = c.nested("per_layer_config")
        spellings = (str(number).zfill(digits) for digits in range(_MOST_DIGITS))
        own = single.nested(next((key for key in spellings if key in single.values), str(number)))
        return (
            dim(own.integer("head_dim")) if own.states("head_dim") else width,
            dim(own.integer("num_key_value_heads")) if own.states("num_key_value_heads") else pairs,
        )
    if kind != "full_attention":
        return width, pairs
    fewer = c.optional("num_global_key_value_heads") if c.flag("attention_k_eq_v") else None
    return c.dim("global_head_dim"), fewer or pairs


def attention(c: Config, kind: Kind) -> Module:
    D, H, bias = c.dim("hidden_size"), c.dim("num_attention_heads"), c.flag("attention_bias")
    keys, norm = Linear(D, kind.pairs * kind.width, bias=bias), RMSNorm(kind.width)
    pairs = {"k_proj": keys, "k_norm": norm} | ({"v_proj": keys} if kind.values else {})
    # A sharing layer has no keys, but google/gemma-4-E2B and -E4B store unused ones.
    unread = {name: Extra(block) for name, block in pairs.items()}
    return module(
        q_proj=Linear(D, H * kind.width, bias=bias),
        q_norm=norm,
        **(unread if kind.shared else pairs),
        o_proj=Linear(H * kind.width, D, bias=bias),
    )


_MOST_UNREAD = 1024  # sharing layers that get patterns; the largest model has 60 layers


def unread_patterns(c: Config) -> tuple[str, ...]:
    """Return patterns of tensors that loading skips in layers without own keys and values."""
    shared = [number for number, kind in enumerate(kinds(c)) if kind.shared]
    names = ("k_proj", "v_proj", "k_norm", "v_norm")
    return tuple(
        f"layers.{number}.self_attn.{name}" for number in shared[:_MOST_UNREAD] for name in names
    )


# --- the model ------------------------------------------------------------------------------------

TEXT = Family(
    model_type="gemma4_text",
    prefix="model",
    base="Gemma4TextModel",
    keys=(
        f"{KEYS} head_dim attention_bias attention_k_eq_v layer_types num_kv_shared_layers "
        "use_double_wide_mlp vocab_size_per_layer_input hidden_size_per_layer_input "
        "enable_moe_block num_experts top_k_experts moe_intermediate_size "
        "num_global_key_value_heads per_layer_config"
    ),
    own=MappingProxyType({"global_head_dim": 512}),
    letters=MappingProxyType(
        {
            "top_k_experts": "k",
            "vocab_size_per_layer_input": "V_layer",
            "hidden_size_per_layer_input": "D_layer",
        }
    ),
    unread=unread_patterns,
)


def decoder_layer(c: Config, kind: Kind) -> Module:
    F, norm = c.dim("intermediate_size"), RMSNorm(c.dim("hidden_size"))
    wide = kind.shared and c.flag("use_double_wide_mlp")
    return module(
        self_attn=attention(c, kind),
        mlp=gated_mlp(c, width=2 * F if wide else F, act="hidden_activation"),
        **dict.fromkeys(NORMS, norm),
        layer_scalar=Buffer((1,)),
        **layer_input(c),
        **(experts(c) if c.flag("enable_moe_block") else {}),
    )


def layer_input(c: Config) -> dict[str, Block]:
    """Return the projections of a layer's own token embedding; {} if there is no embedding."""
    D, narrow = c.dim("hidden_size"), c.dim("hidden_size_per_layer_input")
    if not narrow.value:
        return {}
    act = activation(c, "hidden_activation")
    return {
        **({"act_fn": act} if act else {}),
        "per_layer_input_gate": Linear(D, narrow, bias=False),
        "per_layer_projection": Linear(narrow, D, bias=False),
        "post_per_layer_input_norm": RMSNorm(D),
    }


def experts(c: Config) -> dict[str, Block]:
    D, E, F = c.dim("hidden_size"), c.dim("num_experts"), c.dim("moe_intermediate_size")
    fused = module(gate_up_proj=Param((E, 2 * F, D)), down_proj=Param((E, D, F)))
    active = c.optional("top_k_experts")
    return {
        "router": module(
            proj=Linear(D, E, bias=False),
            scale=Param((D,)),
            per_expert_scale=Param((E,)),
        ),
        "experts": Experts(fused, count=E, active=active) if active and E.value > 0 else fused,
        "post_feedforward_layernorm_1": RMSNorm(D),
        "post_feedforward_layernorm_2": RMSNorm(D),
        "pre_feedforward_layernorm_2": RMSNorm(D),
    }


@architecture("Gemma4TextModel", TEXT)
def text_model(c: Config) -> Module:
    D, narrow = c.dim("hidden_size"), c.dim("hidden_size_per_layer_input")
    count, layer_kinds = c.dim("num_hidden_layers"), kinds(c)
    layers = stack(count, layer_kinds.__getitem__, lambda kind: decoder_layer(c, kind))
    model = decoder(c, layers)
    if not narrow.value:
        return model
    V = c.dim("vocab_size_per_layer_input")
    per_layer = module(
        embed_tokens_per_layer=Embedding(V, count * narrow),
        per_layer_model_projection=Linear(D, count * narrow, bias=False),
        per_layer_projection_norm=RMSNorm(narrow),
    )
    return Module((*model.children, *per_layer.children))


architecture("Gemma4ForCausalLM", TEXT)(headed(text_model, "CausalLM"))
