"""HQQ: groups of numbers packed along rows, and a tensor for every setting."""

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

from auditor.layouts.hqq import LAYOUT
from auditor.layouts.packing import Stored

M = "model.layers.0.mlp.up_proj"
W = f"{M}.weight"
sides = st.integers(1, 12).map(lambda n: 64 * n)
SETTINGS = {
    **dict.fromkeys(("nbits", "group_size", "axis"), ("I32", ())),
    **dict.fromkeys(("view_as_float", "quant_scale", "quant_zero", "offload_meta"), ("U8", ())),
    **dict.fromkeys(("encoded_state_dict", "stores_quant_config", "channel_wise"), ("U8", ())),
    **dict.fromkeys(("optimize", "round_zero"), ("U8", ())),
    "shape": ("I64", (2,)),
    "packing": ("U8", (7,)),
    "unpack_view_dtype": ("U8", (11,)),
    "compute_dtype": ("U8", (14,)),
}
PER_WORD = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}  # of bit_to_packing in hqq/core/quantize.py


def linear(  # noqa: PLR0913 - what a writer may choose
    outputs, inputs, *, bits=4, group=64, axis=1, as_float=False
):
    groups = outputs * inputs // group
    rows, columns = (groups, group) if axis == 1 else (group, groups)
    scale = ("BF16", (groups, 1) if axis == 1 else (1, groups))
    words = ("I32" if bits == 3 else "U8", (ceil(rows / PER_WORD[bits]), columns))
    if as_float:
        words = ("BF16", (words[1][0], columns * 2 if bits == 3 else columns // 2))
    table = {"W_q": words, "scale": scale, "zero": scale, **SETTINGS}
    return {f"{M}.{last}": described for last, described in table.items()}


def declared(bits=4, group=64, axis=1, *, as_float=False, **more):
    weights = {"nbits": bits, "group_size": group, "axis": axis, "view_as_float": as_float}
    return says("hqq", quant_config={"weight_quant_params": weights}, **more)


# --- laws -------------------------------------------------------------------------------------


@given(
    sides,
    sides,
    st.sampled_from(tuple(PER_WORD)),
    st.sampled_from((8, 16, 32, 64)),
    st.sampled_from((0, 1)),
    st.booleans(),
)
def test_groups_along_any_side_are_the_weight_that_went_into_them(  # noqa: PLR0913, PLR0917
    outputs, inputs, bits, group, axis, as_float
):
    table = linear(outputs, inputs, bits=bits, group=group, axis=axis, as_float=as_float)
    said = declared(bits, group, axis, as_float=as_float)
    unpacked = opened(LAYOUT, table, said, {W: (outputs, inputs)})
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {f"{M}.W_q"}
    assert unpacked.faults == ()


@given(sides, sides, st.sampled_from(tuple(PER_WORD)), st.sampled_from((0, 1)))
def test_the_scales_determine_the_bits(outputs, inputs, bits, axis):
    unpacked = opened(
        LAYOUT, linear(outputs, inputs, bits=bits, axis=axis), None, {W: (outputs, inputs)}
    )
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert unpacked.faults == ()
    assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}"]


@pytest.mark.parametrize("bits", PER_WORD)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(bits, axis):
    table = linear(128, 256, bits=bits, axis=axis)
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, declared(bits, 64, axis), {W: (128, 256)})
        setting = name.removeprefix(f"{M}.") in SETTINGS
        assert setting or unpacked.faults or pieces(unpacked) != {W: (128, 256)}, other[name]


# --- the library ------------------------------------------------------------------------------

SCRIPT = """
from hqq.core.quantize import BaseQuantizeConfig
from hqq.models.hf.base import AutoHQQHFModel
ways = {
    "4": dict(nbits=4, group_size=64, axis=1), "8": dict(nbits=8, group_size=32, axis=1),
    "3": dict(nbits=3, group_size=64, axis=0), "2": dict(nbits=2, group_size=16, axis=1),
    "1": dict(nbits=1, group_size=64, axis=0),
    "4-as-float": dict(nbits=4, group_size=64, axis=0, view_as_float=True),
}
for way, settings in ways.items():
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "plain", dtype=torch.bfloat16)
    config = BaseQuantizeConfig(**settings)
    config["weight_quant_params"]["optimize"] = False  # of values, which no header shows
    AutoHQQHFModel.quantize_model(
        model, quant_config=config, compute_dtype=torch.bfloat16, device="cpu")
    AutoHQQHFModel.save_to_safetensors(model, str(folder / way))
    said = json.loads((folder / way / "config.json").read_text())
    said["quantization_config"] = {
        "quant_method": "hqq", "quant_config": config, "skip_modules": ["lm_head"]}
    (folder / way / "config.json").write_text(json.dumps(said))
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hqq")
    write(SCRIPT, folder, "hqq")
    return folder


@each_night
@pytest.mark.oracle
@pytest.mark.parametrize("way", ["4", "8", "3", "2", "1", "4-as-float"])
def test_what_the_library_packs_is_the_unpacked_checkpoint(written, way):
    holds_the_plain_checkpoint(LAYOUT, written / way, written / "plain")


# --- what checkpoints get wrong ---------------------------------------------------------------

FOUR = linear(128, 256)


def without(*lasts):
    return {name: it for name, it in FOUR.items() if name.rpartition(".")[2] not in lasts}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (without("scale"), "is stored without its scale"),
        (without("nbits", "axis"), "is stored without its nbits and axis"),
        (without("W_q"), "is stored without its W_q"),
        (FOUR | {f"{M}.zero": ("BF16", (511, 1))}, "zero is (511, 1), expected (512, 1)"),
        (
            FOUR | {f"{M}.W_q": ("U8", (255, 64))},
            "W_q is U8 (255, 64), expected words that fit scales (512, 1)",
        ),
        (FOUR | {f"{M}.W_q": ("F64", (256, 64))}, "W_q is F64 (256, 64), expected BF16"),
        (linear(128, 512), "W_q (512, 64) in 4 bits holds 65,536 numbers, expected (128, 2"),
        (linear(128, 256, bits=2), "nbits of the config is 4, stored are 2"),
    ],
)
def test_what_cannot_be_is_a_fault(table, reason):
    unpacked = opened(LAYOUT, table, declared(), {W: (128, 256)})
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"quant_config": []},
        {"quant_config": {"weight_quant_params": 4}},
        {"quant_config": {"weight_quant_params": {"nbits": "4", "group_size": [1]}}},
        {"quant_config": {"weight_quant_params": {"nbits": 4, "group_size": None}}},
        {"quant_config": {"mlp.up_proj": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}},
        {"quant_config": {"mlp.up_proj": None}},
    ],
)
def test_sparse_settings_are_not_a_fault(settings):
    unpacked = opened(LAYOUT, FOUR, says("hqq", **settings), {W: (128, 256)})
    assert (pieces(unpacked), unpacked.faults) == ({W: (128, 256)}, ())


def test_scale_and_zero_may_be_stacked():
    table = {**without("scale", "zero"), f"{M}.zero_scale": ("BF16", (2, 512, 1))}
    unpacked = opened(LAYOUT, table, declared(), {W: (128, 256)})
    assert (pieces(unpacked), unpacked.faults) == ({W: (128, 256)}, ())


def test_a_weight_that_the_architecture_does_not_have_is_as_many_numbers():
    unpacked = opened(LAYOUT, FOUR, declared())
    assert (pieces(unpacked), unpacked.faults) == ({W: (prod((128, 256)),)}, ())


@pytest.mark.parametrize(
    ("table", "known"), [(FOUR, True), (without("W_q"), False), ({"a.scale": ("F16", (8,))}, False)]
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known
