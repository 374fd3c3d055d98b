"""GPTQ: shapes by the arithmetic of its packing, and what checkpoints get wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layouts.gptq_words import M, W, linear, marlin, without
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

from auditor.errors import CheckpointError
from auditor.layouts.declared import declaration
from auditor.layouts.gptq import LAYOUT
from auditor.layouts.packing import Stored

inputs_ = st.integers(1, 40).map(lambda n: 32 * n)
outputs_ = st.integers(1, 40).map(lambda n: 32 * n)


# --- laws -------------------------------------------------------------------------------------


@given(
    outputs_,
    inputs_,
    st.sampled_from((2, 3, 4, 8)),
    st.sampled_from((-1, 32, 64, 128, 1024)),
    st.booleans(),
    st.sampled_from((8, 16, 32, 64)),
)
def test_words_of_any_size_unpack_to_the_packed_weight(  # noqa: PLR0913, PLR0917 - drawn
    outputs, inputs, bits, group, g_idx, word
):
    table = linear(outputs, inputs, bits=bits, group=group, g_idx=g_idx, word=word)
    said = says("gptq", bits=bits, group_size=group, pack_dtype=f"int{word}")
    tells_what_is_written(LAYOUT, table, said, {W: (outputs, inputs)})
    unpacked = opened(LAYOUT, table, said, {W: (outputs, inputs)})  # which tell of half-full words
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {f"{M}.qweight"}
    assert unpacked.faults == ()
    assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}"]


@given(outputs_, inputs_, st.sampled_from((2, 3, 4, 8)), st.sampled_from((32, 64, 128)))
def test_the_tensors_determine_their_bits(outputs, inputs, bits, group):
    unpacked = opened(LAYOUT, linear(outputs, inputs, bits=bits, group=min(group, inputs)))
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert unpacked.faults == ()


@given(st.integers(1, 16), st.integers(1, 16), st.sampled_from((4, 8)), st.sampled_from((-1, 128)))
def test_tiles_of_marlin_are_the_weight_that_went_into_them(outputs, inputs, bits, group):
    shape = (256 * outputs, 128 * inputs)
    said = says("gptq", bits=bits, group_size=group, checkpoint_format="marlin")
    for names in ({}, {"weight": "qweight", "scales": "scales"}):
        table = marlin(*shape, bits=bits, group=group, **names)
        unpacked = opened(LAYOUT, table, said)
        assert (pieces(unpacked), unpacked.faults) == ({W: shape}, ())
        assert len(quantization_data(unpacked)) == 1
        tells_what_is_written(LAYOUT, table, said, {W: shape})


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("g_idx", [True, False])
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(bits, declared, g_idx):
    table = linear(256, 512, bits=bits, g_idx=g_idx)
    said = says("gptq", bits=bits, group_size=128) if declared else None
    assert opened(LAYOUT, table, said, {W: (256, 512)}).faults == ()
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, said, {W: (256, 512)})
        assert unpacked.faults or pieces(unpacked) != {W: (256, 512)}, (name, other[name])


# --- what checkpoints get wrong ---------------------------------------------------------------

FOUR = linear(256, 512)
ANOTHER = {"model.layers.1.mlp.up_proj.weight": ("F16", (256, 512))}  # in another layer, plain
PARTLY = FOUR | linear(512, 256, module="model.layers.1.mlp.down_proj") | ANOTHER


@pytest.mark.parametrize(
    ("table", "settings", "reason"),
    [
        (without(FOUR, "scales"), {}, "is stored without its scales"),
        (without(FOUR, "qzeros"), {}, "is stored without its qzeros"),
        (without(FOUR, "qweight"), {}, "is stored without its qweight"),
        (without(FOUR, "g_idx"), {"desc_act": True}, "is stored without its g_idx"),
        (FOUR, {"bits": 8}, "bits of quantization_config is 8, stored are 4"),
        (FOUR, {"group_size": 64}, "scales is (4, 256), expected (8, 256)"),
        (
            FOUR,
            {"checkpoint_format": "marlin"},
            "checkpoint_format of quantization_config is marlin",
        ),
        (marlin(256, 512), {}, "checkpoint_format of quantization_config is gptq"),
        (FOUR | {f"{M}.g_idx": ("I32", (256,))}, {}, "g_idx is (256,), expected (512,)"),
        (FOUR | {f"{M}.scales": ("F16", (4, 128))}, {}, "scales is (4, 128), expected (4, 256)"),
        (FOUR | {f"{M}.qzeros": ("I32", (4, 64))}, {}, "qzeros is (4, 64), expected (4, 32)"),
        (
            FOUR | {f"{M}.qweight": ("F16", (64, 256))},
            {},
            "qweight is F16 (64, 256), expected I16 or",
        ),
        (
            FOUR | {f"{M}.qweight": ("I32", (64,))},
            {},
            "qweight is I32 (64,), expected a matrix of integers",
        ),
        (PARTLY, {}, "is plain, but not by quantization_c"),
    ],
)
def test_what_cannot_be_is_a_fault(table, settings, reason):
    said = says("gptq", **({"bits": 4, "group_size": 128} | settings))
    unpacked = opened(LAYOUT, table, said, {W: (256, 512)})
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (without(FOUR, "g_idx"), {}),
        (FOUR, {"desc_act": True}),
        (FOUR, {"bits": None, "group_size": None}),
        (FOUR, {"dynamic": {"+:.*up_proj": {"bits": 4}}, "bits": 8, "group_size": 32}),
        (linear(256, 512, bias=True), {}),
        (linear(250, 512), {}),
        (linear(256, 500, group=100), {"group_size": 100}),
        (PARTLY, {"dynamic": {"-:.*1.*": {}}}),
        (PARTLY, {"modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.down_proj"]]}),
        (FOUR | ANOTHER, {}),
        (FOUR | {"model.layers.1.mlp.gate.weight": ("F16", (8, 512))}, {}),
    ],
)
def test_a_possible_id_has_no_fault(table, settings):
    said = says("gptq", **({"bits": 4, "group_size": 128} | settings))
    assert opened(LAYOUT, table, said).faults == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"bits": 0},
        {"bits": "4"},
        {"bits": [4]},
        {"bits": True},
        {"bits": 2**70},
        {"group_size": 0.5},
        {"group_size": -2},
        {"group_size": {"a": 1}},
    ],
)
def test_settings_of_another_type_or_size_are_a_fault_and_no_more(settings):
    unpacked = opened(LAYOUT, FOUR, says("gptq", **settings))
    assert pieces(unpacked) == {W: (256, 512)}
    assert any("quantization_config is" in reason for reason in faults(unpacked))


@pytest.mark.parametrize("settings", [{"checkpoint_format": [1]}, {"dynamic": 3}, {"desc_act": 1}])
def test_empty_settings_are_not_a_fault(settings):
    assert opened(LAYOUT, FOUR, says("gptq", bits=4, group_size=128, **settings)).faults == ()


@pytest.mark.parametrize("last", ["qweight", "qzeros", "scales", "g_idx"])
@pytest.mark.parametrize("shape", [(0, 0), (0,), (), (2**62, 2**62), (1, 2**62), (1,) * 40])
def test_any_shape_is_arithmetic(last, shape):
    table = FOUR | {f"{M}.{last}": (FOUR[f"{M}.{last}"][0], shape)}
    assert opened(LAYOUT, table, says("gptq", bits=4, group_size=128)).faults
    assert opened(LAYOUT, table, implied={W: (256, 512)}).faults


def test_names_alone_are_pieces_and_quantization_data_without_shapes():
    table = dict.fromkeys({**linear(8, 8, bias=True), "lm_head.weight": None})
    unpacked = opened(LAYOUT, table, says("gptq", bits=4, group_size=128))
    assert pieces(unpacked) == {W: None}
    assert unpacked.faults == ()
    assert quantization_data(unpacked) == {f"{M}.{last}" for last in ("qzeros", "scales", "g_idx")}


def test_the_settings_of_quantize_config_json_are_read_as_those_of_the_config():
    written = {"bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    declared = declaration({}, {"quantize_config.json": json.dumps(written).encode()})
    assert declared.method == "gptq"
    assert opened(LAYOUT, FOUR, declared).layout == "gptq, 4 bits, groups of 128"


def test_a_list_of_settings_is_refused():
    with pytest.raises(CheckpointError, match="quantization_config is a list"):
        declaration({"quantization_config": [4]}, {})


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (FOUR, True),
        (without(FOUR, "g_idx"), True),
        (marlin(256, 512), True),
        (marlin(256, 512, weight="qweight", scales="scales"), True),
        (dict.fromkeys(FOUR), True),
        ({"a.weight": ("I8", (8, 8)), "a.scales": ("F16", (8,))}, False),
        ({"a.B": ("F32", (8, 8)), "a.s": ("F32", (8, 8))}, False),
    ],
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known


@pytest.mark.parametrize(("router", "alarmed"), [("gate", True), ("shared_expert_gate", False)])
def test_a_packed_router_is_a_fault_because_no_class_has_a_linear_there(router, alarmed):
    mlp = "model.layers.0.mlp"
    table = linear(256, 512, module=f"{mlp}.experts.0.up_proj")
    table |= linear(64, 512, module=f"{mlp}.{router}")
    unpacked = opened(LAYOUT, table, says("gptq", bits=4, group_size=128))
    assert list(faults(unpacked).values()) == [{f"{mlp}.gate.qweight"}] * alarmed
