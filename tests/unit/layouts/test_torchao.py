"""torchao: tensor subclasses, flattened into `_weight_qdata` and the like."""

from math import ceil

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
from auditor.layouts.torchao import LAYOUT

M = "model.layers.0.mlp.up_proj"
W = f"{M}.weight"
SAID = says("torchao", quant_type={"default": {"_type": "Int8WeightOnlyConfig"}})
sides = st.integers(1, 20).map(lambda n: 32 * n)


def parts(name="_weight_", **described):
    return {f"{M}.{name}{last}": value for last, value in described.items()}


def rows(outputs, inputs):
    """Int8Tensor, one scale for each output."""
    scale = (outputs, 1)
    return parts(qdata=("I8", (outputs, inputs)), scale=("F32", scale), zero_point=("I8", scale))


def groups(outputs, inputs):
    """IntxUnpackedToInt8Tensor in groups of 32."""
    scale = (outputs, inputs // 32)
    return parts(qdata=("I8", (outputs, inputs)), scale=("BF16", scale), zero_point=("I8", scale))


def float8(outputs, inputs):
    return parts(qdata=("F8_E4M3", (outputs, inputs)), scale=("F32", (outputs, 1)))


def int4(outputs, inputs):
    """Int4Tensor in groups of 32: its docstring has (N, K/2) and (K/group_size, N)."""
    scale = ("BF16", (inputs // 32, outputs))
    return parts(qdata=("I8", (outputs, inputs // 2)), scale=scale, zero_point=scale)


def plain_int32(outputs, inputs):
    """Int4PlainInt32Tensor in groups of 32: its docstring has (N, K/8) and (K/group_size, N)."""
    scale = (inputs // 32, outputs)
    qdata = ("I32", (outputs, inputs // 8))
    return parts(qdata=qdata, scale=("BF16", scale), zero_point=("I8", scale))


def tiled(outputs, inputs):
    """Int4TilePackedTo4dTensor: its docstring has (n/8, k/(t * 16), 32, t/2), t = 8."""
    n, k = 8 * ceil(outputs / 8), 1024 * ceil(inputs / 1024)
    both = ("BF16", (k // 32, n, 2))
    return parts(qdata=("I32", (n // 8, k // 128, 32, 4)), scale_and_zero=both)


def swizzled(outputs, inputs, tile):
    """hp_data_dims_to_swizzled_scale_dims of torchao/prototype/mx_formats/utils.py."""
    return ceil(outputs / 128) * 32, ceil(inputs / tile) * 16


def mxfp8(outputs, inputs):
    scale = ("F8_E8M0", swizzled(outputs, inputs, 128))
    return parts(qdata=("F8_E4M3", (outputs, inputs)), scale=scale)


def mxfp4(outputs, inputs):
    return parts(qdata=("U8", (outputs, inputs // 2)), scale=("F8_E8M0", (outputs, inputs // 32)))


def nvfp4(outputs, inputs):
    scale = ("F8_E4M3", swizzled(outputs, inputs, 64))
    qdata = ("U8", (outputs, inputs // 2))
    return parts(qdata=qdata, scale=scale, per_tensor_scale=("F32", ()))


CLASSES = {
    "INT8": rows,
    "INT8 in groups": groups,
    "F8_E4M3": float8,
    "INT4": int4,
    "INT4 in words": plain_int32,
    "INT4 in tiles": tiled,
    "F8_E4M3 in blocks": mxfp8,
    "MXFP4": mxfp4,
    "NVFP4": nvfp4,
}
classes = pytest.mark.parametrize("label", CLASSES)


# --- laws -------------------------------------------------------------------------------------


@classes
@given(sides, sides)
def test_every_class_is_the_weight_that_went_into_it(label, outputs, inputs):
    table = CLASSES[label](outputs, inputs)
    unpacked = opened(LAYOUT, table, SAID, {W: (outputs, inputs)})
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {f"{M}._weight_qdata"}
    assert unpacked.faults == ()
    assert [piece.dtype for piece in unpacked.tensors] == [label.split(maxsplit=1)[0]]


@classes
def test_the_older_names_are_read_as_well(label):
    table = CLASSES[label](64, 96)
    older = {name.replace("._weight_", ".weight:"): value for name, value in table.items()}
    older["model.norm.weight:_data"] = ("BF16", (96,))
    unpacked = opened(LAYOUT, older, SAID, {W: (64, 96)})
    assert pieces(unpacked) == {W: (64, 96), "model.norm.weight": (96,)}
    assert unpacked.faults == ()


@classes
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(label):
    table = CLASSES[label](256, 2048)
    assert opened(LAYOUT, table, SAID, {W: (256, 2048)}).faults == ()
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, SAID, {W: (256, 2048)})
        two_blocks = label == "F8_E4M3" and other[name] == ("F32", (256, 2))  # also a Float8Tensor
        assert two_blocks or unpacked.faults or pieces(unpacked) != {W: (256, 2048)}, (
            name,
            other[name],
        )


@pytest.mark.parametrize("table", [rows(64, 96), int4(64, 96)])
def test_experts_before_the_matrix_stay_there(table):
    experts = {
        name.replace("_weight_", "_gate_up_proj_"): (dtype, (4, *shape))
        for name, (dtype, shape) in table.items()
    }
    unpacked = opened(LAYOUT, experts, SAID)
    assert pieces(unpacked) == {f"{M}.gate_up_proj": (4, 64, 96)}
    assert unpacked.faults == ()


# --- the library ------------------------------------------------------------------------------

SCRIPT = """
import torchao.quantization as q, torchao.prototype.mx_formats as mx
ways = {
    "int8": q.Int8WeightOnlyConfig(version=2),
    "int8-dynamic": q.Int8DynamicActivationInt8WeightConfig(version=2),
    "float8": q.Float8WeightOnlyConfig(),
    "intx": q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32)),
    "int8-int4": q.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=q.PerGroup(32)),
    "mxfp8": mx.MXDynamicActivationMXWeightConfig(),
    "mxfp4": mx.MXDynamicActivationMXWeightConfig(
        activation_dtype=torch.float4_e2m1fn_x2, weight_dtype=torch.float4_e2m1fn_x2),
    "nvfp4": mx.NVFP4WeightOnlyConfig(),
}
for way, config in ways.items():
    packed = transformers.LlamaForCausalLM.from_pretrained(
        folder / "plain", dtype=torch.bfloat16,
        quantization_config=transformers.TorchAoConfig(config))
    packed.save_pretrained(folder / way)
"""
WAYS = ("int8", "int8-dynamic", "float8", "intx", "int8-int4", "mxfp8", "mxfp4", "nvfp4")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torchao")
    write(SCRIPT, folder, "torchao")
    return folder


@each_night
@pytest.mark.oracle
@pytest.mark.parametrize("way", WAYS)
def test_what_the_library_packs_is_the_unpacked_checkpoint(written, way):
    holds_the_plain_checkpoint(LAYOUT, written / way, written / "plain", SAID)


# --- what checkpoints get wrong ---------------------------------------------------------------

INT8 = rows(64, 96)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (INT8 | parts(scale=("F32", (63, 1))), "scale is (63, 1), expected (64, 1)"),
        (INT8 | parts(zero_point=("I8", (64, 2))), "zero_point is (64, 2), expected (64, 1)"),
        (parts(qdata=("I8", (64, 96))), "is stored without its scale"),
        (parts(scale=("F32", (64, 1))), "is stored without its qdata"),
        (
            parts(qdata=("I64", (64, 96)), scale=("F32", (64, 1))),
            "qdata is I64 (64, 96), expected a dtype of a class of torchao",
        ),
        (
            parts(qdata=("I8", (64,)), scale=("F32", (64, 1))),
            "qdata is I8 (64,), expected two axes or more",
        ),
        (
            nvfp4(64, 96) | parts(per_tensor_scale=("F32", (64,))),
            "per_tensor_scale is (64,), expected (1,)",
        ),
    ],
)
def test_what_cannot_be_is_a_fault(table, reason):
    unpacked = opened(LAYOUT, table, SAID, {W: (64, 96)})
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (INT8, True),
        ({"a.weight:qdata": ("I8", (8, 8))}, True),
        ({"a._weight_scale": ("F32", (8, 1))}, False),
        ({"a.weight._data": ("I8", (8, 8)), "a.weight._scale": ("F32", (8, 1))}, False),
    ],
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known
