"""Configs of classes of diffusers: as published, and as drawn at random.

The published configs are the repositories' own.
"""

from typing import Any

from hypothesis import strategies as st
from support.published_figures import SIZES

from auditor.analytic.diffusion import CLASSES

CROSS, PLAIN = "CrossAttnDownBlock2D", "DownBlock2D"
UP_CROSS, UP_PLAIN = "CrossAttnUpBlock2D", "UpBlock2D"
UNET = "UNet2DConditionModel"

# name -> class and config
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    size["model"]: (size["config"]["_class_name"], size["config"])
    for size in SIZES
    if size["config"].get("_class_name") in CLASSES
}
_VAE = PUBLISHED["SD VAE"][1]
PUBLISHED |= {
    "SD 1.5 inpainting UNet": (UNET, {"cross_attention_dim": 768, "in_channels": 9}),
    "Flux VAE": (
        "AutoencoderKL",
        _VAE | {"latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False},
    ),
}


def _each(value: st.SearchStrategy[Any], blocks: int) -> st.SearchStrategy[Any]:
    return value | st.lists(value, min_size=blocks, max_size=blocks)


@st.composite
def _unet(draw: st.DrawFn, target: str) -> dict[str, Any]:
    blocks = draw(st.integers(1, 4))
    is_unet = target == UNET
    channels = st.sampled_from([8, 16, 24, 32])

    def kinds(*names: str) -> list[str]:
        return draw(st.lists(st.sampled_from(names), min_size=blocks, max_size=blocks))

    counts = st.integers(1, 3)
    config: dict[str, Any] = {
        "in_channels": draw(st.integers(1, 9)),
        "block_out_channels": draw(st.lists(channels, min_size=blocks, max_size=blocks)),
        "down_block_types": kinds(CROSS, PLAIN),
        "norm_num_groups": 4,
        "attention_head_dim": draw(_each(st.sampled_from([1, 2, 3, 4]), blocks)),
        "transformer_layers_per_block": draw(_each(counts, blocks)),
        "cross_attention_dim": draw(st.integers(1, 24)),
        "use_linear_projection": draw(st.booleans()),
        "only_cross_attention": draw(_each(st.booleans(), blocks)),
        "layers_per_block": draw(_each(counts, blocks) if is_unet else counts),
        "mid_block_type": draw(
            st.sampled_from(["UNetMidBlock2DCrossAttn", "UNetMidBlock2D", *[None] * is_unet])
        ),
        "resnet_time_scale_shift": draw(st.sampled_from(["default", "scale_shift"])),
        "class_embed_type": draw(
            st.sampled_from([None, "timestep", "identity", "projection", "simple_projection"])
        ),
        "num_class_embeds": draw(st.none() | st.integers(1, 9)),
        "projection_class_embeddings_input_dim": draw(st.integers(1, 20)),
        "addition_embed_type": draw(st.sampled_from([None, "text", "text_time", "image"])),
        "addition_time_embed_dim": 6,
        "addition_embed_type_num_heads": 1,
        "encoder_hid_dim": draw(st.none() | st.integers(1, 12)),
    }
    if is_unet:
        config |= {
            "up_block_types": kinds(UP_CROSS, UP_PLAIN),
            "out_channels": draw(st.integers(1, 9)),
            "conv_in_kernel": draw(st.sampled_from([1, 3, 5])),
            "conv_out_kernel": draw(st.sampled_from([1, 3])),
            "time_embedding_dim": draw(st.sampled_from([None, 0, 12])),
            "time_cond_proj_dim": draw(st.none() | st.integers(1, 9)),
            "class_embeddings_concat": draw(st.booleans()),
            "time_embedding_type": draw(st.sampled_from([*["positional"] * 7, "fourier"])),
        }
        if draw(st.booleans()):
            widths = st.lists(st.integers(1, 24), min_size=blocks, max_size=blocks)
            plain = {"encoder_hid_dim": None, "addition_embed_type": None}
            config |= {"cross_attention_dim": draw(widths), **plain}
    else:
        sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4)
        config |= {
            "conditioning_channels": draw(st.integers(1, 4)),
            "conditioning_embedding_out_channels": draw(sizes),
        }
    return config


@st.composite
def _autoencoder(draw: st.DrawFn) -> dict[str, Any]:
    blocks = draw(st.integers(1, 4))
    channels = st.sampled_from([8, 16, 24, 32])
    return {
        "in_channels": draw(st.integers(1, 4)),
        "out_channels": draw(st.integers(1, 4)),
        "block_out_channels": draw(st.lists(channels, min_size=blocks, max_size=blocks)),
        "down_block_types": ["DownEncoderBlock2D"] * blocks,
        "up_block_types": ["UpDecoderBlock2D"] * blocks,
        "layers_per_block": draw(st.integers(0, 3)),
        "latent_channels": draw(st.integers(1, 16)),
        "norm_num_groups": 4,
        "use_quant_conv": draw(st.booleans()),
        "use_post_quant_conv": draw(st.booleans()),
        "mid_block_add_attention": draw(st.booleans()),
    }


_SIZES = {
    "in_channels": st.integers(1, 12),
    "out_channels": st.none() | st.integers(1, 12),
    "patch_size": st.integers(1, 3),
    "num_layers": st.integers(0, 4),
    "num_attention_heads": st.integers(1, 3),
    "attention_head_dim": st.sampled_from([4, 8]),
}
_OF_TEXT = dict.fromkeys(("joint_attention_dim", "pooled_projection_dim"), st.integers(1, 12))
_FLUX = {"num_single_layers": st.integers(0, 3), "guidance_embeds": st.booleans()}
_SD3 = {
    "caption_projection_dim": st.integers(1, 12),
    "pos_embed_max_size": st.sampled_from([4, 5, None]),
    "sample_size": st.just(8),
    "dual_attention_layers": st.lists(st.integers(0, 4), max_size=3),
    "qk_norm": st.sampled_from([None, "rms_norm", "layer_norm"]),
}
_CHANNELS = st.sampled_from([32, 64, 96])


@st.composite
def _other_unet(draw: st.DrawFn, suffix: str, **more: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Draw the blocks of a UNet whose kinds end with the suffix, and further keys."""
    blocks = draw(st.integers(1, 4))
    prefixes = ["", "Attn", "Resnet"] if suffix == "2D" else ["", "CrossAttn"]

    def kinds(way: str) -> list[str]:
        names = [f"{each}{way}{'sample' * (each == 'Resnet')}Block{suffix}" for each in prefixes]
        return draw(st.lists(st.sampled_from(names), min_size=blocks, max_size=blocks))

    counts = st.integers(1, 3)
    config = {
        "in_channels": draw(st.integers(1, 9)),
        "out_channels": draw(st.integers(1, 9)),
        "block_out_channels": draw(st.lists(_CHANNELS, min_size=blocks, max_size=blocks)),
        "down_block_types": kinds("Down"),
        "up_block_types": kinds("Up"),
        "layers_per_block": draw(counts if suffix == "2D" else _each(counts, blocks)),
    }
    if suffix != "2D":
        config |= {
            "num_attention_heads": draw(_each(st.integers(1, 5), blocks)),
            "transformer_layers_per_block": draw(_each(counts, blocks)),
            "cross_attention_dim": draw(st.integers(1, 24)),
        }
    return config | draw(st.fixed_dictionaries(more))


@st.composite
def _cascade(draw: st.DrawFn) -> dict[str, Any]:
    blocks = draw(st.integers(1, 3))

    def each(value: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(value, min_size=blocks, max_size=blocks))

    kinds = [f"SDCascade{kind}Block" for kind in ("Res", "Timestep", "Attn")]
    numbers = st.none() | st.integers(1, 9)
    config = {
        "block_out_channels": each(st.sampled_from([4, 6, 8])),
        "num_attention_heads": each(st.integers(1, 3)),
        "block_types_per_layer": each(st.lists(st.sampled_from(kinds), max_size=4)),
        "dropout": [0.1] * blocks,
        "switch_level": draw(st.sampled_from([None, [True] * blocks])),
        "timestep_conditioning_type": draw(st.sampled_from([[], ["sca"], ["sca", "crp"]])),
    }
    for way in ("down", "up"):
        config[f"{way}_num_layers_per_block"] = each(st.integers(0, 3))
        config[f"{way}_blocks_repeat_mappers"] = each(st.integers(0, 3))
    optional = ("clip_text_in_channels", "clip_image_in_channels", "effnet_in_channels")
    for key in (*optional, "pixel_mapper_in_channels"):
        config[key] = draw(numbers)
    for key in ("patch_size", "conditioning_dim", "clip_seq", "kernel_size"):
        config[key] = draw(st.integers(1, 4))
    return config


_VIDEO_VAE = {
    "base_dim": st.sampled_from([4, 6, 8]),
    "z_dim": st.integers(1, 6),
    "dim_mult": st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4),
    "num_res_blocks": st.integers(0, 3),
    "temperal_downsample": st.lists(st.booleans(), min_size=3, max_size=3),
}
# the configs of classes that cannot be built from their defaults
NEEDED = {
    "HiDreamImageTransformer2DModel": {
        "patch_size": 2,
        "caption_channels": [4096, 4096],
        "num_layers": 2,
        "num_single_layers": 2,
    }
}
_STRATEGIES = {
    "AutoencoderKL": _autoencoder(),
    "FluxTransformer2DModel": st.fixed_dictionaries(_SIZES | _OF_TEXT | _FLUX),
    "SD3Transformer2DModel": st.fixed_dictionaries(_SIZES | _OF_TEXT | _SD3),
    "HiDreamImageTransformer2DModel": st.fixed_dictionaries(
        _SIZES
        | {
            "num_single_layers": st.integers(0, 3),
            "caption_channels": st.lists(st.integers(1, 9), min_size=1, max_size=3),
            "text_emb_dim": st.integers(1, 12),
            "num_routed_experts": st.integers(0, 4),
        }
    ),
    "AutoencoderKLWan": st.fixed_dictionaries(
        _VIDEO_VAE
        | {
            "in_channels": st.integers(1, 12),
            "out_channels": st.integers(1, 12),
            "decoder_base_dim": st.none() | st.sampled_from([4, 8]),
            "is_residual": st.booleans(),
        }
    ),
    "AutoencoderKLQwenImage": st.fixed_dictionaries(
        _VIDEO_VAE | {"input_channels": st.integers(1, 4)}
    ),
    "PixArtTransformer2DModel": st.fixed_dictionaries(
        {
            "num_attention_heads": st.integers(1, 3),
            "attention_head_dim": st.sampled_from([4, 8]),
            "in_channels": st.integers(1, 5),
            "out_channels": st.none() | st.integers(1, 9),
            "num_layers": st.integers(0, 3),
            "cross_attention_dim": st.none() | st.integers(1, 9),
            "attention_bias": st.booleans(),
            "sample_size": st.sampled_from([8, 64, 128]),
            "patch_size": st.integers(1, 3),
            "activation_fn": st.sampled_from(["gelu-approximate", "gelu", "geglu"]),
            "norm_elementwise_affine": st.booleans(),
            "use_additional_conditions": st.sampled_from([None, False, True]),
            "caption_channels": st.none() | st.integers(1, 9),
        }
    ),
    "PriorTransformer": st.fixed_dictionaries(
        {
            "num_attention_heads": st.integers(1, 3),
            "attention_head_dim": st.sampled_from([4, 8]),
            "num_layers": st.integers(0, 3),
            "embedding_dim": st.integers(1, 12),
            "num_embeddings": st.integers(0, 5),
            "additional_embeddings": st.integers(0, 4),
            "norm_in_type": st.sampled_from([None, "layer"]),
            "embedding_proj_norm_type": st.sampled_from([None, "layer"]),
            "encoder_hid_proj_type": st.sampled_from([None, "linear"]),
            "added_emb_type": st.sampled_from([None, "prd", "other"]),
            "time_embed_dim": st.sampled_from([None, 0, 6]),
            "embedding_proj_dim": st.none() | st.integers(1, 9),
            "clip_embed_dim": st.none() | st.integers(1, 9),
        }
    ),
    "T2IAdapter": st.fixed_dictionaries(
        {
            "in_channels": st.integers(1, 4),
            "channels": st.lists(st.sampled_from([4, 6, 8, 13]), min_size=1, max_size=5),
            "num_res_blocks": st.integers(0, 3),
            "downscale_factor": st.integers(1, 4),
            "adapter_type": st.sampled_from(["full_adapter", "full_adapter_xl", "light_adapter"]),
        }
    ),
    "StableCascadeUNet": _cascade(),
    "UNetSpatioTemporalConditionModel": _other_unet(
        "SpatioTemporal", projection_class_embeddings_input_dim=st.integers(1, 9)
    ),
    "UNetMotionModel": _other_unet(
        "Motion",
        motion_num_attention_heads=st.integers(1, 4),
        motion_max_seq_length=st.integers(1, 9),
        temporal_transformer_layers_per_block=st.integers(1, 3),
        use_motion_mid_block=st.booleans(),
        mid_block_layers=st.integers(1, 3),
        use_linear_projection=st.booleans(),
        time_cond_proj_dim=st.none() | st.integers(1, 9),
    ),
    "UNet2DModel": _other_unet(
        "2D",
        attention_head_dim=st.sampled_from([None, 8, 16]),
        time_embedding_type=st.sampled_from(["positional", "fourier", "learned"]),
        num_train_timesteps=st.integers(1, 9),
        resnet_time_scale_shift=st.sampled_from(["default", "scale_shift"]),
        downsample_type=st.sampled_from(["conv", "resnet"]),
        upsample_type=st.sampled_from(["conv", "resnet"]),
        attn_norm_num_groups=st.sampled_from([None, 8]),
        add_attention=st.booleans(),
        mid_block_type=st.sampled_from(["UNetMidBlock2D", None]),
        class_embed_type=st.sampled_from([None, "timestep", "identity"]),
        num_class_embeds=st.none() | st.integers(1, 9),
    ),
}


def configs(target: str) -> st.SearchStrategy[dict[str, Any]]:
    return _STRATEGIES[target] if target in _STRATEGIES else _unet(target)


# --- small components ---------------------------------------------------------------------------

SMALL_UNET = {
    "_class_name": "UNet2DConditionModel",
    "block_out_channels": [8, 16],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "norm_num_groups": 4,
    "attention_head_dim": 4,
    "layers_per_block": 1,
    "in_channels": 4,
    "cross_attention_dim": 12,
    "use_linear_projection": False,
    "time_cond_proj_dim": None,
}
SMALL_VAE = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [8, 16],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "norm_num_groups": 4,
    "latent_channels": 4,
}
SMALL_FLUX = {  # which omits out_channels: by default as many as in_channels
    "_class_name": "FluxTransformer2DModel",
    "attention_head_dim": 16,
    "axes_dims_rope": [4, 6, 6],
    "guidance_embeds": False,
    "in_channels": 4,
    "joint_attention_dim": 24,
    "num_attention_heads": 2,
    "num_layers": 2,
    "num_single_layers": 2,
    "pooled_projection_dim": 20,
}
SMALL_SD3 = {  # whose table of positions is a buffer
    "_class_name": "SD3Transformer2DModel",
    "sample_size": 8,
    "pos_embed_max_size": 12,
    "num_layers": 2,
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "joint_attention_dim": 24,
    "caption_projection_dim": 32,
    "pooled_projection_dim": 20,
}
COMPONENTS = {one["_class_name"]: one for one in (SMALL_UNET, SMALL_VAE, SMALL_FLUX, SMALL_SD3)}
