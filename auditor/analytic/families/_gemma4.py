"""How the layers of Gemma 4 differ: in their heads, and in having keys and values of their own."""

from typing import NamedTuple

from auditor.analytic.blocks import Extra, Linear, Module, RMSNorm, module
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim, dim
from auditor.analytic.families._decoder import layer_types
from auditor.analytic.parts import groups
from auditor.errors import CheckpointError

_MOST_DIGITS = 8  # of the number of a layer, as it may be padded


class Kind(NamedTuple):
    """In what layers differ."""

    values: bool  # has values of its own; else the keys are the values, too
    width: Dim  # of a head
    pairs: Dim  # heads of keys and values
    shared: bool  # takes keys and values from an earlier layer


def kinds(c: Config) -> tuple[Kind, ...]:
    types = layer_types(c, lambda n: "full_attention" if not (n + 1) % 6 else "sliding_attention")
    types = (*types[:-1], "full_attention") if types else ()
    sharing = c.integer("num_kv_shared_layers")
    own = len(types) - sharing
    if sharing and types:
        _check_sources(c, types, own)
    same = c.flag("attention_k_eq_v")
    return tuple(
        Kind(not same or kind == "sliding_attention", *heads(c, number, kind), number >= own)
        for number, kind in enumerate(types)
    )


def _check_sources(c: Config, types: tuple[str, ...], own: int) -> None:
    """Of each type the last layer with keys and values of its own is there for the others."""
    sources = types[0:own][::-1]  # counted as transformers counts, from the end where below zero
    last = [own - 1 - sources.index(kind) for kind in set(types) if kind in sources]
    if set(sources) != set(types) or not all(-len(types) <= n < len(types) for n in last):
        named = c.dim("num_kv_shared_layers").named
        key = f"{c.path}num_kv_shared_layers"
        raise CheckpointError(f"{named} leaves no layer of some type to share with", key)


def heads(c: Config, number: int, kind: str) -> tuple[Dim, Dim]:
    """The width of a layer's heads, and how many there are for keys and values.

    transformers writes `per_layer_config`, where layer 5 of 30 is "05"; before there were keys for
    all layers that see far.
    """
    width, pairs = c.dim("head_dim"), c.dim("num_key_value_heads")
    if c.states("per_layer_config"):
        single = c.nested("per_layer_config")
        spelt = (str(number).zfill(digits) for digits in range(_MOST_DIGITS))
        own = single.nested(next((key for key in spelt if key in single.values), str(number)))
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
    # A layer that shares has no keys, but google/gemma-4-E2B and -E4B store some, which are unused.
    unread = {name: Extra(block) for name, block in pairs.items()}
    return module(
        groups=groups(c, H, kind.pairs),
        q_proj=Linear(D, H * kind.width, bias=bias),
        q_norm=norm,
        **(unread if kind.shared else pairs),
        o_proj=Linear(H * kind.width, D, bias=bias),
    )


_MOST_UNREAD = 1024  # layers whose unused tensors loading leaves out; the largest model has 60


def unread_patterns(c: Config) -> tuple[str, ...]:
    """What loading leaves out of a layer that has no keys and values of its own."""
    shared = [number for number, kind in enumerate(kinds(c)) if kind.shared]
    names = ("k_proj", "v_proj", "k_norm", "v_norm")
    return tuple(
        f"layers.{number}.self_attn.{name}" for number in shared[:_MOST_UNREAD] for name in names
    )
