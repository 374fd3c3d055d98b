"""Keys of the configs of diffusers and timm, solved like those of transformers."""

import json

from msgspec.structs import replace
from support.checkpoints import stored, stored_by
from support.diffusers_configs import SMALL_FLUX as FLUX
from support.diffusers_configs import SMALL_SD3 as SD3
from support.diffusers_configs import SMALL_UNET as UNET
from support.diffusers_configs import SMALL_VAE as VAE
from support.small_snapshots import snapshot_of

from auditor.analytic import Config, Role, timm_table
from auditor.analytic.diffusion import expect_diffusers
from auditor.analytic.diffusion.original_models import published_configs
from auditor.audit.options import Options
from auditor.audit.pipeline import examine

OPTIONS = Options(requested="component")


def reported(tensors, config):
    """The report of a component, whose config has no dtype."""
    shot = snapshot_of(tensors)
    content = json.dumps(config).encode()
    return examine(replace(shot, config=replace(shot.config, content=content)), OPTIONS)


def test_keys_of_a_component_are_named_with_the_values_that_the_file_holds(subtests):
    for config, held in [
        (UNET, {"in_channels": 9}),
        (UNET, {"time_cond_proj_dim": 24}),
        (UNET, {"block_out_channels": [8, 24]}),
        (UNET, {"cross_attention_dim": 20, "use_linear_projection": True}),
        (VAE, {"latent_channels": 16}),
        (FLUX, {"pooled_projection_dim": 28}),
        (SD3, {"pos_embed_max_size": 24}),
        (SD3 | {"dual_attention_layers": []}, {"dual_attention_layers": [0, 1]}),
    ]:
        expected = expect_diffusers(Config(values=config | held), config["_class_name"])
        buffers = (one for one in expected.tensors if one.role is Role.BUFFER)
        tensors = [*stored_by(expected), *(stored(one.name, one.shape) for one in buffers)]
        with subtests.test(held=held):
            assert reported(tensors, config | held).verdict == "clean"
            report = reported(tensors, config)
            [found] = report.diagnosis
            assert found.cause == "config-field"
            assert {key: value for key, _, value in found.fields} == held
            assert len(found.findings) == len(report.alarms)


def test_channels_and_the_size_of_a_patch_are_not_decided():
    """4 channels in patches of one pixel are stored like one channel in patches of four."""
    held = FLUX | {"in_channels": 24, "out_channels": 4}
    tensors = stored_by(expect_diffusers(Config(values=held), FLUX["_class_name"]))
    [found] = reported(tensors, FLUX).diagnosis
    assert found.fields == (("in_channels", 4, 24),)
    assert found.alternatives == (
        {"out_channels": 4, "patch_size": 1},
        {"out_channels": 1, "patch_size": 2},
    )


def test_a_number_of_classes_of_timm_is_named():
    config = {"architecture": "resnet18", "pretrained_cfg": {"input_size": [3, 224, 224]}}
    held = Config(values=config | {"num_classes": 11})
    tensors = stored_by(timm_table.expect_timm(held, "resnet18"))
    [found] = reported(tensors, config | {"num_classes": 10}).diagnosis
    assert found.fields == (("num_classes", 10, 11),)


def test_a_denoiser_of_another_published_model_is_named_with_that_model():
    """Stable Diffusion 1 under the config of SDXL: other blocks, heads and projections."""
    models = dict(published_configs("UNet2DConditionModel"))
    saved = {"_class_name": "UNet2DConditionModel", **models["Stable Diffusion 1"]}
    saved["block_out_channels"] = [32, 64, 64, 64]
    declared = {"_class_name": "UNet2DConditionModel", **models["SDXL"]}
    tensors = stored_by(expect_diffusers(Config(values=saved), "UNet2DConditionModel"))
    [found] = reported(tensors, declared).diagnosis
    assert found.cause == "other-size"
    assert found.summary.startswith("the files hold a UNet2DConditionModel like that of Stable Dif")
    assert found.explains.startswith("all ")
