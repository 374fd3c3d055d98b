"""The models that were published as single files of original names: their components' tensors.

The configs are those of diffusers' repositories of the same models, from which `from_single_file`
loads a single file.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic import Config, catalogue
from auditor.analytic.diffusion import expect_diffusers
from auditor.analytic.diffusion.original_names import original_tensors
from auditor.analytic.expectation import ExpectedTensor, Role
from auditor.analytic.open_clip import expect_open_clip

Values = Mapping[str, object]
_UNET, _VAE = "UNet2DConditionModel", "AutoencoderKL"
_DOWN, _CROSS = "DownBlock2D", "CrossAttnDownBlock2D"
_UP, _CROSS_UP = "UpBlock2D", "CrossAttnUpBlock2D"


class TextEncoder(NamedTuple):
    """A text encoder of a single file: its class, its config, and what a file may lack of it."""

    target: str  # "CLIP" for open_clip's names
    config: Values
    inside: str = ""  # the prefix of its names below that of the encoder
    unread: tuple[str, ...] = ()  # beginnings of names that diffusers does not read


class OriginalModel(NamedTuple):
    """A published model: the classes and configs of its components."""

    target: str | None  # class of the denoiser; None for a VAE alone
    config: Values
    vae: Values
    text_encoders: Mapping[str, TextEncoder] = MappingProxyType({})  # prefix in the file -> encoder


_SDXL = {
    "attention_head_dim": [5, 10, 20],
    "block_out_channels": [320, 640, 1280],
    "cross_attention_dim": 2048,
    "down_block_types": [_DOWN, _CROSS, _CROSS],
    "transformer_layers_per_block": [1, 2, 10],
    "up_block_types": [_CROSS_UP, _CROSS_UP, _UP],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
_REFINER = {
    **_SDXL,
    "attention_head_dim": [6, 12, 24, 24],
    "block_out_channels": [384, 768, 1536, 1536],
    "cross_attention_dim": 1280,
    "down_block_types": [_DOWN, _CROSS, _CROSS, _DOWN],
    "transformer_layers_per_block": 4,
    "up_block_types": [_UP, _CROSS_UP, _CROSS_UP, _UP],
    "projection_class_embeddings_input_dim": 2560,
}
_SD3 = {
    "caption_projection_dim": 1536,
    "num_attention_heads": 24,
    "num_layers": 24,
    "pos_embed_max_size": 192,
}
_SD35_MEDIUM = {
    **_SD3,
    "dual_attention_layers": [*range(13)],
    "pos_embed_max_size": 384,
    "qk_norm": "rms_norm",
}
_SD35_LARGE = {
    **_SD3,
    "caption_projection_dim": 2432,
    "num_attention_heads": 38,
    "num_layers": 38,
    "qk_norm": "rms_norm",
}
_FOUR_CHANNELS = {
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "layers_per_block": 2,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}
_SIXTEEN_CHANNELS = {
    **_FOUR_CHANNELS,
    "latent_channels": 16,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}


def _clip(hidden_size: int, layers: int) -> Values:
    return {
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "max_position_embeddings": 77,
        "num_attention_heads": hidden_size // 64,
        "num_hidden_layers": layers,
        "projection_dim": hidden_size,
        "vocab_size": 49408,
    }


def _open_clip(width: int, layers: int) -> Values:
    """Return a config of CLIP whose image tower, which no single file has, is a small one."""
    text = {"context_length": 77, "heads": width // 64, "layers": layers, "width": width}
    return {"model_cfg": {"embed_dim": width, "text_cfg": text, "vision_cfg": {"layers": 1}}}


_CLIP_L = TextEncoder("CLIPTextModel", _clip(768, 12), "text_model.")
_BIG_G = TextEncoder("CLIP", _open_clip(1280, 32), unread=("logit_scale",))
# diffusers reads 23 layers of 24, and no projection.
_HUGE = TextEncoder(
    "CLIP",
    _open_clip(1024, 24),
    unread=("logit_scale", "text_projection", "transformer.resblocks.23."),
)
_T5 = TextEncoder(
    "T5EncoderModel",
    {
        "d_ff": 10240,
        "d_kv": 64,
        "d_model": 4096,
        "feed_forward_proj": "gated-gelu",
        "num_heads": 64,
        "num_layers": 24,
        "tie_word_embeddings": False,
        "vocab_size": 32128,
    },
)
_WITH_PROJECTION = "CLIPTextModelWithProjection"
_OF_SD3 = {
    "text_encoders.clip_l.transformer.": TextEncoder(
        _WITH_PROJECTION, _clip(768, 12), unread=("text_projection.",)
    ),
    "text_encoders.clip_g.transformer.": TextEncoder(_WITH_PROJECTION, _clip(1280, 32)),
    "text_encoders.t5xxl.transformer.": _T5,
}
_OF_FLUX = {each: _OF_SD3[each] for each in _OF_SD3 if "clip_g" not in each}
ORIGINAL_MODELS: Mapping[str, OriginalModel] = MappingProxyType(
    {
        "Stable Diffusion 1": OriginalModel(
            _UNET,
            {"cross_attention_dim": 768},
            _FOUR_CHANNELS,
            {"cond_stage_model.transformer.": _CLIP_L},
        ),
        "Stable Diffusion 2": OriginalModel(
            _UNET,
            {
                "attention_head_dim": [5, 10, 20, 20],
                "cross_attention_dim": 1024,
                "use_linear_projection": True,
            },
            _FOUR_CHANNELS,
            {"cond_stage_model.model.": _HUGE},
        ),
        "SDXL": OriginalModel(
            _UNET,
            _SDXL,
            _FOUR_CHANNELS,
            {
                "conditioner.embedders.0.transformer.": _CLIP_L,
                "conditioner.embedders.1.model.": _BIG_G,
            },
        ),
        "SDXL's refiner": OriginalModel(
            _UNET, _REFINER, _FOUR_CHANNELS, {"conditioner.embedders.0.model.": _BIG_G}
        ),
        "Flux.1": OriginalModel(
            "FluxTransformer2DModel",
            {"guidance_embeds": True, "out_channels": 64},
            _SIXTEEN_CHANNELS,
            _OF_FLUX,
        ),
        "Stable Diffusion 3 medium": OriginalModel(
            "SD3Transformer2DModel", _SD3, _SIXTEEN_CHANNELS, _OF_SD3
        ),
        "Stable Diffusion 3.5 medium": OriginalModel(
            "SD3Transformer2DModel", _SD35_MEDIUM, _SIXTEEN_CHANNELS, _OF_SD3
        ),
        "Stable Diffusion 3.5 large": OriginalModel(
            "SD3Transformer2DModel", _SD35_LARGE, _SIXTEEN_CHANNELS, _OF_SD3
        ),
        "the VAE of Stable Diffusion 1, 2 and XL": OriginalModel(None, {}, _FOUR_CHANNELS),
        "the VAE of Stable Diffusion 3 and Flux.1": OriginalModel(None, {}, _SIXTEEN_CHANNELS),
    }
)


def published_configs(component: str) -> Iterator[tuple[str, Values]]:
    """Yield (name of the model, config) of each published component of diffusers' class."""
    for name, model in ORIGINAL_MODELS.items():
        if component == (model.target or _VAE):
            yield name.removeprefix("the VAE of "), model.config or model.vae


@cache
def in_diffusers(model: str) -> tuple[ExpectedTensor, ...]:
    """Return the denoiser of a model, by diffusers' names; () for a VAE."""
    target, config, *_ = ORIGINAL_MODELS[model]
    return expect_diffusers(Config(values=config), target).tensors if target else ()


@cache
def denoiser(model: str) -> tuple[ExpectedTensor, ...]:
    """Return the denoiser of a model, by original names without prefix; () for a VAE."""
    target = ORIGINAL_MODELS[model].target
    return tuple(original_tensors(target, in_diffusers(model))) if target else ()


def vae(model: str) -> tuple[ExpectedTensor, ...]:
    """Return the VAE of a model, by original names without prefix."""
    tensors = expect_diffusers(Config(values=ORIGINAL_MODELS[model].vae), _VAE).tensors
    return tuple(original_tensors(_VAE, tensors))


def text_encoder(encoder: TextEncoder) -> Iterator[ExpectedTensor]:
    """Yield the tensors of a text encoder; those that diffusers does not read are optional."""
    is_open_clip, config = encoder.target == "CLIP", Config(values=encoder.config)
    expect = expect_open_clip if is_open_clip else catalogue.expect
    for one in expect(config, encoder.target).tensors:
        if one.name.startswith("visual."):
            continue
        is_unread = one.role.learned and one.name.startswith(encoder.unread)
        role = Role.EXTRA if is_unread or one.role is Role.TIED else one.role
        yield one._replace(name=encoder.inside + one.name, role=role, tied_to=None)
