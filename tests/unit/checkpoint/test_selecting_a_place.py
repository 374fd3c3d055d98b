"""A file or a folder of a repository that the user names: what is read for it."""

import pytest

from auditor.checkpoint.filenames import FileSelection
from auditor.checkpoint.selecting import select_place
from auditor.errors import SourceError

NAMES = (
    "README.md",
    "config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "adapter_config.json",
    "adapter_model.safetensors",
    "consolidated.safetensors",
    "gguf/big-00001-of-00002.gguf",
    "gguf/big-00002-of-00002.gguf",
    "unet/config.json",
    "unet/diffusion_pytorch_model.fp16.safetensors",
    "unet/diffusion_pytorch_model.safetensors",
    "vae/empty.txt",
)
WHOLE = FileSelection(config="config.json", index="model.safetensors.index.json")
UNET = FileSelection(config="unet/config.json", weights="unet/diffusion_pytorch_model.safetensors")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("README.md", WHOLE),
        ("config.json", WHOLE),
        ("model-00002-of-00002.safetensors", WHOLE),
        ("model.safetensors.index.json", WHOLE),
        (
            "consolidated.safetensors",
            FileSelection(config="config.json", weights="consolidated.safetensors"),
        ),
        (
            "adapter_model.safetensors",
            FileSelection(config="adapter_config.json", weights="adapter_model.safetensors"),
        ),
        (
            "gguf/big-00002-of-00002.gguf",
            FileSelection(config="config.json", shards=NAMES[8:10]),
        ),
        ("unet", UNET),
        ("unet/", UNET),
        ("unet/config.json", UNET),
        (
            "unet/diffusion_pytorch_model.fp16.safetensors",
            FileSelection(
                config="unet/config.json",
                weights="unet/diffusion_pytorch_model.fp16.safetensors",
            ),
        ),
    ],
)
def test_a_place_is_the_file_or_the_model_that_it_is_of(place, expected):
    assert select_place(NAMES, "o/n", place) == expected


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("nowhere.safetensors", "o/n has no file or folder 'nowhere.safetensors'"),
        ("vae", "'vae' of o/n holds no weights"),
    ],
)
def test_a_missing_path_is_reported(place, fault):
    with pytest.raises(SourceError, match=fault):
        select_place(NAMES, "o/n", place)
