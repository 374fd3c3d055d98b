"""The expectation of a single file without a config, if its names are those of a published model.

The published model is the one that most names and shapes of the file fit. What a file may lack as
a whole (a VAE, text encoders) or store besides (an average, a schedule) is no difference.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic import ExpectedTensor, Role
from auditor.analytic.diffusion.original_models import (
    ORIGINAL_MODELS,
    denoiser,
    text_encoder,
    vae,
)
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.loading import Loading
from auditor.audit.expected import Implied
from auditor.messages import named
from auditor.reconciler.reconcile import FamilyExpectations
from auditor.tensors import StoredTensor

Shapes = Mapping[str, tuple[int, ...] | None]

_DENOISERS, _VAES = ("model.diffusion_model.", ""), ("first_stage_model.", "vae.")
_AVERAGE = "model_ema."
# Other models whose blocks have the same names, such as SSD-1B, fit SDXL in 60 % of its names.
_FITTING = 3 / 4
# Class of the denoiser, None for a VAE alone -> the beginning of its blocks' names.
_BLOCKS = MappingProxyType(
    {
        "FluxTransformer2DModel": "double_blocks.",
        "SD3Transformer2DModel": "joint_blocks.",
        "UNet2DConditionModel": "input_blocks.",
        None: "decoder.",
    }
)
# Class of the denoiser -> its first layer, and the numbers of input channels that were published:
# latents; or also those of another image (8), or of a masked image and the mask (9).
_INPUTS = MappingProxyType(
    {
        "FluxTransformer2DModel": ("img_in.weight", (64, 128, 384)),
        "SD3Transformer2DModel": ("x_embedder.proj.weight", (16,)),
        "UNet2DConditionModel": ("input_blocks.0.0.weight", (4, 8, 9)),
    }
)
# What trainings and other software store, and no loader of diffusers reads: the schedule's tensors.
_SCHEDULE = (
    *("betas", "alphas_cumprod", "alphas_cumprod_prev", "sqrt_alphas_cumprod", "logvar"),
    *("sqrt_one_minus_alphas_cumprod", "log_one_minus_alphas_cumprod", "denoiser.sigmas"),
    *("sqrt_recip_alphas_cumprod", "sqrt_recipm1_alphas_cumprod", "posterior_variance"),
    *("posterior_log_variance_clipped", "posterior_mean_coef1", "posterior_mean_coef2"),
    *("model_ema.decay", "model_ema.num_updates", "v_pred", "ztsnr", "edm_mean", "edm_std"),
    *("edm_vpred.sigma_max", "edm_vpred.sigma_min"),
)
# What ComfyUI stores of quantized layers.
_SCALES = ("scaled_fp8", ".scale_weight", ".weight_scale", ".comfy_quant")


class SingleFile(NamedTuple):
    """The expectation of a file, or None if its model is not known, and sentences about it."""

    implied: Implied | None = None
    notes: tuple[str, ...] = ()


def single_file(tensors: Iterable[StoredTensor]) -> SingleFile:
    """Return what a single file of a published model should store."""
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    if any(name.endswith(_SCALES) for name in shapes):
        return SingleFile()
    fitting = _model_of(shapes)
    if fitting is None:
        return SingleFile()
    model, start = fitting
    target = ORIGINAL_MODELS[model].target
    if target and (channels := _unknown_channels(shapes, start, target)):
        return SingleFile(notes=(channels,))
    components = dict(_components(shapes, model, start))
    stored = {
        prefix: component
        for prefix, component in components.items()
        if not prefix or any(name.startswith(prefix) for name in shapes)
    }
    expected = tuple(_as_stored(one, shapes) for each in stored.values() for one in each.tensors)
    besides = (ExpectedTensor(name, (), 1, Role.LEGACY) for name in _SCHEDULE if name in shapes)
    expectation = summed_expectation(
        model,
        model_type="",
        prefix="",
        tensors=(*expected, *besides, *_average(expected, start, shapes)),
        loading=Loading(legacy=()),
        by="closed-form",
    )
    family = FamilyExpectations(declared=expectation, siblings=lambda: ())
    return SingleFile(
        Implied(expectation, family), tuple(_notes(model, components, stored, shapes))
    )


class _Component(NamedTuple):
    """A component that a file may have: what it is called, and its tensors."""

    name: str
    tensors: tuple[ExpectedTensor, ...]


def _model_of(shapes: Shapes) -> tuple[str, str] | None:
    """Return the model and the prefix that fit most tensors, or None if too few fit."""
    best, most = None, 0
    for model, of in ORIGINAL_MODELS.items():
        for start in _DENOISERS if of.target else (*_VAES, ""):
            if not any(name.startswith(start + _BLOCKS[of.target]) for name in shapes):
                continue
            tensors = denoiser(model) if of.target else vae(model)
            fitting = sum(shapes.get(start + one.name, ()) == one.shape for one in tensors)
            inside = sum(name.startswith(start if of.target else "") for name in shapes)
            if fitting > most and fitting >= _FITTING * max(len(tensors), inside):
                best, most = (model, start), fitting
    return best


def _unknown_channels(shapes: Shapes, start: str, target: str) -> str:
    """Return a sentence about a number of input channels that no published model has, else ""."""
    name, known = _INPUTS[target]
    shape = shapes.get(start + name)
    if shape is None or len(shape) < 2 or shape[1] in known:  # noqa: PLR2004 - (outputs, inputs)
        return ""
    numbers = " or ".join(map(str, known))
    return f"{named(start + name)} has {shape[1]} input channels, expected {numbers}"


def _components(shapes: Shapes, model: str, start: str) -> Iterator[tuple[str, _Component]]:
    """Yield the components of a model with their prefixes in the file."""
    target, _, _, encoders = ORIGINAL_MODELS[model]
    if target is None:
        yield start, _Component("VAE", _below(start, vae(model)))
        return
    tensors = denoiser(model)
    if not any(name.startswith(f"{start}guidance_in.") for name in shapes):
        tensors = tuple(one for one in tensors if not one.name.startswith("guidance_in."))
    first, (usual, *_) = _INPUTS[target]
    below = (
        _with_inputs(one, shapes) if one.name == start + first else one
        for one in _below(start, tensors)
    )
    variant = {one.name: one for one in below}
    channels = variant[start + first].shape[1]
    inputs = "" if channels == usual else f" with {channels} input channels"
    yield start, _Component(f"denoiser{inputs}", tuple(variant.values()))
    of_vae = next((one for one in _VAES if any(name.startswith(one) for name in shapes)), _VAES[0])
    yield of_vae, _Component("VAE", _below(of_vae, vae(model)))
    for prefix, encoder in encoders.items():
        is_older = any(name.startswith(f"{prefix}embeddings.") for name in shapes)  # webui's CLIP
        of = text_encoder(encoder._replace(inside="") if is_older else encoder)
        what = f"text encoder ({prefix.removesuffix('.')})"
        yield prefix, _Component(what, _below(prefix, of))


def _below(start: str, tensors: Iterable[ExpectedTensor]) -> tuple[ExpectedTensor, ...]:
    return tuple(one._replace(name=start + one.name) for one in tensors)


def _with_inputs(one: ExpectedTensor, shapes: Shapes) -> ExpectedTensor:
    """Return the first layer with as many input channels as the file's."""
    stored = shapes.get(one.name)
    if stored is None or len(stored) != len(one.shape):
        return one
    outputs, inputs, *kernel = one.shape
    elements = one.elements // inputs * stored[1]
    return one._replace(shape=(outputs, stored[1], *kernel), elements=elements)


def _as_stored(one: ExpectedTensor, shapes: Shapes) -> ExpectedTensor:
    """Return a matrix of the VAE's attention in its stored form; diffusers reads all three."""
    if ".mid.attn_1." not in one.name or one.shape[2:] != (1, 1):
        return one
    forms = (one.shape, one.shape[:3], one.shape[:2])
    stored = shapes.get(one.name)
    return one._replace(shape=stored) if stored in forms and stored else one


def _average(
    expected: Iterable[ExpectedTensor], start: str, shapes: Shapes
) -> Iterator[ExpectedTensor]:
    """Yield the tensors of a training's average of the denoiser, which loading does not need."""
    for one in expected:
        if one.name.startswith(start) and start:
            name = _AVERAGE + one.name.removeprefix("model.").replace(".", "")
            if name in shapes:
                yield one._replace(name=name, role=Role.EXTRA)


def _notes(
    model: str,
    components: Mapping[str, _Component],
    stored: Mapping[str, _Component],
    shapes: Shapes,
) -> Iterator[str]:
    counts = ", ".join(f"{len(one.tensors):,} of the {one.name}" for one in stored.values())
    yield f"the file is compared with {model} as published, by names and shapes: {counts}"
    if absent := [one.name for prefix, one in components.items() if prefix not in stored]:
        yield f"the file has no {' and no '.join(absent)}: a loader needs other files for that"
    if any(name.startswith(_AVERAGE) for name in shapes):
        yield f"{_AVERAGE}* is an average of the denoiser: from_single_file does not read it"
