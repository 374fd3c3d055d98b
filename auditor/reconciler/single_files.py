"""The kinds of single files without a config, told from the names of their tensors.

The names are those by which diffusers 0.42 chooses a config in `from_single_file`, and those of the
formats of LoRA. A kind says what a file is; its tensors are counted and not reconciled.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from auditor.tensors import StoredTensor

_Place = TypeVar("_Place")
Shapes = Mapping[str, tuple[int, ...] | None]

_UNET = "model.diffusion_model."
_FIRST = f"{_UNET}input_blocks.0.0.weight"
_SD2 = f"{_UNET}input_blocks.2.1.transformer_blocks.0.attn2.to_k.weight"
_SD2_TEXT = 1024  # the width of OpenCLIP's text encoder; Stable Diffusion 1 has 768
_MASKED, _EDITED = 9, 8  # channels: latents, the masked image's and the mask; two images' latents
_FLUX = "double_blocks.0.img_attn.norm.key_norm.scale"
_SD3 = "joint_blocks.0.context_block.adaLN_modulation.1.bias"


class _Kind(NamedTuple):
    """A format of files: what it is called, and a test of the names."""

    name: str
    is_kind: Callable[[Shapes], bool]
    how: str  # how to load it


def _with(*names: str) -> Callable[[Shapes], bool]:
    return lambda shapes: any(name in shapes for name in names)


def _is_sd2(shapes: Shapes) -> bool:
    shape = shapes.get(_SD2)
    return shape is not None and shape[-1:] == (_SD2_TEXT,)


def _is_consolidated(shapes: Shapes) -> bool:
    return "tok_embeddings.weight" in shapes and "layers.0.attention.wq.weight" in shapes


_SINGLE = "from_single_file of diffusers loads it"
_OPEN_CLIP = "model.transformer.resblocks.9.mlp.c_proj.bias"
_KINDS = (
    _Kind("a checkpoint of Stable Diffusion 2", _is_sd2, _SINGLE),
    _Kind("a checkpoint of SDXL", _with(f"conditioner.embedders.1.{_OPEN_CLIP}"), _SINGLE),
    _Kind(
        "a checkpoint of SDXL's refiner", _with(f"conditioner.embedders.0.{_OPEN_CLIP}"), _SINGLE
    ),
    _Kind(
        "a checkpoint of Stable Diffusion 1",
        _with(f"{_UNET}output_blocks.11.0.skip_connection.weight"),
        _SINGLE,
    ),
    _Kind("an original ControlNet", _with("control_model.time_embed.0.weight"), _SINGLE),
    _Kind("a checkpoint of Stable Diffusion 3", _with(_SD3, f"{_UNET}{_SD3}"), _SINGLE),
    _Kind("a checkpoint of Flux", _with(_FLUX, f"{_UNET}{_FLUX}"), _SINGLE),
    _Kind(
        "a consolidated checkpoint of Mistral or Llama",
        _is_consolidated,
        "transformers needs it converted",
    ),
)
_COMPONENTS = {
    _UNET: "of the denoiser",
    "first_stage_model.": "of the VAE",
    "vae.": "of the VAE",
    "cond_stage_model.": "of the text encoder",
    "conditioner.": "of the text encoders",
    "text_encoders.": "of the text encoders",
    "model_ema.": "of an average of the denoiser",
}

# The ends of the name of a LoRA's first matrix, one for each module, and their formats.
LORA = (".lora_down.weight", ".lora_A.weight", ".lora.down.weight", ".lora_A.default.weight")
_LORA_COMPONENTS = {
    "lora_unet_": ("kohya", "of the denoiser"),
    "lora_te": ("kohya", "of the text encoders"),
    "diffusion_model.": ("ComfyUI", "of the denoiser"),
    "text_encoder": ("diffusers", "of the text encoders"),
    "transformer.": ("diffusers", "of the denoiser"),
    "unet.": ("diffusers", "of the denoiser"),
}
_UNKNOWN = ("", "of unknown parts")


def single_file_notes(tensors: Iterable[StoredTensor]) -> Iterator[str]:
    """Yield a sentence about the format of a file whose names are of a known kind."""
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    kind = next((each for each in _KINDS if each.is_kind(shapes)), None)
    if kind is not None:
        counts = Counter(_place(name, _COMPONENTS, "of other parts") for name in shapes)
        first = shapes.get(_FIRST)
        channels = first[1] if first and len(first) > 1 else None
        use = {_MASKED: " for inpainting", _EDITED: " for editing"}.get(channels or 0, "")
        yield f"the names are those of {kind.name}{use}: {_counted(counts)}; {kind.how}"
        return
    modules = [name for name in shapes if name.endswith(LORA)]
    if not modules:
        return
    places = [_place(name, _LORA_COMPONENTS, _UNKNOWN) for name in modules]
    formats = sorted({writer for writer, _ in places} - {""})
    if formats:
        counts = Counter(component for _, component in places)
        alike = f"a LoRA as {' and '.join(formats)} writes it"
        yield f"the names are those of {alike}: modules {_counted(counts)}"
    from auditor.reconciler.denoiser_lora import lora_notes  # noqa: PLC0415 - few are a LoRA

    yield from lora_notes({name: shapes[name] for name in modules})


def _place(name: str, places: Mapping[str, _Place], otherwise: _Place) -> _Place:
    """Return the component whose names begin as this one."""
    return next((place for start, place in places.items() if name.startswith(start)), otherwise)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
