"""What the learner of diffusers' classes would not find from their defaults alone.

Each entry is a suggestion: a form is accepted only if it equals diffusers on configs that it has
not seen.
"""

import ast
from typing import Any

# Configs of classes that cannot be built from their defaults, as published or smaller.
STARTS: dict[str, dict[str, Any]] = {
    "AudioLDM2ProjectionModel": {
        "text_encoder_dim": 1024,
        "text_encoder_1_dim": 512,
        "langauge_model_dim": 768,
    },
    "AutoencoderKLHunyuanImage": {
        "in_channels": 3,
        "out_channels": 3,
        "latent_channels": 64,
        "block_out_channels": [128, 256, 512, 512, 1024, 1024],
        "layers_per_block": 2,
        "spatial_compression_ratio": 32,
        "sample_size": 384,
    },
    "ControlNetUnionModel": {
        "class_embed_type": None,
    },
    "HiDreamImageTransformer2DModel": {"patch_size": 2, "caption_channels": [4096, 4096]},
    "HunyuanDiT2DControlNetModel": {"in_channels": 4, "patch_size": 2},
    "HunyuanDiT2DModel": {"in_channels": 4, "patch_size": 2},
    "LuminaNextDiT2DModel": {"num_kv_heads": 8},
    "StableAudioProjectionModel": {
        "text_encoder_dim": 768,
        "conditioning_dim": 768,
        "min_value": 0,
        "max_value": 512,
    },
    "UniDiffuserModel": {"in_channels": 4, "patch_size": 2, "sample_size": 64},
    "UniDiffuserTextDecoder": {"prefix_length": 77, "prefix_inner_dim": 768},
    "ZImageControlNetModel": {
        "control_layers_places": [0, 5, 10],
        "control_refiner_layers_places": [0, 1],
        "control_in_dim": 16,
    },
}
# Values to try of a key, which published configs or other code have.
MENU: dict[str, dict[str, list[Any]]] = {
    "AutoencoderKLQwenImage": {
        "dim_mult": [[1, 2, 3, 5], [2, 2, 4], [3], [1, 3]],
        "num_res_blocks": [1, 3, 0],
        "temperal_downsample": [[True, False, True], [False, False, False], [True, True, False]],
    },
    "AutoencoderKLWan": {
        "decoder_base_dim": [64, 256],
        "dim_mult": [[1, 2, 3, 5], [2, 2, 4], [3], [1, 3]],
        "num_res_blocks": [1, 3, 0],
        "temperal_downsample": [[True, False, True], [False, False, False], [True, True, False]],
    },
    "HiDreamImageTransformer2DModel": {
        "attention_head_dim": [4, 70, 64],
        "caption_channels": [[64, 96], [64, 96, 32]],
        "in_channels": [1, 3, 32],
        "num_attention_heads": [1, 3, 12],
        "num_layers": [3, 5, 0],
        "num_routed_experts": [3, 6, 0],
        "num_single_layers": [3, 5, 0],
        "out_channels": [32, 48],
    },
    "PixArtTransformer2DModel": {
        "activation_fn": ["gelu"],
        "attention_head_dim": [64, 71, 32],
        "caption_channels": [64, 96],
        "cross_attention_dim": [None, 64, 96],
        "num_layers": [3, 5, 0],
        "out_channels": [None, 4, 6],
        "sample_size": [64, 32, 256],
        "use_additional_conditions": [True, False],
    },
    "PriorTransformer": {
        "added_emb_type": [None],
        "additional_embeddings": [2, 3, 0],
        "clip_embed_dim": [64, 96, 0],
        "embedding_proj_dim": [64, 96, 0],
        "embedding_proj_norm_type": ["layer"],
        "encoder_hid_proj_type": [None],
        "norm_in_type": ["layer"],
        "num_embeddings": [9, 12, 0],
        "num_layers": [3, 2, 0],
        "time_embed_dim": [64, 96, 0],
    },
    "SD3Transformer2DModel": {
        "attention_head_dim": [4, 70, 32],
        "dual_attention_layers": [[0], [1, 2], [0, 2, 5]],
        "in_channels": [1, 3, 32],
        "num_attention_heads": [1, 3, 12],
        "num_layers": [3, 5, 0],
        "out_channels": [None, 8, 24],
    },
    "T2IAdapter": {
        "adapter_type": ["full_adapter_xl", "light_adapter"],
        "channels": [[32, 64], [32, 32, 64, 48, 16], [64]],
        "num_res_blocks": [1, 3, 0],
    },
}
# Keys that act only together.
JOINT: dict[str, list[dict[str, Any]]] = {
    "AutoencoderKLWan": [
        {"is_residual": True, "dim_mult": [1, 2, 3], "decoder_base_dim": 64},
        {"is_residual": True, "dim_mult": [2, 2], "temperal_downsample": [True, False, True]},
        {"is_residual": True, "dim_mult": [3], "num_res_blocks": 0},
        {"is_residual": True, "dim_mult": [2, 3, 3, 5], "num_res_blocks": 1},
    ],
    "HiDreamImageTransformer2DModel": [
        {"num_routed_experts": 0, "num_layers": count, "num_single_layers": 4 - count}
        for count in (1, 2, 3)
    ],
    "PixArtTransformer2DModel": [
        {"out_channels": None, "in_channels": 6},
        *(
            {"use_additional_conditions": True, **each}
            for each in (
                {"sample_size": 64},
                {"caption_channels": 64},
                {"cross_attention_dim": None},
                {"attention_bias": False, "norm_elementwise_affine": True},
            )
        ),
    ],
    "PriorTransformer": [
        {"embedding_proj_norm_type": "layer", "embedding_proj_dim": 64},
        {"embedding_proj_norm_type": "layer", "embedding_dim": 96},
    ],
    "SD3Transformer2DModel": [
        {"out_channels": None, "in_channels": 6},
        {"dual_attention_layers": [0, 2, 5], "num_layers": 6},
        *({"dual_attention_layers": [0, 2, 3], "qk_norm": norm} for norm in (None, "rms_norm")),
    ],
}
# Numbers and tests of a class's tensors as Python: i and j are the numbers in a tensor's name.
_STRIDE = "(num_res_blocks + 1)"  # of the encoder's blocks: resnets, then a change of size
_WIDE = f"base_dim * dim_mult[i // {_STRIDE}]"
_FROM = (
    f"({_WIDE} if i % {_STRIDE} else base_dim * dim_mult[i // {_STRIDE} - 1] if i else base_dim)"
)
_RESNET = f"i % {_STRIDE} < num_res_blocks"


def _video_vae(base: str, halved: str) -> list[str]:
    """Return the hints of a VAE whose decoder has the width `base`."""
    up = f"{base} * dim_mult[len(dim_mult) - 1 - i]"
    return [
        f"len(dim_mult) * {_STRIDE} - 1",
        _WIDE,
        _FROM,
        _RESNET,
        f"{_RESNET} and not {_FROM} == {_WIDE}",
        f"not {_RESNET} and temperal_downsample[i // {_STRIDE}]",
        "base_dim * dim_mult[-1]",
        f"{base} * dim_mult[-1]",
        f"{base} * dim_mult[0]",
        up,
        f"{up} if j or not i else {base} * dim_mult[len(dim_mult) - i] // {halved}",
        f"i and not {up} == {base} * dim_mult[len(dim_mult) - i] // {halved}",
        "i < len(dim_mult) - 1 and temperal_downsample[len(temperal_downsample) - 1 - i]",
        f"{up} // {halved}",
    ]


_OF_DECODER = "(base_dim if decoder_base_dim is None else decoder_base_dim)"
_WIDTH = "num_attention_heads * attention_head_dim"
HINTS: dict[str, list[str]] = {
    "AutoencoderKLQwenImage": _video_vae("base_dim", "2"),
    "AutoencoderKLWan": [
        *_video_vae(_OF_DECODER, "(1 if is_residual else 2)"),
        "base_dim * dim_mult[i]",
        "base_dim * dim_mult[i] if j else base_dim * dim_mult[i - 1] if i else base_dim",
        "not dim_mult[i] == (dim_mult[i - 1] if i else 1)",
        "i < len(dim_mult) - 1 and temperal_downsample[i]",
    ],
    "HiDreamImageTransformer2DModel": [
        *(f"(2 * ({n} * {_WIDTH}) // 3 + 255) // 256 * 256" for n in (2, 4)),
        "num_layers + num_single_layers + 1",
        "caption_channels[1 if i < num_layers + num_single_layers else 0]",
    ],
    "PixArtTransformer2DModel": [
        "sample_size == 128 if use_additional_conditions is None else use_additional_conditions",
        f"{_WIDTH} // 3",
    ],
    "T2IAdapter": [
        "in_channels * downscale_factor * downscale_factor",
        "len(channels) + (1 if adapter_type == 'light_adapter' else 0)",
        "channels[i] if i < len(channels) else channels[-1]",
        "(channels[i] if i < len(channels) else channels[-1]) // 4",
        (
            "adapter_type == 'light_adapter' or i and not channels[i] == channels[i - 1]"
            " and (i < 3 or adapter_type == 'full_adapter')"
        ),
    ],
}
_OPERATORS = {
    ast.Add: "+",
    ast.And: "and",
    ast.Eq: "==",
    ast.FloorDiv: "//",
    ast.In: "in",
    ast.Is: "==",
    ast.Lt: "<",
    ast.Mod: "%",
    ast.Mult: "*",
    ast.Or: "or",
    ast.Sub: "-",
}


def expressions(target: str) -> list[Any]:
    """Return the hints of a class in the grammar of generated forms."""
    return [_parsed(ast.parse(text, mode="eval").body) for text in HINTS.get(target, ())]


def _parsed(node: ast.expr) -> Any:
    match node:
        case ast.Name(name):
            return ["i", "ij".index(name)] if name in {"i", "j"} else ["k", name]
        case ast.Constant(str(text)):
            return ["q", text]
        case ast.Constant(value):
            return value
        case ast.UnaryOp(ast.Not(), operand):
            return ["not", _parsed(operand)]
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            return -value
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            return [_OPERATORS[type(operator)], _parsed(left), _parsed(right)]
        case ast.BoolOp(operator, [first, *others]):
            return [_OPERATORS[type(operator)], _parsed(first), _rest(operator, others)]
        case ast.IfExp(test, then, otherwise):
            return ["if", *map(_parsed, (test, then, otherwise))]
        case ast.Subscript(items, place):
            return ["at", _parsed(items), _parsed(place)]
        case ast.Call(ast.Name("len"), [items]):
            return ["len", _parsed(items)]
    raise ValueError(ast.dump(node))


def _rest(operator: ast.boolop, values: list[ast.expr]) -> Any:
    return _parsed(ast.BoolOp(operator, values) if len(values) > 1 else values[0])
