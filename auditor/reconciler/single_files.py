"""Notes about files that are a part of something: of a pipeline, of a training, or of a LoRA.

The names that tell the kind of a single file are those by which diffusers 0.42 chooses a config in
`from_single_file`, and those of the formats of LoRA. A kind says what a file is; its tensors are
counted and not reconciled.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from auditor.analytic import ExpectedTensor
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.manifest import PIPELINE
from auditor.messages import listed
from auditor.tensors import StoredTensor

_UNET = "model.diffusion_model."
_SD2 = f"{_UNET}input_blocks.2.1.transformer_blocks.0.attn2.to_k.weight"
_SD2_TEXT = 1024  # the width of OpenCLIP's text encoder; Stable Diffusion 1 has 768
_OPEN_CLIP = "model.transformer.resblocks.9.mlp.c_proj.bias"
_FLUX = "double_blocks.0.img_attn.norm.key_norm.scale"
_SD3 = "joint_blocks.0.context_block.adaLN_modulation.1.bias"
_LLAMA = "a consolidated checkpoint of Mistral or Llama"
# A name that shows the kind of a file -> the kind; the first of them decides.
_KINDS = {
    f"conditioner.embedders.1.{_OPEN_CLIP}": "a checkpoint of SDXL",
    f"conditioner.embedders.0.{_OPEN_CLIP}": "a checkpoint of SDXL's refiner",
    f"{_UNET}output_blocks.11.0.skip_connection.weight": "a checkpoint of Stable Diffusion 1",
    "control_model.time_embed.0.weight": "an original ControlNet",
    _SD3: "a checkpoint of Stable Diffusion 3",
    f"{_UNET}{_SD3}": "a checkpoint of Stable Diffusion 3",
    _FLUX: "a checkpoint of Flux",
    f"{_UNET}{_FLUX}": "a checkpoint of Flux",
    "layers.0.attention.wq.weight": _LLAMA,
}
# The beginning of a name -> the component that the tensor, or the module of a LoRA, belongs to.
_COMPONENTS = {
    _UNET: "of the denoiser",
    "first_stage_model.": "of the VAE",
    "vae.": "of the VAE",
    "cond_stage_model.": "of the text encoder",
    "conditioner.": "of the text encoders",
    "text_encoders.": "of the text encoders",
    "model_ema.": "of an average of the denoiser",
    "lora_unet_": "of the denoiser",
    "lora_te": "of the text encoders",
    "diffusion_model.": "of the denoiser",
    "text_encoder": "of the text encoders",
    "transformer.": "of the denoiser",
    "unet.": "of the denoiser",
}
# The beginning of the names in a LoRA -> the software that writes it.
_WRITERS = {
    "lora_": "kohya",
    "diffusion_model.": "ComfyUI",
    **dict.fromkeys(("text_encoder", "transformer.", "unet."), "diffusers"),
}
# The ends of the name of a LoRA's first matrix, one for each module.
_LORA = (".lora_down.weight", ".lora_A.weight", ".lora.down.weight", ".lora_A.default.weight")
_PREFIXES = ("unet.", "transformer.", "lora_unet_", "diffusion_model.")  # of a denoiser's modules
_ABSENT = -1  # the width of a module that a base lacks
# Files that accelerate's save_state writes next to the models.
_TRAINING_STATE = re.compile(r"(optimizer|scheduler)(_\d+)?\.bin|random_states_\d+\.pkl")
# Classes of diffusers that a pipeline has as `unet` or `transformer`.
_DENOISER = re.compile(r"\w*(UNet\w*|Transformer([23]D)?)Model", re.ASCII)


def single_file_notes(tensors: Iterable[StoredTensor]) -> Iterator[str]:
    """Yield a sentence about the format of a file whose names are of a known kind."""
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    kind = next((kind for name, kind in _KINDS.items() if name in shapes), None)
    if (shapes.get(_SD2) or ())[-1:] == (_SD2_TEXT,):
        kind = "a checkpoint of Stable Diffusion 2"
    if kind is not None:
        how = "from_single_file of diffusers loads it"
        if kind == _LLAMA:
            how = "transformers needs it converted"
        yield f"the names are those of {kind}: {_counted(shapes, 'of other parts')}; {how}"
        return
    modules = {name: shape for name, shape in shapes.items() if name.endswith(_LORA)}
    writers = {_of_start(name, _WRITERS, "") for name in modules} - {""}
    if writers:
        alike = f"a LoRA as {' and '.join(sorted(writers))} writes it"
        yield f"the names are those of {alike}: modules {_counted(modules, 'of unknown parts')}"
    if modules:
        yield from _base_notes(modules)


def _of_start(name: str, values: Mapping[str, str], otherwise: str) -> str:
    return next((value for start, value in values.items() if name.startswith(start)), otherwise)


def _counted(names: Iterable[str], otherwise: str) -> str:
    counts = Counter(_of_start(name, _COMPONENTS, otherwise) for name in names)
    return ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))


def _base_notes(first_matrices: Mapping[str, tuple[int, ...] | None]) -> Iterator[str]:
    """Yield a sentence about the base whose denoiser has most of a LoRA's modules, if any has.

    `first_matrices` has the name and shape of each module's first matrix: (rank, inputs, ...).
    Names of diffusers, of kohya (with _ for each dot) and of ComfyUI are compared with _ for each
    dot. kohya's names of SDXL and both writers' names of Flux are those of the original models.
    """
    from auditor.analytic.diffusion.original_models import (  # noqa: PLC0415 - few are a LoRA
        ORIGINAL_MODELS,
        denoiser,
        in_diffusers,
    )

    inputs_by_module: dict[str, int | None] = {}
    has_prefix = False
    for name, shape in first_matrices.items():
        if not name.startswith(("text_encoder", "lora_te")):
            prefix = next((one for one in _PREFIXES if name.startswith(one)), "")
            module = name.removeprefix(prefix).partition(".lora")[0].replace(".", "_")
            inputs_by_module[module] = shape[1] if shape and len(shape) > 1 else None
            has_prefix = has_prefix or bool(prefix)
    base, most = "", 0
    for one in ORIGINAL_MODELS:
        widths = {**_input_widths(denoiser(one)), **_input_widths(in_diffusers(one))}
        met = sum(widths.get(name, _ABSENT) == size for name, size in inputs_by_module.items())
        if met > most:
            base, most = one, met
    if not base:
        return
    count = len(inputs_by_module)
    others = f"; {count - most:,} have another name or width" if count > most else ""
    yield f"{most:,} of {count:,} modules of a denoiser are in {base}{others}"
    own_names = _input_widths(in_diffusers(base))
    original_names = _input_widths(denoiser(base)).keys() - own_names
    if not has_prefix and original_names.isdisjoint(inputs_by_module):
        own_prefix = "unet." if "UNet" in (ORIGINAL_MODELS[base].target or "") else "transformer."
        yield (
            "no name has a prefix: load_lora_weights of diffusers ignores them; it finds them as "
            f"{own_prefix}NAME"
        )


def _input_widths(tensors: Iterable[ExpectedTensor]) -> Mapping[str, int]:
    """Return the input width of each matrix, by its module's name with _ for each dot."""
    return {
        one.name.removesuffix(".weight").replace(".", "_"): one.shape[1]
        for one in tensors
        if one.name.endswith(".weight") and len(one.shape) > 1
    }


def training_notes(snapshot: Snapshot, folders: Collection[str] = ()) -> Iterator[str]:
    """Yield a note if the folder is a training checkpoint of accelerate, and not a pipeline.

    `folders` are those of its models; () if the only model is in the root.
    """
    states = [file.name for file in snapshot.files if _TRAINING_STATE.fullmatch(file.name)]
    if snapshot.manifest or not any(name.endswith(".pkl") for name in states):
        return
    what = f"{listed(states)} are states of a training that accelerate saved"
    if folders:
        yield (
            f"{what}, and {PIPELINE} is not there: a training checkpoint, not a pipeline; load "
            f"each model alone, with from_pretrained(..., subfolder=...): {listed(sorted(folders))}"
        )
    elif snapshot.config is None:
        yield (
            f"{what}: load_state of accelerate resumes it, and from_pretrained needs the model's "
            "config.json, which save_pretrained writes; --config FILE audits the weights with one"
        )
    else:
        yield f"{what}: load_state of accelerate resumes it, and from_pretrained does not read them"


def denoiser_notes(name: str) -> Iterator[str]:
    """Yield a note if a class of diffusers, outside of a pipeline, is the denoiser of pipelines."""
    if _DENOISER.fullmatch(name):
        keyword = "unet" if "UNet" in name else "transformer"
        yield (
            f"the denoiser of a pipeline, and {PIPELINE} is not there: DiffusionPipeline does not "
            f"load it alone; give {name}.from_pretrained(...) to the pipeline of its base model as "
            f"{keyword}="
        )
