"""HiDreamImageTransformer2DModel, a mixture of experts over image and text."""

from types import MappingProxyType

from auditor.analytic.blocks import (
    Experts,
    Linear,
    Module,
    Param,
    RMSNorm,
    module,
    repeat,
    sequential,
)
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import LibraryForm, counts_by_block, outside, size, widths
from auditor.analytic.diffusion.layers import layers_of, time_embedding
from auditor.analytic.dims import Dim, dim
from auditor.analytic.family import Family

_TIMES, _MULTIPLE = 256, 256
HIDREAM = Family(
    model_type="HiDreamImageTransformer2DModel",
    prefix="",
    base="HiDreamImageTransformer2DModel",
    own=MappingProxyType(
        {
            "patch_size": None,
            "in_channels": 64,
            "out_channels": None,
            "num_layers": 16,
            "num_single_layers": 32,
            "attention_head_dim": 128,
            "num_attention_heads": 20,
            "caption_channels": None,
            "text_emb_dim": 2048,
            "num_routed_experts": 4,
            "num_activated_experts": 2,
            "axes_dims_rope": (32, 32),
            "max_resolution": (128, 128),
            "llama_layers": None,
            "force_inference_output": False,
        }
    ),
)


def _feed_forward(width: Dim, hidden: Dim) -> Module:
    """Return a SwiGLU of two thirds of the hidden width, rounded up to a multiple of 256."""
    F = _MULTIPLE * (2 * hidden).floor(3).ceil(_MULTIPLE)
    up = Linear(width, F, bias=False)
    return module(w1=up, w2=Linear(F, width, bias=False), w3=up)


def _attention(width: Dim, *, with_text: bool) -> Module:
    one, norm = Linear(width, width), RMSNorm(width)
    parts = {"to_q": one, "to_k": one, "to_v": one, "to_out": one}
    parts |= {"q_rms_norm": norm, "k_rms_norm": norm}
    text = {f"{name}_t": part for name, part in parts.items()} if with_text else {}
    return module(**parts, **text)


def _layer(c: Config, D: Dim, *, with_text: bool) -> Module:  # noqa: N803
    experts = c.integer("num_routed_experts")
    image = _feed_forward(D, 4 * D)
    if experts > 0:
        count = size(c, "num_routed_experts")
        active = size(c, "num_activated_experts")
        image = module(
            shared_experts=_feed_forward(D, 2 * D),
            experts=Experts(repeat(count, lambda: _feed_forward(D, 4 * D)), count, active),
            gate=module(weight=Param((count, D))),
        )
    block = module(
        adaLN_modulation=sequential(None, Linear(D, (12 if with_text else 6) * D)),
        attn1=_attention(D, with_text=with_text),
        ff_i=image,
        ff_t=_feed_forward(D, 4 * D) if with_text else None,
    )
    return module(block=block)


def hidream(c: Config) -> Module:
    D = size(c, "num_attention_heads") * size(c, "attention_head_dim")
    layers = sum(counts_by_block(c, "num_layers", 1) + counts_by_block(c, "num_single_layers", 1))
    captions = widths(c, "caption_channels") if c.present("caption_channels") else ()
    if len(captions) <= 1:  # that of T5, then that of Llama
        raise outside(c, "caption_channels")
    if not c.present("patch_size"):
        raise outside(c, "patch_size")
    area = size(c, "patch_size") * size(c, "patch_size")
    channels = size(c, "in_channels")
    outputs = size(c, "out_channels") if c.truth("out_channels") else channels
    each = module(linear=Linear(captions[1], D, bias=False))
    last = module(linear=Linear(captions[0], D, bias=False))
    return module(
        t_embedder=module(timestep_embedder=time_embedding(dim(_TIMES), D)),
        p_embedder=module(pooled_embedder=time_embedding(size(c, "text_emb_dim"), D)),
        x_embedder=module(proj=Linear(channels * area, D)),
        double_stream_blocks=repeat(c.dim("num_layers"), lambda: _layer(c, D, with_text=True)),
        single_stream_blocks=repeat(
            c.dim("num_single_layers"), lambda: _layer(c, D, with_text=False)
        ),
        final_layer=module(
            linear=Linear(D, area * outputs), adaLN_modulation=sequential(None, Linear(D, 2 * D))
        ),
        caption_projection=layers_of([*[each] * layers, last]),
    )


CLASSES = MappingProxyType({"HiDreamImageTransformer2DModel": LibraryForm(HIDREAM, hidream)})
