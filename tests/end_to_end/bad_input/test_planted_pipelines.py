"""Pipelines of diffusers with a planted fault, audited from the command line without diffusers."""

import json
import tempfile
from pathlib import Path

from support.bad_input.running import CLEAN, FINDINGS
from support.builders import safetensors_bytes
from support.pipelines import CLIP, DIFFUSION, INDEX, model, text, under, written

from auditor.analytic import Config
from auditor.analytic.diffusion import expect_diffusers

UNET = {
    "_class_name": "UNet2DConditionModel",
    "block_out_channels": [8, 16],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "attention_head_dim": 2,
    "cross_attention_dim": CLIP["hidden_size"],
    "layers_per_block": 1,
    "norm_num_groups": 4,
}
VAE = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [8],
    "down_block_types": ["DownEncoderBlock2D"],
    "up_block_types": ["UpDecoderBlock2D"],
    "norm_num_groups": 4,
}
PARTS = {"unet": ["diffusers", UNET["_class_name"]], "vae": ["diffusers", VAE["_class_name"]]}


def component(config, *, lost=(), variant=""):
    expected = expect_diffusers(Config(values=config), config["_class_name"])
    stored = {one.name: ("F16" if variant else "F32", one.shape) for one in expected.tensors}
    name = DIFFUSION.replace(".", f".{variant}.", 1) if variant else DIFFUSION
    return model(config, {key: stored[key] for key in stored if key not in lost}, name=name)


def pipeline(index=INDEX, **changes):
    folders = {
        "unet": component(UNET),
        "vae": component(VAE),
        "text_encoder": model(CLIP),
        "tokenizer": {"tokenizer_config.json": b"{}"},
        "scheduler": {"scheduler_config.json": b"{}"},
        **changes,
    }
    files = {"model_index.json": text(index | PARTS)}
    for folder, content in folders.items():
        files |= under(folder, content)
    return files


IDS = {f"t{number}": number for number in range(CLIP["vocab_size"])}


def tokenizer(**more):
    return {"vocab.json": text(IDS | more), "tokenizer_config.json": b"{}"}


LOST = "mid_block.resnets.0.conv1.weight"
PLANTED = {
    "a sound one": (pipeline(), None),
    "a tokenizer with a token more": (
        pipeline(tokenizer=tokenizer(more=len(IDS))),
        ("token-beyond-embedding", f"vocab.{len(IDS)}"),
    ),
    "a UNet tensor lost": (pipeline(unet=component(UNET, lost={LOST})), ("missing", LOST)),
    "a wrong VAE": (
        pipeline(vae=component(VAE | {"latent_channels": 16})),
        ("config-contradiction", "in_channels"),
    ),
    "a variant of one component only": (
        pipeline(unet=component(UNET, variant="fp16")),
        ("missing-component", "unet"),
    ),
    "a component missing": (pipeline(vae={}), ("missing-component", "vae")),
}


def alarms(outcome):
    for part in (outcome, *outcome["parts"]):
        for finding in part["findings"]:
            if finding["severity"] != "info":
                yield finding["kind"], finding["names"]


def test_a_planted_fault_is_the_only_finding(subtests, audit, tmp_path):
    for name, (files, planted) in PLANTED.items():
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            ran = audit(written(place, files), "--format", "json")
            found = list(alarms(ran.outcome))
            assert ran.code == (FINDINGS if planted else CLEAN)
            assert [kind for kind, _ in found] == ([planted[0]] if planted else [])
            assert all(planted[1] in names for _, names in found)


def test_the_channels_that_a_pipeline_puts_together(subtests, audit, tmp_path):
    for target, channels, code in [
        ("StableDiffusionInpaintPipeline", 9, CLEAN),
        ("StableDiffusionPipeline", 9, FINDINGS),
        ("SomebodysPipeline", 9, CLEAN),
    ]:
        with subtests.test(target=target, channels=channels, code=code):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            files = pipeline(
                {**INDEX, "_class_name": target}, unet=component(UNET | {"in_channels": channels})
            )
            assert audit(written(place, files)).code == code


def test_a_key_outside_of_the_form_is_named(audit, tmp_path):
    config = UNET | {"attention_type": "gated"}
    files = model(config, {"conv_in.bias": ("F32", (8,))}, name=DIFFUSION)
    ran = audit(written(tmp_path, files), "--format", "json")
    assert ran.outcome["verdict"] == "unaudited"
    assert "'attention_type'" in json.dumps(ran.outcome)


def test_a_list_of_a_thousand_blocks_is_refused(audit, tmp_path):
    config = UNET | {"block_out_channels": [8] * 1_000, "transformer_layers_per_block": 10**9}
    files = {"config.json": text(config), DIFFUSION: safetensors_bytes({"a": ("F32", (8,))})}
    ran = audit(written(tmp_path, files), "--format", "json")
    assert "expected 1 to 64" in json.dumps(ran.outcome)
