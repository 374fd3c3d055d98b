"""Sentences about a model that is a part of something: of a pipeline, or of a training's state."""

import re
from collections.abc import Collection, Iterator

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.manifest import PIPELINE
from auditor.messages import listed

# Files that accelerate's save_state writes next to the models.
_TRAINING_STATE = re.compile(r"(optimizer|scheduler)(_\d+)?\.bin|random_states_\d+\.pkl")
# Classes of diffusers that a pipeline has as `unet` or `transformer`.
_DENOISER = re.compile(r"\w*(UNet\w*|Transformer([23]D)?)Model", re.ASCII)


def training_notes(snapshot: Snapshot, folders: Collection[str] = ()) -> Iterator[str]:
    """Yield a note if the folder is a training checkpoint of accelerate, and not a pipeline.

    `folders` are those of its models; () if the only model is in the root.
    """
    states = [file.name for file in snapshot.files if _TRAINING_STATE.fullmatch(file.name)]
    if snapshot.manifest or not any(name.endswith(".pkl") for name in states):
        return
    what = f"{listed(states)} are states of a training that accelerate saved"
    if folders:
        yield (
            f"{what}, and {PIPELINE} is not there: a training checkpoint, not a pipeline; load "
            f"each model alone, with from_pretrained(..., subfolder=...): {listed(sorted(folders))}"
        )
    elif snapshot.config is None:
        yield (
            f"{what}: load_state of accelerate resumes it, and from_pretrained needs the model's "
            "config.json, which save_pretrained writes; --config FILE audits the weights with one"
        )
    else:
        yield f"{what}: load_state of accelerate resumes it, and from_pretrained does not read them"


def denoiser_notes(name: str) -> Iterator[str]:
    """Yield a note if a class of diffusers, outside of a pipeline, is the denoiser of pipelines."""
    if _DENOISER.fullmatch(name):
        keyword = "unet" if "UNet" in name else "transformer"
        yield (
            f"the denoiser of a pipeline, and {PIPELINE} is not there: DiffusionPipeline does not "
            f"load it alone; give {name}.from_pretrained(...) to the pipeline of its base model as "
            f"{keyword}="
        )
