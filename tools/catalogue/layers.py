"""The layers of a class's weights whose shape does not show the layer: adapters depend on it."""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.analytic.blocks import Layer
from auditor.oracle import build
from catalogue.probe import Probe

_DEPTHS = ("n_layer", "n_layers", "num_hidden_layers", "num_layers")


def with_layers(form: dict[str, Any]) -> dict[str, Any]:
    """Return a form of a class of transformers whose rows name the layers of their weights."""
    probe = Probe("transformers", form["target"])
    few = {key: 2 for key in _DEPTHS if key in form["defaults"]}
    sample = probe(few) or probe.default()
    layers = dict(_layers(form["target"], sample.written)) if sample else {}
    return {**form, "rows": [_with_layer(row, layers) for row in form["rows"]]}


def _with_layer(row: list[Any], layers: Mapping[str, str]) -> list[Any]:
    layer = layers.get(row[0])
    return [*row[:6], layer] if layer else row[:6]


def _layers(target: str, config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the template of a weight's name with the name of its layer."""
    from torch import nn  # noqa: PLC0415 - seconds
    from transformers.pytorch_utils import Conv1D  # noqa: PLC0415 - likewise

    transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
    convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
    model_class = getattr(build._library(), target)
    model = build._build(model_class, config)
    for path, module in model.named_modules(remove_duplicate=False):
        parts = (*path.split("."), "weight")
        template = ".".join("*" if part.isdecimal() else part for part in parts)
        if isinstance(module, nn.Embedding):
            yield template, Layer.EMBEDDING.name
        elif isinstance(module, Conv1D):
            yield template, Layer.CONV1D.name
        elif isinstance(module, transposed) or (
            isinstance(module, convolution) and module.groups > 1
        ):
            yield template, Layer.ODD.name
