"""What Gemma 4 sees with. Its linear layers may store bounds between which they clip."""

from functools import partial
from types import MappingProxyType

from auditor.analytic.blocks import Buffer, Linear, Module, Param, RMSNorm, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._decoder import head_dim, layer
from auditor.analytic.families.gemma2 import NORMS
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import activation, groups
from auditor.analytic.rotation import axial_rotation

VISION = Family(
    model_type="gemma4_vision",
    prefix="model",
    base="Gemma4VisionModel",
    keys=(
        "hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads head_dim patch_size position_embedding_size use_clipped_linears "
        "standardize"
    ),
    letters=MappingProxyType({"position_embedding_size": "L"}),
)


def clipped(c: Config, inputs: Dim, outputs: Dim) -> Module:
    bound = Buffer(()) if c.flag("use_clipped_linears") else None
    return module(
        linear=Linear(inputs, outputs, bias=False),
        input_min=bound,
        input_max=bound,
        output_min=bound,
        output_max=bound,
    )


@architecture("Gemma4VisionModel", VISION)
def vision_model(c: Config) -> Module:
    D, P = c.dim("hidden_size"), c.dim("patch_size")
    scale = Buffer((D,)) if c.flag("standardize") else None
    return module(
        patch_embedder=module(
            input_proj=Linear(3 * P * P, D, bias=False),
            position_embedding_table=Param((2, c.dim("position_embedding_size"), D)),
        ),
        encoder=module(
            layers=repeat(c.dim("num_hidden_layers"), partial(vision_layer, c)),
            rotary_emb=axial_rotation(c),
        ),
        std_bias=scale,
        std_scale=scale,
    )


def vision_layer(c: Config) -> Module:
    return layer(c, self_attn=vision_attention(c), norms=NORMS, mlp=vision_mlp(c))


def vision_attention(c: Config) -> Module:
    D, H, K = c.dim("hidden_size"), c.dim("num_attention_heads"), c.dim("num_key_value_heads")
    width = head_dim(c)
    return module(
        groups=groups(c, H, K),
        q_proj=clipped(c, D, H * width),
        k_proj=clipped(c, D, K * width),
        v_proj=clipped(c, D, K * width),
        o_proj=clipped(c, H * width, D),
        q_norm=RMSNorm(width),
        k_norm=RMSNorm(width),
    )


def vision_mlp(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    gate, down = clipped(c, D, F), clipped(c, F, D)
    act = activation(c, "hidden_activation")
    return module(gate_proj=gate, up_proj=gate, down_proj=down, act_fn=act)


loads("gemma4_vision", LoadingFacts(rotary=True))
