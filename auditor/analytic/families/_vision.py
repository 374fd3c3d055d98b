"""Modules of image models: patches, classifiers, and the stages that a backbone outputs."""

from auditor.analytic.blocks import Conv, Linear, Module, sequential
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.errors import CheckpointError
from auditor.messages import quoted

# Published models have at most 5 stages. Widths may double at each stage, and 2**32 is not a width.
_MOST_STAGES = 32


def patches(c: Config) -> Dim:
    """Return the number of complete patches of an image."""
    (height, width), (rows, columns) = c.pair("image_size"), c.pair("patch_size")
    return height.floor(rows) * width.floor(columns)


def projection(c: Config, width: Dim) -> Module:
    """Return the convolution that turns each patch into a vector."""
    listed = isinstance(c.attribute("patch_size"), list)  # with an axis for each of its items
    sides = c.dims("patch_size") if listed else c.pair("patch_size")
    return Conv(c.dim("num_channels"), width, kernel=sides)


def classifier(c: Config, width: Dim) -> Module | None:
    """Return the classification layer; None for a model without labels."""
    return Linear(width, c.num_labels) if c.num_labels.value > 0 else None


def pixels(c: Config, width: Dim) -> Module:
    """Return the decoder for masked image modelling: from a vector to a square of pixels."""
    stride = c.dim("encoder_stride")
    return sequential(Conv(width, stride * stride * c.dim("num_channels"), kernel=(1, 1)))


def by_stage(c: Config, key: str, stages: int = 1, *, most: int | None = None) -> tuple[Dim, ...]:
    """Return the sizes under a key; raise CheckpointError if fewer than `stages`.

    At most `most` items are read.
    """
    sizes = c.dims(key, most=most)
    if not max(stages, 1) <= len(sizes) <= _MOST_STAGES:
        expected = f"expected {max(stages, 1)} to {_MOST_STAGES}"
        raise CheckpointError(f"{c.path}{key} has {len(sizes)} items, {expected}", c.path + key)
    return sizes


def output_stages(c: Config, stages: int) -> dict[str, int]:
    """Return the names and numbers of the stages that a backbone outputs; the stem is number 0.

    `out_features` decides, else `out_indices`, which may count from the end; else the last stage.
    """
    numbers = {"stem": 0} | {f"stage{number}": number for number in range(1, stages + 1)}
    if c.present("out_features"):
        names = c.texts("out_features")
    elif c.present("out_indices"):
        stage_names = tuple(numbers)
        indices = c.integers("out_indices")
        beyond = [index for index in indices if not -len(stage_names) <= index < len(stage_names)]
        names = tuple(stage_names[index] for index in indices if index not in beyond)
        if beyond:
            goes = f"{c.path}out_indices goes to {beyond[0]}"
            raise CheckpointError(f"{goes}; there are {stages} stages", f"{c.path}out_indices")
    else:
        names = tuple(numbers)[-1:]
    if unknown := [name for name in names if name not in numbers]:
        has = f"{c.path}out_features has {quoted(unknown[0])}"
        raise CheckpointError(f"{has}; there are {stages} stages", f"{c.path}out_features")
    return {name: numbers[name] for name in names}
