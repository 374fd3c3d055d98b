"""The inventory of each library: names, shapes and roles as it saves them itself."""

import json

import pytest
from support.libraries import needs, with_timm

from auditor.analytic import Role
from auditor.errors import CheckpointError, SourceError
from auditor.oracle.inventory import inventory

pytestmark = pytest.mark.oracle

TINY_VAE = {
    "block_out_channels": [8, 8],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "norm_num_groups": 4,
}


@pytest.fixture(autouse=True)
def _stand_in():
    with_timm()


@needs("diffusers")
@pytest.mark.filterwarnings("ignore")  # torch's about what diffusers uses of it
def test_the_tensors_of_a_component_are_those_that_diffusers_saves(tmp_path):
    import diffusers  # noqa: PLC0415 - seconds
    from safetensors import safe_open  # noqa: PLC0415 - likewise

    diffusers.AutoencoderKL.from_config(TINY_VAE).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_bytes())
    found = inventory("diffusers", "AutoencoderKL", config)
    with safe_open(tmp_path / "diffusion_pytorch_model.safetensors", "pt") as file:
        stored = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no mapping
    assert {one.name: one.shape for one in found.tensors} == stored


@needs("timm")
@pytest.mark.parametrize(
    ("architecture", "config", "parameters"),
    [  # as the model cards of timm say: millions with a digit or two; the last is 1000 * 512
        ("resnet50", {"num_classes": 1000}, 25_557_032),
        ("vit_base_patch16_224", {"num_classes": 1000}, 86_567_656),
        ("resnet18", {"num_classes": 0}, 11_689_512 - 1000 * 513),
    ],
)
def test_the_parameters_of_an_architecture_are_the_published_ones(architecture, config, parameters):
    found = inventory("timm", architecture, config)
    assert found.parameters == parameters
    counters = {one.role for one in found.tensors if one.name.endswith("num_batches_tracked")}
    assert counters <= {Role.LEGACY}


@needs("timm")
def test_arguments_that_read_files_are_not_passed_to_timm():
    reads = {"checkpoint_path": "/etc/passwd", "pretrained": True}
    assert inventory("timm", "resnet18", {"pretrained_cfg": {}, "model_args": reads}) == inventory(
        "timm", "resnet18", {}
    )


@needs("diffusers")
@pytest.mark.parametrize("target", ["ModelMixin", "StableDiffusionPipeline", "utils", "Nothing"])
def test_only_a_model_class_of_diffusers_is_built(target):
    with pytest.raises(SourceError, match=f"has no model class '{target}'$"):
        inventory("diffusers", target, {})


@needs("diffusers")
def test_a_config_from_which_a_class_cannot_be_built_is_at_fault():
    with pytest.raises(CheckpointError, match=r"^diffusers cannot build AutoencoderKL"):
        inventory("diffusers", "AutoencoderKL", TINY_VAE | {"latent_channels": "4"})


@needs("timm")
@pytest.mark.parametrize("target", ["hf-hub:timm/resnet18", "local-dir:/tmp", "no_such_net"])
def test_only_an_architecture_of_timm_is_built(target):
    with pytest.raises(SourceError, match="has no architecture"):
        inventory("timm", target, {})
