"""Which weights of a folder are read, which variants there are, and which folders are models."""

import pytest

from auditor.checkpoint.filenames import (
    FoundWeights,
    SelectedComponent,
    standard_weights,
    variant_of,
    variants,
)
from auditor.checkpoint.model_folders import components, folder_weights, models
from auditor.checkpoint.selecting import FileSelection, select, with_torch_copies
from auditor.containers.manifest import MODULES, PIPELINE
from auditor.errors import Reason, SourceError

ONE, HALF = "model.safetensors", "model.fp16.safetensors"
UNET, TORCH = "diffusion_pytorch_model.safetensors", "pytorch_model.bin"
CONFIG = "config.json"


@pytest.mark.parametrize(
    ("names", "variant", "expected"),
    [
        ({ONE, UNET, TORCH}, None, FoundWeights(weights=ONE)),
        ({UNET, TORCH}, None, FoundWeights(weights=UNET)),
        ({f"{UNET}.index.json"}, None, FoundWeights(index=f"{UNET}.index.json")),
        (
            {"diffusion_pytorch_model.bin"},
            None,
            FoundWeights(weights="diffusion_pytorch_model.bin"),
        ),
        ({ONE, HALF}, "fp16", FoundWeights(weights=HALF)),
        ({ONE}, "fp16", None),
        ({HALF}, None, None),
        (
            {"model.safetensors.index.fp16.json"},
            "fp16",
            FoundWeights(index="model.safetensors.index.fp16.json"),
        ),
        ({f"unet/{UNET}", "other.safetensors"}, None, None),
        (set(), None, None),
    ],
)
def test_safetensors_come_first_and_a_variant_only_on_request(names, variant, expected):
    assert standard_weights(names, variant) == expected


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("model.fp16.safetensors", "fp16"),
        ("unet/diffusion_pytorch_model.non_ema.bin", "non_ema"),
        ("pytorch_model.fp16.bin", "fp16"),
        ("model.safetensors.index.fp16.json", "fp16"),
        ("model-00001-of-00002.fp16.safetensors", "fp16"),
        ("model.fp16-00001-of-00002.safetensors", "fp16"),
        ("model.safetensors", None),
        ("model-00001-of-00002.safetensors", None),
        ("model.safetensors.index.json", None),
        ("pytorch_model.bin.index.json", None),
        ("other.fp16.safetensors", None),
    ],
)
def test_a_variant_is_recognised_by_the_name(name, variant):
    assert variant_of(name) == variant


def test_shards_without_an_index_are_not_a_variant():
    assert variants({"model-00001-of-00002.fp16.safetensors"}) == ()
    assert variants({"model.safetensors.index.fp16.json", HALF}) == ("fp16",)


@pytest.mark.parametrize(
    ("names", "variant", "expected"),
    [
        ({ONE, HALF}, None, ONE),
        ({ONE, HALF}, "fp16", HALF),
        ({ONE}, "fp16", ONE),
        ({HALF}, None, HALF),
    ],
)
def test_a_component_has_the_variant_or_else_what_there_is(names, variant, expected):
    assert folder_weights(names, variant) == FoundWeights(weights=expected)


def test_of_several_variants_none_is_guessed():
    assert folder_weights({HALF, "model.bf16.safetensors"}, None) is None


PIPE = [PIPELINE, "vae/config.json", f"vae/{UNET}", "scheduler/scheduler_config.json", "x/y/a.bin"]


def test_components_of_a_pipeline_are_folders_with_a_config_or_weights():
    [part] = components([*PIPE], PIPELINE, None)
    selection = FileSelection(config="vae/config.json", weights=f"vae/{UNET}")
    assert part == SelectedComponent(folder="vae", selection=selection)
    assert select(PIPE, "x") == FileSelection(config=None, manifest=PIPELINE, parts=(part,))


@pytest.mark.parametrize(
    ("folder", "files", "counts"),
    [
        ("1_Pooling", [CONFIG], False),
        ("2_Dense", [CONFIG], True),
        ("2_Dense", [CONFIG, TORCH], True),
        ("odd", [ONE], True),
        ("odd", [CONFIG], False),
        ("onnx", [CONFIG, "model.onnx"], False),
    ],
)
def test_modules_are_looked_for_where_weights_are_or_should_be(folder, files, counts):
    names = [CONFIG, ONE, MODULES, *(f"{folder}/{name}" for name in files)]
    selection = select(names, "x")
    assert (selection.weights, bool(selection.parts)) == (ONE, counts)
    assert selection.manifest == MODULES  # it also says what loads the repository's own


def test_without_a_manifest_a_folder_is_a_model_only_with_config_and_weights():
    names = ["a/config.json", f"a/{ONE}", f"b/{ONE}", "c/config.json"]
    assert [part.folder for part in models(names, None)] == ["a"]
    with pytest.raises(SourceError, match=r"its weights are 'b/model\.safetensors'") as raised:
        select(names[2:], "x")
    assert raised.value.reason is Reason.NO_SAFETENSORS


def test_a_flat_pipeline_is_taken_for_the_one_model_that_it_is():
    names = [PIPELINE, CONFIG, f"{UNET}.index.json"]
    assert select(names, "x") == FileSelection(config=CONFIG, index=f"{UNET}.index.json")


def test_parts_have_the_torch_copies_of_their_own_folders():
    names = [*PIPE, "vae/diffusion_pytorch_model.bin", TORCH]
    chosen = with_torch_copies(names, "x")
    assert chosen.torch_copies == ()
    assert chosen.parts[0].selection.torch_copies == ("vae/diffusion_pytorch_model.bin",)
