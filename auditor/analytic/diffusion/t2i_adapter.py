"""T2IAdapter: a small network whose feature maps are added to those of a UNet."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from auditor.analytic.blocks import Conv, Module, module
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import LibraryForm, counts_by_block, require, size, widths
from auditor.analytic.diffusion.layers import layers_of
from auditor.analytic.dims import Dim
from auditor.analytic.family import Family

_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "in_channels": 3,
        "channels": [320, 640, 1280, 1280],
        "num_res_blocks": 2,
        "downscale_factor": 8,
        "adapter_type": "full_adapter",
    }
)
ADAPTER = Family(
    model_type="T2IAdapter",
    prefix="",
    base="T2IAdapter",
    letters=MappingProxyType({"channels": "W"}),
    own=_DEFAULTS,
)
_FULL, _XL, _LIGHT = "full_adapter", "full_adapter_xl", "light_adapter"
_THREE, _ONE = (3, 3), (1, 1)
_WIDENED_IN_XL = (1, 2)  # the blocks that read another width


def _block(inputs: Dim, outputs: Dim, layers: int) -> Module:
    layer = module(block1=Conv(outputs, outputs, _THREE), block2=Conv(outputs, outputs, _ONE))
    return module(
        in_conv=Conv(inputs, outputs, _ONE) if inputs.value != outputs.value else None,
        resnets=layers_of([layer] * layers),
    )


def _light_block(inputs: Dim, outputs: Dim, layers: int) -> Module:
    W = outputs.floor(4)
    layer = module(block1=Conv(W, W, _THREE), block2=Conv(W, W, _THREE))
    return module(
        in_conv=Conv(inputs, W, _ONE),
        resnets=layers_of([layer] * layers),
        out_conv=Conv(W, outputs, _ONE),
    )


def t2i_adapter(c: Config) -> Module:
    require(c, "adapter_type", _FULL, _XL, _LIGHT)
    kind, channels = c.text("adapter_type"), widths(c, "channels")
    [layers] = counts_by_block(c, "num_res_blocks", 1)
    images = size(c, "in_channels") * size(c, "downscale_factor") * size(c, "downscale_factor")
    if kind == _LIGHT:
        pairs = zip((images, *channels), (*channels, channels[-1]), strict=True)
        body = [_light_block(*pair, layers) for pair in pairs]
        return module(adapter=module(body=layers_of(body)))
    body = [
        _block(channels[max(i - 1, 0)] if kind == _FULL or i in _WIDENED_IN_XL else W, W, layers)
        for i, W in enumerate(channels)
    ]
    conv_in = Conv(images, channels[0], _THREE)
    return module(adapter=module(conv_in=conv_in, body=layers_of(body)))


CLASSES = MappingProxyType({"T2IAdapter": LibraryForm(ADAPTER, t2i_adapter)})
