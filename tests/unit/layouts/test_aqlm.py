"""AQLM: codes into codebooks. Shapes are those of `aqlm.QuantizedLinear` (aqlm 1.1.7)."""

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

from auditor.layouts.aqlm import LAYOUT
from auditor.layouts.packing import Stored

X = "model.layers.0.mlp.up_proj"
W = f"{X}.weight"


def packed(rows, columns, *, books=1, bits=16, outputs=1, inputs=8):  # noqa: PLR0913 - a row
    """aqlm/inference.py: codes, codebooks and scales of a QuantizedLinear."""
    codes = "I8" if bits <= 8 else "I16"
    return {
        f"{X}.codes": (codes, (rows, columns, books)),
        f"{X}.codebooks": ("F16", (books, 2**bits, outputs, inputs)),
        f"{X}.scales": ("F16", (rows, 1, 1, 1)),
    }


@given(
    st.integers(1, 500),
    st.integers(1, 500),
    st.integers(1, 8),
    st.integers(1, 16),
    st.integers(1, 4),
    st.integers(1, 32),
)
def test_codes_and_codebooks_determine_the_shape(rows, columns, books, bits, outputs, inputs):  # noqa: PLR0913, PLR0917 - drawn
    table = packed(rows, columns, books=books, bits=bits, outputs=outputs, inputs=inputs)
    settings = {
        "num_codebooks": books,
        "nbits_per_codebook": bits,
        "out_group_size": outputs,
        "in_group_size": inputs,
    }
    unpacked = opened(LAYOUT, table, says("aqlm", **settings))
    assert pieces(unpacked) == {W: (rows * outputs, columns * inputs)}
    assert quantization_data(unpacked) == {f"{X}.codebooks", f"{X}.scales"}
    assert unpacked.faults == ()
    shape = {W: (rows * outputs, columns * inputs)}
    tells_what_is_written(LAYOUT, table, says("aqlm", **settings), shape)


def test_a_tensor_of_another_shape_is_a_fault_or_another_shape():
    table = packed(64, 12, books=2, bits=8)
    assert pieces(opened(LAYOUT, table)) == {W: (64, 96)}
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other)
        assert unpacked.faults or pieces(unpacked) != {W: (64, 96)}, (name, other[name])


@pytest.mark.oracle
@pytest.mark.parametrize(("books", "bits", "outputs", "inputs"), [(1, 16, 1, 8), (2, 8, 1, 8)])
def test_shapes_are_those_of_the_library(books, bits, outputs, inputs):
    aqlm = pytest.importorskip("aqlm")
    linear = aqlm.QuantizedLinear(96, 64, inputs, outputs, books, bits, bias=True, device="meta")
    shapes = {f"{X}.{name}": tuple(tensor.shape) for name, tensor in linear.state_dict().items()}
    table = packed(64 // outputs, 96 // inputs, books=books, bits=bits)
    bias = {f"{X}.bias": (64,)}
    assert shapes == {name: shape for name, (_, shape) in table.items()} | bias


TABLE = packed(64, 12)


@pytest.mark.parametrize(
    ("table", "settings", "reason"),
    [
        (TABLE, {}, None),
        (TABLE, {"in_group_size": 8, "nbits_per_codebook": 16}, None),
        (
            TABLE,
            {"in_group_size": 4},
            "codebooks is (1, 65536, 1, 8), which is a in_group_size of 8",
        ),
        (
            TABLE,
            {"nbits_per_codebook": 8},
            "codebooks is (1, 65536, 1, 8), which is a nbits_per_codebook o",
        ),
        (TABLE, {"num_codebooks": "1"}, "num_codebooks of quantization_config is the string '1'"),
        (TABLE, {"in_group_size": 0}, "in_group_size of quantization_config is 0; 1 to 65,536"),
        (TABLE | {f"{X}.scales": ("F16", (64,))}, {}, "scales is (64,), expected (64, 1, 1, 1)"),
        (
            TABLE | {f"{X}.scales": ("F16", (32, 1, 1, 1))},
            {},
            "scales is (32, 1, 1, 1), expected (64, 1, 1, 1)",
        ),
        (
            TABLE | {f"{X}.codes": ("I16", (64, 12, 2))},
            {},
            "codes is (64, 12, 2), expected (64, 12, 1)",
        ),
        (TABLE | {f"{X}.codes": ("I8", (64, 12, 1))}, {}, "codes is I8, expected I16 or I32"),
        (
            TABLE | {f"{X}.codebooks": ("F16", (1, 0, 1, 8))},
            {},
            "codebooks is (1, 0, 1, 8), expected (1, 1, 1, 8)",
        ),
        ({f"{X}.codes": TABLE[f"{X}.codes"]}, {}, "is stored without its codebooks and scales"),
        ({f"{X}.codebooks": TABLE[f"{X}.codebooks"]}, {}, "is stored without its codes"),
    ],
)
def test_what_cannot_be_is_a_fault(table, settings, reason):
    unpacked = opened(LAYOUT, table, says("aqlm", **settings))
    if reason is None:
        assert (pieces(unpacked), unpacked.faults) == ({W: (64, 96)}, ())
    else:
        assert any(reason in found for found in faults(unpacked)), faults(unpacked)


def test_a_shape_that_only_an_unread_shard_has_is_not_a_fault():
    for hidden in TABLE:
        unpacked = opened(LAYOUT, TABLE | {hidden: None}, says("aqlm"), {W: (64, 96)})
        assert pieces(unpacked) in ({W: None}, {W: (64, 96)})
        assert unpacked.faults == ()


@pytest.mark.parametrize(
    ("table", "known"), [(TABLE, True), ({"a.codes": ("I16", (64, 12, 1))}, False)]
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known
