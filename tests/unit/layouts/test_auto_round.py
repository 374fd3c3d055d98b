"""AutoRound: words of GPTQ or AWQ, and settings of single layers.

In the shapes that auto_round_extension/torch/qlinear_torch.py and auto_round/export/export_to_awq/
utils.py of auto-round 0.16.1 register. Whole checkpoints: test_auto_round_checkpoints.py.
"""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layouts.packed import (
    faults,
    opened,
    pieces,
    quantization_data,
    says,
    spoiled,
    stored,
    tells_what_is_written,
)

from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.auto_round import LAYOUT

M = "model.layers.0.mlp.up_proj"
W = f"{M}.weight"
NEXT = "model.layers.1.mlp.up_proj"
SHAPE = (256, 512)
GPTQ_WORDS = (
    "auto_round",
    "auto_round:gptq",
    "auto_round:auto_gptq",
    "auto_round:gptqmodel",
    "auto_round:gptq:exllamav2",
    "autoround:exllamav2",
    "auto_round:tritonv2",
    "gptq:cuda",
    "auto",
)
AWQ_WORDS = ("auto_round:awq", "auto_round:auto_awq")
ALL_BITS = (2, 3, 4, 5, 6, 7, 8)
sides = st.integers(1, 40).map(lambda n: 32 * n)
divisors = st.sampled_from((-1, 16, 32))


def gptq(  # noqa: PLR0913 - what a writer may choose
    outputs, inputs, *, bits=4, group=128, module=M, g_idx=False
):
    """As QuantLinear of qlinear_torch.py registers its buffers."""
    groups = 1 if group == -1 else ceil(inputs / group)
    table = {
        f"{module}.qweight": ("I32", (inputs // 32 * bits, outputs)),
        f"{module}.qzeros": ("I32", (groups, outputs // 32 * bits)),
        f"{module}.scales": ("F16", (groups, outputs)),
    }
    return table | ({f"{module}.g_idx": ("I32", (inputs,))} if g_idx else {})


def awq(outputs, inputs, *, bits=4, group=128, module=M):
    """As WQLinear_GEMM of export_to_awq/utils.py registers its buffers."""
    groups = 1 if group == -1 else inputs // group
    return {
        f"{module}.qweight": ("I32", (inputs, outputs * bits // 32)),
        f"{module}.qzeros": ("I32", (groups, outputs * bits // 32)),
        f"{module}.scales": ("F16", (groups, outputs)),
    }


def plain(module=NEXT, shape=SHAPE):
    return {f"{module}.weight": ("BF16", shape)}


def ours(**settings):
    """The settings of a checkpoint in GPTQ's words; None takes one away."""
    said = {"bits": 4, "group_size": 128, "packing_format": "auto_round:auto_gptq", **settings}
    return says("auto-round", **{key: value for key, value in said.items() if value is not None})


def without(table, last):
    return {name: described for name, described in table.items() if not name.endswith(f".{last}")}


# --- laws -------------------------------------------------------------------------------------


@given(
    sides,
    sides,
    st.sampled_from(ALL_BITS),
    st.sampled_from((-1, 32, 64, 128, 1024)),
    st.booleans(),
    st.sampled_from(GPTQ_WORDS),
)
def test_words_of_gptq_unpack_to_the_packed_weight(  # noqa: PLR0913, PLR0917 - drawn
    outputs, inputs, bits, group, g_idx, packing
):
    table = gptq(outputs, inputs, bits=bits, group=group, g_idx=g_idx)
    for key in ("packing_format", "backend"):
        said = says("auto-round", bits=bits, group_size=group, sym=True, **{key: packing})
        unpacked = opened(LAYOUT, table, said)
        assert (pieces(unpacked), unpacked.faults) == ({W: (outputs, inputs)}, ())
        assert quantization_data(unpacked) == set(table) - {f"{M}.qweight"}
        assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}"]
        tells_what_is_written(LAYOUT, table, said, {W: (outputs, inputs)})


@given(sides, sides, st.sampled_from(ALL_BITS), divisors, st.sampled_from(AWQ_WORDS))
def test_words_of_awq_unpack_to_the_packed_weight(outputs, inputs, bits, group, packing):
    table = awq(outputs, inputs, bits=bits, group=group)
    said = ours(bits=bits, group_size=group, packing_format=packing)
    unpacked = opened(LAYOUT, table, said)
    assert (pieces(unpacked), unpacked.faults) == ({W: (outputs, inputs)}, ())
    assert quantization_data(unpacked) == set(table) - {f"{M}.qweight"}
    tells_what_is_written(LAYOUT, table, said, {W: (outputs, inputs)})


@given(st.lists(st.tuples(st.sampled_from((2, 3, 4, 8)), divisors), min_size=1, max_size=6))
def test_every_layer_has_its_settings_of_extra_config(schemes):
    table, extra, expected = {}, {}, {}
    for layer, (bits, group) in enumerate(schemes):
        module = f"model.layers.{layer}.mlp.up_proj"
        table |= gptq(*SHAPE, bits=bits, group=group, module=module)
        extra[module] = {"bits": bits, "group_size": group}
        expected[f"{module}.weight"] = SHAPE
    said = ours(bits=5, extra_config=extra, block_name_to_quantize="model.layers")
    unpacked = opened(LAYOUT, table, said)
    assert (pieces(unpacked), unpacked.faults) == (expected, ())
    assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}" for bits, _ in schemes]
    tells_what_is_written(LAYOUT, table, said, expected)
    for module, own in extra.items():  # each in turn with bits that its shapes deny
        wrong = ours(bits=5, extra_config=extra | {module: own | {"bits": 6}})
        unpacked = opened(LAYOUT, table, wrong, expected)
        assert pieces(unpacked) == expected
        assert list(faults(unpacked).values()) == [{f"{module}.qweight"}]


@pytest.mark.parametrize("bits", ALL_BITS)
@pytest.mark.parametrize(("writer", "packing"), [(gptq, "auto_round"), (awq, "auto_round:awq")])
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(bits, writer, packing):
    table = writer(*SHAPE, bits=bits)
    said = ours(bits=bits, packing_format=packing)
    assert opened(LAYOUT, table, said, {W: SHAPE}).faults == ()
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, said, {W: SHAPE})
        assert unpacked.faults or pieces(unpacked) != {W: SHAPE}, (name, other[name])


# --- packings that are not read ---------------------------------------------------------------

UNREAD = (
    ({"packing_format": "auto_round:fp8_static"}, "the packing_format 'auto_round:fp8_static'"),
    ({"packing_format": "auto_round:llm_compressor"}, "packing_format 'auto_round:llm_compressor'"),
    ({"packing_format": "auto_round:mlx"}, "with the packing_format 'auto_round:mlx'"),
    ({"packing_format": "auto_round:gptq:marlin"}, "packing_format 'auto_round:gptq:marlin'"),
    ({"packing_format": "auto_round:awq:hpu\n\x1b"}, r"packing_format 'auto_round:awq:hpu\n\x1b'"),
    ({"packing_format": ""}, "with the packing_format ''"),
    ({"packing_format": None, "backend": "qbits"}, "with the backend 'qbits'"),
    ({"packing_format": None, "data_type": "fp8"}, "auto-round with the data_type 'fp8'"),
    (
        {"packing_format": "auto_round", "data_type": "mx_int"},
        "the packing_format 'auto_round' and the data_type 'mx_int'",
    ),
    ({"data_type": 4}, "'auto_round:auto_gptq' and the data_type 4"),
    ({"extra_config": {M: {"bits": 8, "data_type": "mx_fp"}}}, "the data_type 'mx_fp'"),
)


@pytest.mark.parametrize(("settings", "says_so"), UNREAD)
def test_a_packing_that_is_not_read_here_is_named(settings, says_so):
    assert says_so in unknown_quantization(ours(**settings))


@pytest.mark.parametrize(
    "settings",
    [
        *({"packing_format": packing} for packing in (*GPTQ_WORDS, *AWQ_WORDS)),
        {"packing_format": None},
        {"data_type": "int"},
        {"data_type": "int_sym", "backend": "ipex"},  # a kernel to load with
        {"extra_config": {M: {"bits": 16, "data_type": "float"}}},
    ],
)
def test_integers_packed_in_words_are_read(settings):
    assert unknown_quantization(ours(**settings)) is None


# --- what checkpoints get wrong ---------------------------------------------------------------

TABLE = gptq(*SHAPE)
BOTH = TABLE | gptq(*SHAPE, module=NEXT)
HALF = TABLE | gptq(512, 256, module="model.layers.1.mlp.down_proj") | plain()
HEADED = TABLE | gptq(*SHAPE, module="lm_head")
BLOCKS = {"block_name_to_quantize": "model.layers"}


@pytest.mark.parametrize(
    ("table", "settings", "reason"),
    [
        (without(TABLE, "scales"), {}, "is stored without its scales"),
        (without(TABLE, "qzeros"), {}, "is stored without its qzeros"),
        (without(TABLE, "qweight"), {}, "is stored without its qweight"),
        (TABLE, {"bits": 8}, "bits of quantization_config is 8, stored are 4"),
        (TABLE, {"group_size": 64}, "scales is (4, 256), expected (8, 256)"),
        (
            TABLE,
            {"packing_format": "auto_round:awq"},
            "packing_format of quantization_config is 'auto_round:awq",
        ),
        (awq(*SHAPE), {}, "packing_format of quantization_config is 'auto_round:auto_gptq"),
        (awq(*SHAPE), {"packing_format": None}, "quantization_config declares no packing_format"),
        (TABLE | {f"{M}.qzeros": ("I32", (4, 31))}, {}, "qzeros is (4, 31), expected (4, 32)"),
        (TABLE | {f"{M}.scales": ("F16", (4, 64))}, {}, "scales is (4, 64), expected (4, 256)"),
        (
            TABLE | {f"{M}.qweight": ("F32", (64, 256))},
            {},
            "qweight is F32 (64, 256), expected I16 or",
        ),
        (TABLE | {f"{M}.act_scales": ("BF16", (3,))}, {}, "act_scales is (3,), expected (1,)"),
        (
            TABLE,
            {"extra_config": {M: {"bits": 8}}},
            "bits of extra_config of quantization_config is 8, stored are 4",
        ),
        (
            TABLE,
            {"extra_config": {M: {"group_size": 32}}},
            "scales is (4, 256), expected (16, 256)",
        ),
        (TABLE, {"extra_config": {M: {"bits": 16}}}, "is packed, but plain by extra_config"),
        (
            TABLE,
            {"extra_config": {".*up_proj.*": {"bits": 16}}},
            "is packed, but plain by extra_config",
        ),
        (
            TABLE,
            {"extra_config": {r"0\.mlp\.": {"bits": 2}}},
            "bits of extra_config of quantization_config is 2, stored are 4",
        ),
        (
            BOTH,
            {"extra_config": {M: {"bits": 2}, "up": {"bits": 8}}},
            "bits of extra_config of quantization_config is 2, stored are 4",
        ),
        (
            TABLE | plain(),
            {"extra_config": {NEXT: {"bits": 4}}},
            "is plain, but not by extra_config",
        ),
        (
            TABLE | plain("lm_head"),
            {"extra_config": {"lm_head": {"bits": 4}}},
            "is plain, but not by extra_config",
        ),
        (HALF, {}, "is plain, but not by extra_config"),
        (HALF, BLOCKS, "is plain, but not by extra_config"),
        (HEADED, BLOCKS, "is packed, but plain by extra_config"),
        (
            HEADED,
            {"to_quant_block_names": [["model.layers.0", "model.layers.1"]]},
            "is packed, but plain by extra_config",
        ),
    ],
)
def test_what_cannot_be_is_a_fault(table, settings, reason):
    unpacked = opened(LAYOUT, table, ours(**settings), {W: SHAPE})
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


RENAMED = "model.language_model.layers.0.mlp.up_proj"  # as transformers calls it once loaded
BEFORE = gptq(*SHAPE, bits=8, module="language_model.model.layers.0.mlp.up_proj")


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (gptq(*SHAPE, group=512), {"group_size": -1}),
        (gptq(*SHAPE, group=500), {"group_size": 500}),
        (TABLE | {f"{M}.act_scales": ("BF16", (1,))}, {"act_bits": 8}),
        (TABLE | {f"{M}.w_bf16_to_fp8_scale": ("BF16", (1, 256))}, {"act_bits": 8}),
        (HALF, {"extra_config": {NEXT: {"bits": 16}}}),
        (HALF, {"extra_config": {".*1.mlp.up.*": {"bits": 16}}}),
        (HALF, {"block_name_to_quantize": "model.layers.0, model.layers.1.mlp.down_proj"}),
        (HEADED, BLOCKS | {"extra_config": {"lm_head": {"bits": 4}}}),
        (TABLE | plain("lm_head"), BLOCKS | {"extra_config": {"lm_head": {"bits": 16}}}),
        (TABLE | plain("model.visual.blocks.0.mlp"), BLOCKS),
        (TABLE, {"extra_config": {M: {}}}),
        (TABLE, {"extra_config": {r"(mlp)\.\1": {"bits": 8}}}),  # a back reference is not followed
        (BOTH, {"extra_config": {NEXT: {"bits": 4}, "up_proj": {"bits": 4}}}),
        (BEFORE, {"extra_config": {RENAMED: {"bits": 8}}}),
        (BEFORE, {"bits": 8, "block_name_to_quantize": ["model.language_model.layers"]}),
        (TABLE, {"bits": 8, "extra_config": {f"{n}.*x": {"bits": 4} for n in range(3000)}}),
        (TABLE, {"bits": 8, "dynamic": {"+:.*up_proj.*": {"bits": 4}}}),
        (TABLE, {"bits": 8, "extra_config": {f"{M}{n}$": {"bits": 2 + n % 2} for n in range(99)}}),
    ],
)
def test_a_possible_id_has_no_fault(table, settings):
    said = ours(**settings)
    if "dynamic" in settings or len(settings.get("extra_config", ())) > 8:
        # What is not told is not asked: any bits that fit the architecture are right.
        assert set(pieces(opened(LAYOUT, table, said)).values()) == {SHAPE}
    assert opened(LAYOUT, table, said, {W: SHAPE}).faults == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"bits": 0},
        {"bits": "4"},
        {"bits": 12},
        {"group_size": [128, 128]},
        {"extra_config": {M: {"bits": True}}},
        {"extra_config": {M: {"bits": 4, "group_size": 0.5}}},
        {"extra_config": {M: 16}},
        {"extra_config": [M]},
        {"packing_format": {"auto_round": 1}},
        {"packing_format": 2**70},
        {"packing_format": None, "backend": False},
    ],
)
def test_settings_of_another_type_or_size_are_a_fault_and_no_more(settings):
    unpacked = opened(LAYOUT, TABLE, ours(**settings))
    assert pieces(unpacked) == {W: SHAPE}
    assert any("needed" in reason for reason in faults(unpacked)), faults(unpacked)


def test_a_conv1d_has_its_inputs_first_as_a_plain_checkpoint_of_gpt2_has():
    module = "transformer.h.0.attn.c_attn"
    name, table = f"{module}.weight", gptq(192, 64, group=32, module=module, g_idx=True)
    said = ours(group_size=32, packing_format="auto_round:gptqmodel")
    unpacked = opened(LAYOUT, table, said, {name: (64, 192)})
    assert (pieces(unpacked), unpacked.faults) == ({name: (64, 192)}, ())


@pytest.mark.parametrize(
    ("table", "name"), [(TABLE, "gptq"), (awq(*SHAPE), "awq"), (awq(*SHAPE, bits=5), "auto-round")]
)
def test_words_that_no_config_declares_are_taken_for_gptq_or_awq_where_they_may_be(table, name):
    unpacked = unpack_tensors(stored(table), None, lambda _name: None)
    assert pieces(unpacked) == {W: SHAPE}
    assert unpacked.layout.startswith(name)
    assert "the config declares no quantization" in unpacked.faults[0].reason


@pytest.mark.slow
def test_a_pattern_takes_no_time_whatever_it_is():
    extra = {"(a*)*" * 50 + "b" + "x" * n: {"bits": 2 + n % 7} for n in range(40)}
    table = {f"model.layers.{n}.{'a' * 60}.weight": ("BF16", (8, 8)) for n in range(200)}
    unpacked = opened(LAYOUT, TABLE | table, ours(extra_config=extra))
    assert (pieces(unpacked), unpacked.faults) == ({W: SHAPE}, ())
