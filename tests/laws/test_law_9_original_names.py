"""Law 9 for single files: the loaders of diffusers read the original names that we expect."""

from types import SimpleNamespace

import pytest
from support.libraries import needs

from auditor.analytic import Config, catalogue
from auditor.analytic.diffusion import expect_diffusers
from auditor.analytic.diffusion.original_models import (
    ORIGINAL_MODELS,
    denoiser,
    text_encoder,
    vae,
)

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore"), needs("diffusers")]

DENOISER, VAE = "model.diffusion_model.", "first_stage_model."
BY_OPEN_CLIP = [
    (prefix, of)
    for each in ORIGINAL_MODELS.values()
    for prefix, of in each.text_encoders.items()
    if of.target == "CLIP"
]


@pytest.fixture(scope="module")
def judge():
    from diffusers.loaders import single_file_utils  # noqa: PLC0415 - seconds

    return single_file_utils


def stored(tensors, prefix):
    """The tensors as a state dict without numbers."""
    import torch  # noqa: PLC0415 - seconds

    return {prefix + one.name: torch.empty(one.shape, device="meta") for one in tensors}


def shapes(state):
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def expected(target, config):
    return {one.name: one.shape for one in expect_diffusers(Config(values=config), target).tensors}


@pytest.mark.parametrize("name", [name for name, of in ORIGINAL_MODELS.items() if of.target])
def test_diffusers_converts_the_denoiser_into_what_its_class_expects(name, judge):
    target, config, *_ = ORIGINAL_MODELS[name]
    convert = {
        "FluxTransformer2DModel": judge.convert_flux_transformer_checkpoint_to_diffusers,
        "SD3Transformer2DModel": judge.convert_sd3_transformer_checkpoint_to_diffusers,
        "UNet2DConditionModel": judge.convert_ldm_unet_checkpoint,
    }[target]
    state = stored(denoiser(name), DENOISER)
    converted = convert(state, config={"layers_per_block": 2, **config})
    assert shapes(converted) == expected(target, config)
    left = {} if target == "UNet2DConditionModel" else state  # its converter takes nothing out
    assert not left


@pytest.mark.parametrize("name", ORIGINAL_MODELS)
def test_diffusers_converts_the_vae_into_what_its_class_expects(name, judge):
    config = ORIGINAL_MODELS[name].vae
    converted = judge.convert_ldm_vae_checkpoint(stored(vae(name), VAE), config)
    assert shapes(converted) == expected("AutoencoderKL", config)
    assert len(converted) == len(vae(name))


@pytest.mark.parametrize(("prefix", "encoder"), BY_OPEN_CLIP)
def test_diffusers_converts_open_clip_into_what_clip_expects(prefix, encoder, judge):
    text = encoder.config["model_cfg"]["text_cfg"]
    state = stored((one for one in text_encoder(encoder) if one.role != "extra"), prefix)
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=text["width"]))
    converted = judge.convert_open_clip_checkpoint(model, state, prefix=prefix)
    layers = text["layers"] - ("transformer.resblocks.23." in encoder.unread)
    config = {
        "hidden_size": text["width"],
        "intermediate_size": 4 * text["width"],
        "model_type": "clip_text_model",
        "num_hidden_layers": layers,
        "projection_dim": text["width"],
        "vocab_size": 49408,
    }
    clip = catalogue.expect(Config(values=config), "CLIPTextModelWithProjection").needed
    projected = "text_projection" not in encoder.unread
    assert shapes(converted) == {
        one.name: one.shape
        for one in clip
        if projected or not one.name.startswith("text_projection")
    }
