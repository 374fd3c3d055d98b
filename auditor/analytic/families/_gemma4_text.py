"""Gemma 4 reading: layers of two widths of heads, some of which share keys and values.

A layer can also have an embedding of its own of every token, and experts beside its feed-forward.
"""

from types import MappingProxyType

from auditor.analytic.blocks import (
    Buffer,
    Embedding,
    Experts,
    Linear,
    Module,
    Param,
    RMSNorm,
    module,
    stack,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._decoder import decoder, gated_mlp, headed
from auditor.analytic.families._gemma4 import Kind, attention, kinds, unread
from auditor.analytic.families.gemma2 import NORMS

TEXT = Family(
    model_type="gemma4_text",
    prefix="model",
    base="Gemma4TextModel",
    defaults=MappingProxyType(
        {
            "vocab_size": 262144,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 30,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_global_key_value_heads": None,
            "head_dim": 256,
            "global_head_dim": 512,
            "attention_bias": False,
            "attention_k_eq_v": False,
            "layer_types": None,
            "num_kv_shared_layers": 0,
            "use_double_wide_mlp": False,
            "vocab_size_per_layer_input": 262144,
            "hidden_size_per_layer_input": 256,
            "enable_moe_block": False,
            "num_experts": None,
            "top_k_experts": None,
            "moe_intermediate_size": None,
            "tie_word_embeddings": True,
        }
    ),
    letters=MappingProxyType(
        {
            "top_k_experts": "k",
            "vocab_size_per_layer_input": "V_layer",
            "hidden_size_per_layer_input": "D_layer",
        }
    ),
    unread=unread,
)


def decoder_layer(c: Config, kind: Kind) -> Module:
    F, norm = c.dim("intermediate_size"), RMSNorm(c.dim("hidden_size"))
    wide = kind.shared and c.flag("use_double_wide_mlp")
    return module(
        self_attn=attention(c, kind),
        mlp=gated_mlp(c, width=2 * F if wide else F),
        **dict.fromkeys(NORMS, norm),
        layer_scalar=Buffer((1,)),
        **layer_input(c),
        **(experts(c) if c.flag("enable_moe_block") else {}),
    )


def layer_input(c: Config) -> dict[str, Module]:
    """What a layer does with its own embedding of a token, where it has one."""
    D, narrow = c.dim("hidden_size"), c.dim("hidden_size_per_layer_input")
    if not narrow.value:
        return {}
    return {
        "per_layer_input_gate": Linear(D, narrow, bias=False),
        "per_layer_projection": Linear(narrow, D, bias=False),
        "post_per_layer_input_norm": RMSNorm(D),
    }


def experts(c: Config) -> dict[str, Module | Experts]:
    D, E, F = c.dim("hidden_size"), c.dim("num_experts"), c.dim("moe_intermediate_size")
    fused = module(gate_up_proj=Param((E, 2 * F, D)), down_proj=Param((E, D, F)))
    active = c.optional("top_k_experts")
    return {
        "router": module(
            proj=Linear(D, E, bias=False), scale=Param((D,)), per_expert_scale=Param((E,))
        ),
        "experts": Experts(fused, count=E, active=active) if active else fused,
        "post_feedforward_layernorm_1": RMSNorm(D),
        "post_feedforward_layernorm_2": RMSNorm(D),
        "pre_feedforward_layernorm_2": RMSNorm(D),
    }


@architecture("Gemma4TextModel", TEXT)
def text_model(c: Config) -> Module:
    D, narrow = c.dim("hidden_size"), c.dim("hidden_size_per_layer_input")
    count, each = c.dim("num_hidden_layers"), kinds(c)
    model = decoder(c, stack(count, each.__getitem__, lambda kind: decoder_layer(c, kind)))
    if not narrow.value:
        return model
    per_layer = module(
        embed_tokens_per_layer=Embedding(c.dim("vocab_size_per_layer_input"), count * narrow),
        per_layer_model_projection=Linear(D, count * narrow, bias=False),
        per_layer_projection_norm=RMSNorm(narrow),
    )
    return Module((*model.children, *per_layer.children))


architecture("Gemma4ForCausalLM", TEXT)(headed(text_model, "CausalLM"))
