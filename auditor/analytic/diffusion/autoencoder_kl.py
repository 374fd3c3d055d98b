"""AutoencoderKL of diffusers: the VAE of Stable Diffusion; Flux leaves out both quant_convs."""

from types import MappingProxyType

from auditor.analytic.blocks import Conv, Module, module, sequential
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import (
    LibraryForm,
    counts_by_block,
    kinds_by_block,
    outside,
    size,
    widths,
)
from auditor.analytic.diffusion.layers import (
    GroupNorm,
    biased_attention,
    layers_of,
    resnet,
    sampler,
)
from auditor.analytic.dims import Dim
from auditor.analytic.family import Family
from auditor.analytic.loading import Loading, Rule

AUTOENCODER = Family(
    model_type="AutoencoderKL",
    prefix="",
    base="AutoencoderKL",
    letters=MappingProxyType({"latent_channels": "Z"}),
    own=MappingProxyType(
        {
            "in_channels": 3,
            "out_channels": 3,
            "down_block_types": ("DownEncoderBlock2D",),
            "up_block_types": ("UpDecoderBlock2D",),
            "block_out_channels": (64,),
            "layers_per_block": 1,
            "act_fn": "silu",
            "latent_channels": 4,
            "norm_num_groups": 32,
            "sample_size": 32,
            "scaling_factor": 0.18215,
            "shift_factor": None,
            "latents_mean": None,
            "latents_std": None,
            "force_upcast": True,
            "use_quant_conv": True,
            "use_post_quant_conv": True,
            "mid_block_add_attention": True,
        }
    ),
)


def mid_block(c: Config) -> Module:
    W = widths(c, "block_out_channels")[-1]
    has_attention = c.flag("mid_block_add_attention")
    return module(
        attentions=sequential(biased_attention(W)) if has_attention else None,
        resnets=layers_of([resnet(W, W)] * 2),
    )


def _resnets(inputs: Dim, outputs: Dim, layers: int) -> list[Module]:
    first, further = resnet(inputs, outputs), resnet(outputs, outputs)
    return [first, *[further] * (layers - 1)][:layers]


def encoder(c: Config, layers: int) -> Module:
    channels = widths(c, "block_out_channels")
    count = len(channels)
    kinds_by_block(c, "down_block_types", count, frozenset({"DownEncoderBlock2D"}))
    inputs = (channels[0], *channels)
    blocks = [
        module(
            resnets=layers_of(_resnets(inputs[i], W, layers)),
            downsamplers=sampler(W) if i < count - 1 else None,
        )
        for i, W in enumerate(channels)
    ]
    return module(
        conv_in=Conv(size(c, "in_channels"), channels[0], (3, 3)),
        down_blocks=layers_of(blocks),
        mid_block=mid_block(c),
        conv_norm_out=GroupNorm(channels[-1]),
        conv_out=Conv(channels[-1], 2 * size(c, "latent_channels"), (3, 3)),
    )


def decoder(c: Config, layers: int) -> Module:
    channels = widths(c, "block_out_channels")[::-1]
    count = len(channels)
    kinds_by_block(c, "up_block_types", count, frozenset({"UpDecoderBlock2D"}))
    inputs = (channels[0], *channels)
    blocks = [
        module(
            resnets=layers_of(_resnets(inputs[i], W, layers + 1)),
            upsamplers=sampler(W) if i < count - 1 else None,
        )
        for i, W in enumerate(channels)
    ]
    return module(
        conv_in=Conv(size(c, "latent_channels"), channels[0], (3, 3)),
        up_blocks=layers_of(blocks),
        mid_block=mid_block(c),
        conv_norm_out=GroupNorm(channels[-1]),
        conv_out=Conv(channels[-1], size(c, "out_channels"), (3, 3)),
    )


def autoencoder_kl(c: Config) -> Module:
    if c.attribute("norm_num_groups") is None:
        raise outside(c, "norm_num_groups")
    [layers] = counts_by_block(c, "layers_per_block", 1)
    Z = size(c, "latent_channels")
    return module(
        encoder=encoder(c, layers),
        decoder=decoder(c, layers),
        quant_conv=Conv(2 * Z, 2 * Z, (1, 1)) if c.flag("use_quant_conv") else None,
        post_quant_conv=Conv(Z, Z, (1, 1)) if c.flag("use_post_quant_conv") else None,
    )


# The names that attention had in diffusers before 0.12 -> the current ones.
OLDER_ATTENTION = MappingProxyType(
    {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
)
_BLOCKS = r"(encoder\.mid_block\.attentions\.0|decoder\.mid_block\.attentions\.0)"
_LOADING = Loading(
    renames=tuple(
        Rule((rf"^{_BLOCKS}\.{older}\.",), (rf"\1.{name}.",))
        for older, name in OLDER_ATTENTION.items()
    ),
    legacy=(),
)
CLASSES = MappingProxyType({"AutoencoderKL": LibraryForm(AUTOENCODER, autoencoder_kl, _LOADING)})
