"""FluxTransformer2DModel and SD3Transformer2DModel, which attend to image and text at once."""

from types import MappingProxyType

from auditor.analytic.blocks import (
    Buffer,
    Conv,
    Linear,
    Module,
    Repeat,
    RMSNorm,
    Stack,
    module,
    repeat,
    sequential,
    stack,
)
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import LibraryForm, counts_by_block, outside, require, size
from auditor.analytic.dims import Dim, counted_dim
from auditor.analytic.family import Family

_LETTERS = MappingProxyType({"num_single_layers": "N_single"})
FLUX = Family(
    model_type="FluxTransformer2DModel",
    prefix="",
    base="FluxTransformer2DModel",
    letters=_LETTERS,
    own=MappingProxyType(
        {
            "patch_size": 1,
            "in_channels": 64,
            "out_channels": None,
            "num_layers": 19,
            "num_single_layers": 38,
            "attention_head_dim": 128,
            "num_attention_heads": 24,
            "joint_attention_dim": 4096,
            "pooled_projection_dim": 768,
            "guidance_embeds": False,
            "axes_dims_rope": (16, 56, 56),
        }
    ),
)
SD3 = Family(
    model_type="SD3Transformer2DModel",
    prefix="",
    base="SD3Transformer2DModel",
    letters=_LETTERS,
    own=MappingProxyType(
        {
            "sample_size": 128,
            "patch_size": 2,
            "in_channels": 16,
            "num_layers": 18,
            "attention_head_dim": 64,
            "num_attention_heads": 18,
            "joint_attention_dim": 4096,
            "caption_projection_dim": 1152,
            "pooled_projection_dim": 2048,
            "out_channels": 16,
            "pos_embed_max_size": 96,
            "dual_attention_layers": (),
            "qk_norm": None,
        }
    ),
)
_TIMES = 256  # channels of the sinusoids of the time


def _mlp(inputs: Dim | int, D: Dim) -> Module:  # noqa: N803 - a letter of formulas
    return module(linear_1=Linear(inputs, D), linear_2=Linear(D, D))


def _feed_forward(D: Dim) -> Module:  # noqa: N803 - as above
    """Return a FeedForward with GELU: (4D, D), then (D, 4D)."""
    return module(net=sequential(module(proj=Linear(D, 4 * D)), None, Linear(4 * D, D)))


def _modulation(D: Dim, times: int) -> Module:  # noqa: N803 - as above
    """Return an adaptive norm, whose scales and shifts are a projection of the time."""
    return module(linear=Linear(D, times * D))


def _attention(D: Dim, head: Dim, *, text: str = "", has_norm: bool = True) -> Module:  # noqa: N803
    """Return an Attention over the image and, unless `text` is "", over the text.

    The text's states have an output if `text` is "both", none if it is "read"; `text` "none" stands
    for an image's attention without a projection of its output.
    """
    norm = RMSNorm(head) if has_norm else None
    has_text = text in {"both", "read"}
    return module(
        norm_q=norm,
        norm_k=norm,
        to_q=Linear(D, D),
        to_k=Linear(D, D),
        to_v=Linear(D, D),
        to_out=sequential(Linear(D, D)) if text != "none" else None,
        norm_added_q=norm if has_text else None,
        norm_added_k=norm if has_text else None,
        add_q_proj=Linear(D, D) if has_text else None,
        add_k_proj=Linear(D, D) if has_text else None,
        add_v_proj=Linear(D, D) if has_text else None,
        to_add_out=Linear(D, D) if text == "both" else None,
    )


def _layers(c: Config, key: str) -> int:
    [count] = counts_by_block(c, key, 1)
    return count


def _time_text_embed(c: Config, D: Dim, *, guidance: bool = False) -> Module:  # noqa: N803
    return module(
        timestep_embedder=_mlp(_TIMES, D),
        guidance_embedder=_mlp(_TIMES, D) if guidance else None,
        text_embedder=_mlp(size(c, "pooled_projection_dim"), D),
    )


def _projected(c: Config, D: Dim) -> Module:  # noqa: N803
    """Return the projection to patches of the output's channels."""
    channels = c.positive("out_channels") if c.present("out_channels") else None
    patch = size(c, "patch_size")
    return Linear(D, patch * patch * (channels or size(c, "in_channels")))


def flux(c: Config) -> Module:
    head = size(c, "attention_head_dim")
    D = size(c, "num_attention_heads") * head

    def double() -> Module:
        return module(
            norm1=_modulation(D, 6),
            norm1_context=_modulation(D, 6),
            attn=_attention(D, head, text="both"),
            ff=_feed_forward(D),
            ff_context=_feed_forward(D),
        )

    def single() -> Module:
        return module(
            norm=_modulation(D, 3),
            proj_mlp=Linear(D, 4 * D),
            proj_out=Linear(5 * D, D),
            attn=_attention(D, head, text="none"),
        )

    return module(
        time_text_embed=_time_text_embed(c, D, guidance=c.flag("guidance_embeds")),
        context_embedder=Linear(size(c, "joint_attention_dim"), D),
        x_embedder=Linear(size(c, "in_channels"), D),
        transformer_blocks=_repeated(c, "num_layers", double()),
        single_transformer_blocks=_repeated(c, "num_single_layers", single()),
        norm_out=_modulation(D, 2),
        proj_out=_projected(c, D),
    )


def _repeated(c: Config, key: str, layer: Module) -> Repeat:
    _layers(c, key)  # bounded
    return repeat(c.dim(key), lambda: layer)


def sd3(c: Config) -> Module:
    require(c, "qk_norm", None, "rms_norm")
    head = size(c, "attention_head_dim")
    D = size(c, "num_attention_heads") * head
    if not c.truth("pos_embed_max_size"):  # the positions are not stored
        raise outside(c, "pos_embed_max_size")
    positions = size(c, "pos_embed_max_size")
    patch = size(c, "patch_size")
    return module(
        pos_embed=module(
            pos_embed=Buffer((1, positions * positions, D)),
            proj=Conv(size(c, "in_channels"), D, (patch, patch)),
        ),
        time_text_embed=_time_text_embed(c, D),
        context_embedder=Linear(size(c, "joint_attention_dim"), size(c, "caption_projection_dim")),
        transformer_blocks=_sd3_layers(c, D, head),
        norm_out=_modulation(D, 2),
        proj_out=_projected(c, D),
    )


def _sd3_layers(c: Config, D: Dim, head: Dim) -> Repeat | Stack:  # noqa: N803
    """Return the blocks; the last one has no output for the text."""
    count = _layers(c, "num_layers")
    dual = {*c.integers("dual_attention_layers")}
    has_norm = c.present("qk_norm")

    def layer(kind: tuple[bool, bool]) -> Module:
        is_dual, is_last = kind
        return module(
            norm1=_modulation(D, 9 if is_dual else 6),
            norm1_context=_modulation(D, 2 if is_last else 6),
            attn=_attention(D, head, text="read" if is_last else "both", has_norm=has_norm),
            attn2=_attention(D, head, has_norm=has_norm) if is_dual else None,
            ff=_feed_forward(D),
            ff_context=None if is_last else _feed_forward(D),
        )

    return stack(counted_dim(count), lambda i: (i in dual, i == count - 1), layer)


CLASSES = MappingProxyType(
    {
        "FluxTransformer2DModel": LibraryForm(FLUX, flux),
        "SD3Transformer2DModel": LibraryForm(SD3, sd3),
    }
)
