"""DINOv2, https://arxiv.org/abs/2304.07193: a ViT with scaled layers, trained without labels.

Registers, https://arxiv.org/abs/2309.16588, are further tokens that the model learns.
"""

from functools import partial

from auditor.analytic.activations import activation
from auditor.analytic.blocks import LayerNorm, Linear, Module, Param, module, repeat
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._vision import classifier, patches, projection
from auditor.analytic.families.vit import attention
from auditor.analytic.family import LoadingFacts, Renames, loads
from auditor.analytic.loading import Operation, Rule

DINOV2 = Family(
    model_type="dinov2",
    prefix="dinov2",
    base="Dinov2Model",
    keys=(
        "hidden_size num_hidden_layers num_attention_heads mlp_ratio image_size patch_size "
        "num_channels qkv_bias use_swiglu_ffn use_mask_token"
    ),
)
WITH_REGISTERS = Family(
    model_type="dinov2_with_registers",
    prefix="dinov2_with_registers",
    base="Dinov2WithRegistersModel",
    keys=(
        "hidden_size num_hidden_layers num_attention_heads mlp_ratio image_size patch_size "
        "num_channels qkv_bias use_swiglu_ffn num_register_tokens"
    ),
)


@architecture("Dinov2Backbone", DINOV2)
@architecture("Dinov2Model", DINOV2)
def dinov2_model(c: Config) -> Module:
    return model(c, mask=c.flag("use_mask_token"))


@architecture("Dinov2WithRegistersBackbone", WITH_REGISTERS)
@architecture("Dinov2WithRegistersModel", WITH_REGISTERS)
def with_registers(c: Config) -> Module:
    return model(c, mask=True, registers=c.dim("num_register_tokens"))


def model(c: Config, *, mask: bool, registers: Dim | None = None) -> Module:
    D = c.dim("hidden_size")
    return module(
        embeddings=module(
            cls_token=Param((1, 1, D)),
            mask_token=Param((1, D)) if mask else None,
            register_tokens=None if registers is None else Param((1, registers, D)),
            position_embeddings=Param((1, patches(c) + 1, D), drawn=True),
            patch_embeddings=module(projection=projection(c, D)),
        ),
        encoder=module(layer=repeat(c.dim("num_hidden_layers"), partial(encoder_layer, c))),
        layernorm=LayerNorm(D),
    )


def encoder_layer(c: Config) -> Module:
    return scaled_layer(c, attention(c), gated_mlp(c) if c.flag("use_swiglu_ffn") else mlp(c))


def scaled_layer(c: Config, attention: Module, mlp: Module) -> Module:
    """Return a layer of a ViT that scales what attention and feed-forward add."""
    D = c.dim("hidden_size")
    scale = module(lambda1=Param((D,)))
    return module(
        norm1=LayerNorm(D),
        attention=attention,
        layer_scale1=scale,
        norm2=LayerNorm(D),
        mlp=mlp,
        layer_scale2=scale,
    )


def mlp(c: Config) -> Module:
    D = c.dim("hidden_size")
    F = c.integer("mlp_ratio") * D
    return module(fc1=Linear(D, F), fc2=Linear(F, D), activation_fn=activation(c))


def gated_mlp(c: Config) -> Module:
    """Return a gated feed-forward of two thirds of the width, rounded up to a multiple of 8."""
    D = c.dim("hidden_size")
    F = 8 * (2 * c.integer("mlp_ratio") * D).floor(3).ceil(8)
    return module(weights_in=Linear(D, 2 * F), weights_out=Linear(F, D))


@architecture("Dinov2ForImageClassification", DINOV2)
def for_image_classification(c: Config) -> Module:
    return module(dinov2=dinov2_model(c), classifier=head(c))


@architecture("Dinov2WithRegistersForImageClassification", WITH_REGISTERS)
def for_image_classification_with_registers(c: Config) -> Module:
    return module(dinov2_with_registers=with_registers(c), classifier=head(c))


def head(c: Config) -> Module | None:
    return classifier(c, 2 * c.dim("hidden_size"))  # the class token and the mean of the rest


_RENAMES: Renames = (
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("mlp.weights_out", "mlp.down_proj"),
)
_HALVES = Operation("Chunk")
_SWIGLU = tuple(
    Rule(
        (f"mlp.weights_in.{kind}",),
        (f"mlp.gate_proj.{kind}", f"mlp.up_proj.{kind}"),
        operations=(_HALVES,),
    )
    for kind in ("weight", "bias")
)
for _name in ("Dinov2", "Dinov2WithRegisters"):
    loads(f"{_name}Backbone", LoadingFacts(rules=(*_RENAMES, *_SWIGLU), base_path=None))
    loads(f"{_name}Model", LoadingFacts(rules=(*_RENAMES, *_SWIGLU)))
