"""A model that is a part of something else: a note says what it is and how it is loaded."""

import tempfile
from pathlib import Path

from support.builders import safetensors_bytes
from support.pipelines import BERT, CLIP, DIFFUSION, encoders, model, text, under, written

from auditor import audit

STATES = {"optimizer.bin": b"", "scheduler.bin": b"", "random_states_0.pkl": b""}
WEIGHTS = {"a.weight": ("F32", (2, 2))}


def of_diffusers(name):
    return model({"_class_name": name}, WEIGHTS, name=DIFFUSION)


CASES = {
    "a UNet": (of_diffusers("UNet2DConditionModel"), "pipeline of its base model as unet="),
    "a transformer": (of_diffusers("FluxTransformer2DModel"), "base model as transformer="),
    "a UNet in a folder": (
        under("unet", of_diffusers("UNet2DConditionModel")),
        "UNet2DConditionModel.from_pretrained(...)",
    ),
    "a training's weights": (
        {"model.safetensors": safetensors_bytes(WEIGHTS), **STATES},
        "from_pretrained needs the model's config.json",
    ),
    "a model and its training": (model(BERT) | STATES, "load_state of accelerate resumes it"),
    "models and their training": (
        under("unet", of_diffusers("UNet2DConditionModel")) | under("text", model(CLIP)) | STATES,
        "not a pipeline; load each model alone, with from_pretrained(..., subfolder=...): 'text', ",
    ),
    "a VAE": (of_diffusers("AutoencoderKL"), None),
    "a model": (model(BERT), None),
    "a model and an optimizer": (model(BERT) | {"optimizer.bin": b""}, None),
    "a pipeline": (encoders() | STATES, None),
    "a pipeline with a UNet": (
        {"model_index.json": text({"_class_name": "A", "unet": ["diffusers", "UNet2DModel"]})}
        | under("unet", of_diffusers("UNet2DModel")),
        None,
    ),
}


def test_a_note_says_what_a_part_alone_is(subtests, tmp_path):
    for name, (files, note) in CASES.items():
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = audit(written(place, files))
            notes = [one for part in (outcome, *outcome.parts) for one in part.notes]
            assert any(note in one for one in notes) if note else not notes
