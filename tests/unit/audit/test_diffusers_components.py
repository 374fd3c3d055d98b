"""Components of pipelines as diffusers saves them, reconciled by closed forms."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from support.libraries import needs

from auditor import audit

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore"), needs("diffusers")]

WEIGHTS = "diffusion_pytorch_model.safetensors"
UNET = {
    "block_out_channels": [8, 16],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    "attention_head_dim": 2,
    "cross_attention_dim": 12,
    "layers_per_block": 1,
    "norm_num_groups": 4,
}
VAE = {
    "block_out_channels": [8],
    "down_block_types": ["DownEncoderBlock2D"],
    "up_block_types": ["UpDecoderBlock2D"],
    "norm_num_groups": 4,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    import diffusers  # noqa: PLC0415 - seconds

    folder = tmp_path_factory.mktemp("pipeline")
    diffusers.UNet2DConditionModel.from_config(UNET).save_pretrained(folder / "unet")
    diffusers.AutoencoderKL.from_config(VAE).save_pretrained(folder / "vae")
    parts = {"unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]}
    index = {"_class_name": "SomebodysPipeline", "_diffusers_version": "0.42.1", **parts}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def test_a_sound_pipeline_is_clean(sound):
    outcome = audit(str(sound))
    assert outcome.verdict == "clean"
    assert [part.expected.by for part in outcome.parts] == ["closed-form"] * 2
    assert audit(str(sound / "vae")).verdict == "clean"


@pytest.mark.parametrize("part", ["unet", "vae"])
def test_a_component_that_lost_a_tensor_has_a_finding(sound, part):
    file = sound / part / WEIGHTS
    tensors = load_file(file)
    lost = next(name for name in sorted(tensors) if "resnets" in name and "conv1.weight" in name)
    save_file({name: value for name, value in tensors.items() if name != lost}, file)
    try:
        for folder in (sound, sound / part):
            outcome = audit(str(folder))
            alarms = [one for one in outcome.findings if one.severity != "info"]
            [finding] = alarms or [one for each in outcome.parts for one in each.findings]
            assert finding.kind == "missing"
            assert lost in finding.names
    finally:
        save_file(tensors, file)


def test_a_vae_with_the_names_of_older_versions_is_clean(sound):
    file = sound / "vae" / WEIGHTS
    tensors = load_file(file)
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    older = {}
    for name, value in tensors.items():
        renamed = name
        for current, old in names.items():
            renamed = renamed.replace(f".{current}.", f".{old}.")
        older[renamed] = value
    assert older.keys() != tensors.keys()
    save_file(older, file)
    try:
        assert audit(str(sound / "vae")).verdict == "clean"
    finally:
        save_file(tensors, file)
