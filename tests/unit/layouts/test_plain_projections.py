"""A projection that is plain in a layer with packed ones is a fault, unless the config says so."""

import pytest
from support.layouts.gptq_words import linear
from support.layouts.packed import faults, opened, says

from auditor.layouts import awq, gptq, modelopt, torchao

QUERY, UP = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj"
PLAIN = {f"{UP}.weight": ("F16", (128, 128))}
WORDS = linear(128, 128, module=QUERY)
GEMM = {
    f"{QUERY}.qweight": ("I32", (128, 16)),
    f"{QUERY}.qzeros": ("I32", (1, 16)),
    f"{QUERY}.scales": ("F16", (1, 128)),
}
SCALED = {f"{QUERY}.weight": ("F8_E4M3", (128, 128)), f"{QUERY}.weight_scale": ("F32", ())}
PARTS = {
    f"{QUERY}._weight_qdata": ("I8", (128, 128)),
    f"{QUERY}._weight_scale": ("F32", (128, 1)),
}
SIZES = {"bits": 4, "group_size": 128}
DYNAMIC = {"quant_algo": "FP8", "activation_scheme": "dynamic"}
BLOCKS = "modules_in_block_to_quantize"


@pytest.mark.parametrize(
    ("layout", "table", "settings", "is_fault"),
    [
        (awq, GEMM, SIZES, True),
        (awq, GEMM, SIZES | {"modules_to_not_convert": ["mlp.up_proj"]}, False),
        (gptq, WORDS, SIZES, True),
        (gptq, WORDS, SIZES | {BLOCKS: [["self_attn.q_proj"], ["self_attn.o_proj"]]}, False),
        (gptq, WORDS, SIZES | {BLOCKS: [["self_attn.q_proj"], ["mlp.up_proj"]]}, True),
        (modelopt, SCALED, DYNAMIC | {"ignore": ["lm_head"]}, True),
        (modelopt, SCALED, DYNAMIC | {"ignore": ["*mlp*"]}, False),
        (torchao, PARTS, {"modules_to_not_convert": ["lm_head"]}, False),  # it loads plain ones
    ],
)
def test_a_plain_projection_beside_packed_ones_has_to_be_left_out_by_the_config(
    layout, table, settings, is_fault
):
    method = layout.__name__.rpartition(".")[2]
    weights = {f"{module}.weight": (128, 128) for module in (QUERY, UP)}
    unpacked = opened(layout.LAYOUT, table | PLAIN, says(method, **settings), weights)
    assert list(faults(unpacked).values()) == ([set(PLAIN)] if is_fault else [])


@pytest.mark.parametrize(
    ("layout", "table", "settings", "is_fault"),
    [
        (awq, GEMM, SIZES | {"modules_to_not_convert": ["q_proj"]}, True),
        (modelopt, SCALED, {"quant_algo": "FP8", "ignore": ["*q_proj"]}, True),
        (torchao, PARTS, {"modules_to_not_convert": ["q_proj"]}, False),  # it loads packed ones
    ],
)
def test_a_packed_projection_that_the_config_leaves_out_is_a_fault(
    layout, table, settings, is_fault
):
    method = layout.__name__.rpartition(".")[2]
    unpacked = opened(
        layout.LAYOUT, table, says(method, **settings), {f"{QUERY}.weight": (128, 128)}
    )
    assert any("is packed, but plain by" in one for one in faults(unpacked)) == is_fault
