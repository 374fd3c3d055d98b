"""A pipeline of which one component was saved: one cause of all missing components."""

import json

from support.builders import safetensors_bytes

from auditor import audit

UNET = ["diffusers", "UNet2DConditionModel"]
VAE = ["diffusers", "AutoencoderKL"]
TEXT = ["transformers", "CLIPTextModel"]


def folder_of(place, saved, **components):
    index = {"_class_name": "SomebodysPipeline", **components}
    (place / "model_index.json").write_text(json.dumps(index))
    for name in saved:
        folder = place / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"_class_name": components[name][1]}))
        weights = safetensors_bytes({"conv_in.weight": ("F32", (4, 4))})
        (folder / "diffusion_pytorch_model.safetensors").write_bytes(weights)
    return str(place)


def test_the_components_beside_a_lone_unet_have_one_cause(tmp_path):
    report = audit(folder_of(tmp_path, ["unet"], unet=UNET, vae=VAE, text_encoder=TEXT))
    [one] = report.diagnosis
    assert one.cause == "lost-part"
    assert {name for at in one.findings for name in report.findings[at].names} == {
        "vae",
        "text_encoder",
    }
    assert "unet=UNet2DConditionModel.from_pretrained" in one.fix


def test_one_missing_component_of_several_has_no_common_cause(tmp_path):
    report = audit(folder_of(tmp_path, ["unet", "vae"], unet=UNET, vae=VAE, text_encoder=TEXT))
    assert [finding.kind for finding in report.findings] == ["missing-component"]
    assert not report.diagnosis
