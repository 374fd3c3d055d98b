"""The ResNets of timm, as detectors have them for a backbone: torchvision's names, frozen norms."""

from collections.abc import Mapping
from types import MappingProxyType

from auditor.analytic.blocks import (
    Conv,
    FrozenBatchNorm,
    Legacy,
    Module,
    module,
    sequential,
)
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim, dim
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

_DEPTHS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "resnet18": (2, 2, 2, 2),
        "resnet34": (3, 4, 6, 3),
        "resnet50": (3, 4, 6, 3),
        "resnet101": (3, 4, 23, 3),
        "resnet152": (3, 8, 36, 3),
    }
)
_BASIC = frozenset({"resnet18", "resnet34"})  # two convolutions a layer; the rest have three
_STEM = 64


def frozen_resnet(c: Config) -> tuple[Module, tuple[Dim, ...]]:
    """The backbone that `backbone` names, and how wide its four stages are.

    SourceError for one of timm's others; they are a thousand.
    """
    name = c.text("backbone").partition(".")[0]  # resnet50.a1_in1k is one of its trainings
    if name not in _DEPTHS:
        raise SourceError(
            Reason.UNKNOWN_ARCHITECTURE,
            f"no closed form is known for {c.path}backbone {quoted(name)} of timm",
        )
    basic = name in _BASIC
    inner = [_STEM * 2**number for number in range(len(_DEPTHS[name]))]
    widths = inner if basic else [4 * width for width in inner]
    befores = (_STEM, *widths)
    stages = {
        f"layer{number}": _stage(count, before, width, basic=basic)
        for number, count, before, width in zip(
            (1, 2, 3, 4), _DEPTHS[name], befores, widths, strict=False
        )
    }
    tree = module(
        conv1=_conv(c.dim("num_channels"), _STEM, 7), bn1=FrozenBatchNorm(_STEM), **stages
    )
    return tree, tuple(map(dim, widths))


def _stage(count: int, before: int, width: int, *, basic: bool) -> Module:
    """Layers of which the first changes the width, where it has to change."""
    first = _layer(before, width, basic=basic, changes=before != width)
    other = _layer(width, width, basic=basic, changes=False)
    return sequential(first, *[other] * (count - 1))


def _layer(before: int, width: int, *, basic: bool, changes: bool) -> Module:
    inner = width if basic else width // 4
    steps = [(before, inner, 3 if basic else 1), (inner, inner, 3), (inner, width, 1)]
    children: dict[str, Module] = {}
    for number, (inputs, outputs, kernel) in enumerate(steps[:2] if basic else steps, start=1):
        children[f"conv{number}"] = _conv(inputs, outputs, kernel)
        children[f"bn{number}"] = FrozenBatchNorm(outputs)
    # facebook/detr-resnet-50 stores how many batches these norms have seen, and of no other.
    norm = Module((*FrozenBatchNorm(width).children, ("num_batches_tracked", Legacy(()))))
    shortcut = sequential(_conv(before, width, 1), norm)
    return module(**children, downsample=shortcut if changes else None)


def _conv(inputs: Dim | int, outputs: int, kernel: int) -> Module:
    return Conv(inputs, outputs, kernel=(kernel, kernel), bias=False)
