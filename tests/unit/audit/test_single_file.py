"""Single files of published models: compared with the model that their names and shapes fit."""

from math import prod

from msgspec.structs import replace
from support.small_snapshots import snapshot_of

from auditor.analytic.diffusion.original_models import (
    ORIGINAL_MODELS,
    denoiser,
    text_encoder,
    vae,
)
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.tensors import StoredTensor

UNET, VAE, CLIP = "model.diffusion_model.", "first_stage_model.", "cond_stage_model.transformer."
FIRST = f"{UNET}input_blocks.0.0.weight"
SD1 = "Stable Diffusion 1"


def shapes_of(model, start=UNET):
    of = ORIGINAL_MODELS[model]
    parts = {start: denoiser(model), VAE: vae(model)}
    parts |= {prefix: text_encoder(encoder) for prefix, encoder in of.text_encoders.items()}
    return {prefix + one.name: one.shape for prefix, part in parts.items() for one in part}


def audited(shapes):
    tensors = [
        StoredTensor(name, "F16", shape, prod(shape), "model.safetensors", 2 * prod(shape))
        for name, shape in shapes.items()
    ]
    return examine(replace(snapshot_of(tensors), config=None), Options(requested="file"))


def alarms(outcome):
    return [(one.kind, one.names) for one in outcome.findings if one.severity != "info"]


def test_a_sound_file_is_clean_and_its_model_is_told(subtests):
    for model in [name for name, of in ORIGINAL_MODELS.items() if of.target]:
        for start in [UNET, ""]:
            with subtests.test(start=start, model=model):
                shapes = shapes_of(model, start)
                if not start:  # such files hold a denoiser alone
                    shapes = {one.name: one.shape for one in denoiser(model)}
                outcome = audited(shapes)
                assert (outcome.verdict, outcome.target, outcome.residual) == ("clean", model, 0)


def test_a_vae_alone_is_told(subtests):
    for start in [VAE, "vae.", ""]:
        for model in [name for name, of in ORIGINAL_MODELS.items() if not of.target]:
            with subtests.test(model=model, start=start):
                outcome = audited({start + one.name: one.shape for one in vae(model)})
                assert (outcome.verdict, outcome.target) == ("clean", model)


def test_a_lost_and_a_reshaped_tensor_of_each_component_are_named(subtests):
    for part in range(3):
        for model in ["Stable Diffusion 2", "SDXL", "Flux.1", "Stable Diffusion 3 medium"]:
            with subtests.test(model=model, part=part):
                shapes = shapes_of(model)
                prefix = (UNET, VAE, next(iter(ORIGINAL_MODELS[model].text_encoders)))[part]
                matrices = [
                    one for one in shapes if one.startswith(prefix) and len(shapes[one]) > 1
                ]
                lost, reshaped = matrices[len(matrices) // 2], matrices[len(matrices) // 3]
                del shapes[lost]
                shapes[reshaped] = (shapes[reshaped][0], *shapes[reshaped][1:-1], 5)
                assert alarms(audited(shapes)) == [
                    ("mismatched", (reshaped,)),
                    ("missing", (lost,)),
                ]


def test_what_a_file_lacks_as_a_whole_is_noted():
    shapes = {name: shape for name, shape in shapes_of(SD1).items() if name.startswith(UNET)}
    outcome = audited(shapes)
    assert outcome.verdict == "clean"
    assert any(
        "has no VAE and no text encoder (cond_stage_model.transformer)" in note
        for note in outcome.notes
    )


def test_other_published_numbers_of_input_channels_are_no_fault(subtests):
    for model, first, channels in [
        (SD1, FIRST, 9),
        (SD1, FIRST, 8),
        ("Flux.1", f"{UNET}img_in.weight", 384),
    ]:
        with subtests.test(model=model, first=first, channels=channels):
            shapes = shapes_of(model)
            shapes[first] = (shapes[first][0], channels, *shapes[first][2:])
            outcome = audited(shapes)
            assert outcome.verdict == "clean"
            assert any(f"with {channels} input channels" in note for note in outcome.notes)


def test_a_schedule_and_an_average_are_no_fault():
    shapes = shapes_of(SD1) | {"betas": (1000,), "model_ema.decay": ()}
    for one in denoiser(SD1):
        shapes[f"model_ema.diffusion_model{one.name.replace('.', '')}"] = one.shape
    outcome = audited(shapes)
    assert outcome.verdict == "clean"
    assert any("average of the denoiser" in note for note in outcome.notes)


def test_other_forms_that_loaders_read_are_no_fault():
    matrices = {
        name: shape[:2] if ".mid.attn_1." in name else shape
        for name, shape in shapes_of(SD1).items()
    }
    older = {name.replace(f"{CLIP}text_model.", CLIP): shape for name, shape in matrices.items()}
    assert audited(older).verdict == "clean"
    without_guidance = {n: s for n, s in shapes_of("Flux.1").items() if "guidance_in." not in n}
    assert audited(without_guidance).verdict == "clean"


def of_half_the_blocks():
    return {name: shape for name, shape in shapes_of("SDXL").items() if "output_blocks" not in name}


def of_depth():
    return shapes_of("Stable Diffusion 2") | {FIRST: (320, 5, 3, 3)}


def of_scaled_weights():
    return shapes_of("Flux.1") | {"scaled_fp8": (2,)}


def test_a_file_of_no_known_model_is_tallied_and_never_clean(subtests):
    for unknown in [of_half_the_blocks, of_depth, of_scaled_weights]:
        with subtests.test(unknown=unknown):
            outcome = audited(unknown())
            assert (outcome.verdict, outcome.target) == ("unaudited", None)
            assert outcome.observed.tensors == len(unknown())


def test_a_tensor_that_the_model_lacks_is_named():
    assert alarms(audited(shapes_of(SD1) | {"a.weight": (2,)})) == [("unexpected", ("a.weight",))]


def test_the_text_encoders_have_their_published_sizes(subtests):
    for model, parameters in [
        # github.com/buddy-compiler/buddy-mlir, examples/BuddyStableDiffusion: what diffusers reads
        ("Stable Diffusion 2", 340_387_840),
        # github.com/FanBB2333/FakeGPU, fakegpu/data/diffusion_profiles.json: from the Hub's headers
        ("SDXL", 817_720_320),
    ]:
        with subtests.test(model=model, parameters=parameters):
            encoders = ORIGINAL_MODELS[model].text_encoders.values()
            tensors = [one for each in encoders for one in text_encoder(each)]
            assert sum(one.elements for one in tensors if one.role == "parameter") == parameters
