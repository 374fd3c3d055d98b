"""Quanto: bytes and halves of bytes, beside scales and shifts."""

from math import ceil, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import each_night
from support.layouts.packed import (
    faults,
    holds_the_plain_checkpoint,
    opened,
    pieces,
    quantization_data,
    says,
    spoiled,
    stored,
)
from support.layouts.packers import write

from auditor.layouts.packing import Stored
from auditor.layouts.quanto import LAYOUT

M = "model.layers.0.mlp.up_proj"
W = f"{M}.weight"
sides = st.integers(1, 20).map(lambda n: 32 * n)


def around(table, *, activations=True):
    ones = {f"{M}.input_scale": ("BF16", ()), f"{M}.output_scale": ("BF16", ())}
    return {**table, **(ones if activations else {})}


def eight(outputs, inputs, dtype="I8"):
    table = {f"{W}._data": (dtype, (outputs, inputs)), f"{W}._scale": ("BF16", (outputs, 1))}
    return around(table)


def group_size(inputs):
    """As QModuleMixin chooses it: 128, 96, 64 or 32, none up to 128 inputs."""
    fitting = (size for size in (128, 96, 64, 32) if inputs > 128 and inputs % size == 0)
    return next(fitting, None)


def packed(outputs, inputs, bits):
    """pack_weights of quanto/tensor/packed.py: rows to a byte, the last of them half empty."""
    group = group_size(inputs)
    matrix = (outputs, inputs) if group is None else (outputs * inputs // group, group)
    scale = ("BF16", (matrix[0], 1))
    data = ("U8", (ceil(matrix[0] / (8 // bits)), matrix[1]))
    return around({f"{W}._data._data": data, f"{W}._scale": scale, f"{W}._shift": scale})


# --- laws -------------------------------------------------------------------------------------


@given(sides, sides, st.sampled_from(("I8", "F8_E4M3", "F8_E5M2")))
def test_bytes_are_the_weight_itself(outputs, inputs, dtype):
    table = eight(outputs, inputs, dtype)
    unpacked = opened(LAYOUT, table)
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {f"{W}._data"}
    assert unpacked.faults == ()


@given(st.integers(1, 600), sides, st.sampled_from((2, 4)))
def test_rows_of_any_number_are_the_weight_that_went_into_them(outputs, inputs, bits):
    table = packed(outputs, inputs, bits)
    unpacked = opened(LAYOUT, table, says("quanto", weights=f"int{bits}"), {W: (outputs, inputs)})
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {f"{W}._data._data"}
    assert unpacked.faults == ()
    assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}"]


@given(sides, sides, st.sampled_from((2, 4)))
def test_the_scales_determine_the_bits(outputs, inputs, bits):
    unpacked = opened(LAYOUT, packed(outputs, inputs, bits), None, {W: (outputs, inputs)})
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert unpacked.faults == ()


@pytest.mark.parametrize("table", [eight(64, 256), packed(64, 256, 4), packed(64, 256, 2)])
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(table):
    assert opened(LAYOUT, table, None, {W: (64, 256)}).faults == ()
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, None, {W: (64, 256)})
        assert unpacked.faults or pieces(unpacked) != {W: (64, 256)}, (name, other[name])


# --- the library ------------------------------------------------------------------------------

SCRIPT = """
from optimum.quanto import QuantizedModelForCausalLM, qfloat8, qint2, qint4, qint8
for way, weights in {"int8": qint8, "int4": qint4, "int2": qint2, "float8": qfloat8}.items():
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "plain", dtype=torch.bfloat16)
    QuantizedModelForCausalLM.quantize(model, weights=weights, exclude="lm_head").save_pretrained(
        folder / way)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quanto")
    write(SCRIPT, folder, "optimum/quanto")
    return folder


@each_night
@pytest.mark.oracle
@pytest.mark.parametrize("way", ["int8", "int4", "int2", "float8"])
def test_what_the_library_packs_is_the_unpacked_checkpoint(written, way):
    holds_the_plain_checkpoint(LAYOUT, written / way, written / "plain")


# --- what checkpoints get wrong ---------------------------------------------------------------

FOUR, EIGHT = packed(64, 256, 4), eight(64, 256)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (EIGHT | {f"{W}._scale": ("F16", (63, 1))}, "_scale is (63, 1), expected (64, 1)"),
        (EIGHT | {f"{W}._data": ("I16", (64, 256))}, "_data is I16 (64, 256), expected F8_E4M3"),
        (EIGHT | {f"{M}.input_scale": ("F16", (64,))}, "input_scale is (64,), expected ()"),
        ({f"{W}._data": ("I8", (64, 256))}, "is stored without its _scale"),
        ({f"{W}._scale": ("F16", (64, 1))}, "is stored without its _data"),
        (FOUR | {f"{W}._shift": ("F16", (64, 1))}, "_shift is (64, 1), expected (128, 1)"),
        (
            FOUR | {f"{W}._data._data": ("U8", (64,))},
            "_data is U8 (64,), expected a matrix of bytes",
        ),
        (packed(64, 512, 4), "_data (128, 128) in 4 bits holds 32,768 numbers, expected (64,"),
        (
            {name: it for name, it in FOUR.items() if "_shift" not in name},
            "is stored without its _shift",
        ),
    ],
)
def test_what_cannot_be_is_a_fault(table, reason):
    unpacked = opened(LAYOUT, table, None, {W: (64, 256)})
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


@pytest.mark.parametrize("settings", [{"weights": "int2"}, {"weights": "int8"}])
def test_declared_bits_that_the_tensors_contradict_are_a_fault(settings):
    unpacked = opened(LAYOUT, FOUR, says("quanto", **settings), {W: (64, 256)})
    assert any("stored are 4" in reason for reason in faults(unpacked))


@pytest.mark.parametrize("settings", [{"weights": [4]}, {"weights": None}, {"weights": "int5"}])
def test_empty_settings_are_not_a_fault(settings):
    assert opened(LAYOUT, FOUR, says("quanto", **settings), {W: (64, 256)}).faults == ()


def test_a_weight_that_the_architecture_does_not_have_is_as_many_numbers():
    unpacked = opened(LAYOUT, FOUR)
    assert (pieces(unpacked), unpacked.faults) == ({W: (prod((64, 256)),)}, ())


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (FOUR, True),
        (EIGHT, True),
        ({"a._weight_qdata": ("I8", (8, 8)), "a._weight_scale": ("F32", (8, 1))}, False),
        ({"a.input_scale": ("F32", ())}, False),
    ],
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known
