"""DINOv3's ViT, https://arxiv.org/abs/2508.10104: positions are rotated, and so are not stored."""

from auditor.analytic.activations import activation
from auditor.analytic.blocks import LayerNorm, Linear, Module, Param, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._vision import projection
from auditor.analytic.families.dinov2 import scaled_layer
from auditor.analytic.family import LoadingFacts, loads

DINOV3 = Family(
    model_type="dinov3_vit",
    prefix="model",
    base="DINOv3ViTModel",
    keys=(
        "hidden_size num_hidden_layers num_attention_heads intermediate_size patch_size "
        "num_channels query_bias key_bias value_bias proj_bias mlp_bias use_gated_mlp "
        "num_register_tokens"
    ),
)


@architecture("DINOv3ViTBackbone", DINOV3)
@architecture("DINOv3ViTModel", DINOV3)
def dinov3_vit_model(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        embeddings=module(
            cls_token=Param((1, 1, D)),
            mask_token=Param((1, 1, D)),
            register_tokens=Param((1, c.dim("num_register_tokens"), D)),
            patch_embeddings=projection(c, D),
        ),
        layer=repeat(c.dim("num_hidden_layers"), lambda: scaled_layer(c, attention(c), mlp(c))),
        norm=LayerNorm(D),
    )


def attention(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(
        k_proj=Linear(D, D, bias=c.flag("key_bias")),
        v_proj=Linear(D, D, bias=c.flag("value_bias")),
        q_proj=Linear(D, D, bias=c.flag("query_bias")),
        o_proj=Linear(D, D, bias=c.flag("proj_bias")),
    )


def mlp(c: Config) -> Module:
    D, F, bias = c.dim("hidden_size"), c.dim("intermediate_size"), c.flag("mlp_bias")
    return module(
        gate_proj=Linear(D, F, bias=bias) if c.flag("use_gated_mlp") else None,
        up_proj=Linear(D, F, bias=bias),
        down_proj=Linear(F, D, bias=bias),
        act_fn=activation(c),
    )


loads("dinov3_vit", LoadingFacts(rules=((r"(?<!model\.)layer.", "model.layer."),)))
