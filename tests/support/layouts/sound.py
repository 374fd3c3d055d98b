"""A sound packed weight of each layout, and settings that fit it, for tests that spoil one."""

from support.layouts.examples import layout_of
from support.layouts.packed import opened, says
from support.layouts.tables import (
    M,
    W,
    aqlm,
    below,
    bitnet,
    block_scaled,
    eetq,
    four_bits,
    gemm,
    gptq,
    hqq,
    mlx,
    nvfp4,
    pack_quantized,
    quanto,
    scheme,
    torchao,
    vptq,
    vptq_settings,
)

OUT, INPUTS = SHAPE = (256, 512)
VPTQ = vptq_settings(INPUTS, residual=256)
WEIGHTS = {"num_bits": 4, "group_size": 32}


def groups(*schemes, **settings):
    return {"config_groups": {str(at): one for at, one in enumerate(schemes)}, **settings}


# A layout's file -> the tensors of a sound weight, and settings that fit them.
SOUND = {
    "aqlm": (aqlm(256, 64), {}),
    "auto_round": (
        gptq(*SHAPE, g_idx=False),
        {"bits": 4, "group_size": 128, "packing_format": "auto_round:auto_gptq"},
    ),
    "awq": (gemm(*SHAPE), {"bits": 4, "group_size": 128, "version": "gemm"}),
    "bitnet": (bitnet(64, INPUTS), {}),
    "bitsandbytes": (four_bits(SHAPE), {"load_in_4bit": True}),
    "compressed_tensors": (
        pack_quantized(*SHAPE),
        groups(scheme(**WEIGHTS), format="pack-quantized"),
    ),
    "eetq": (eetq(*SHAPE), {}),
    "fp8": (block_scaled(*SHAPE, 128, 128), {"weight_block_size": [128, 128]}),
    "gptq": (gptq(*SHAPE), {"bits": 4, "group_size": 128}),
    "hqq": (hqq(*SHAPE), {"quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}),
    "mlx": (mlx(SHAPE), {"bits": 4, "group_size": 64}),
    "modelopt": (nvfp4(OUT, 32), {"quant_algo": "NVFP4", "group_size": 16}),
    "quanto": (quanto(*SHAPE, 4), {"weights": "int4"}),
    "torchao": (torchao(*SHAPE, "INT8"), {}),
    "vptq": (vptq(*SHAPE, VPTQ), {"config_for_layers": {M: VPTQ}}),
}


def unpacked_of(file, table, settings):
    layout = layout_of(file)
    method = "fbgemm_fp8" if settings.get("rows") else layout.name
    return opened(layout, table, says(method, **settings), {W: SHAPE})


def changed(file, changes):
    """The sound table with some tensors replaced, or left out (None)."""
    parts = {**SOUND[file][0], **changes}
    return below(M, {last: one for last, one in parts.items() if one is not None})
