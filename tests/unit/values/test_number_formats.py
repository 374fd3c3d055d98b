"""What the bits of each dtype spell, held to torch and to the tables of the specifications."""

import numpy as np
import pytest

from auditor.tensors import DTYPE_BITS
from auditor.values.number_formats import BLOCKS, FORMATS

EIGHT_BITS = {
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


def test_every_dtype_of_the_format_is_known_and_as_wide():
    assert set(DTYPE_BITS) <= set(FORMATS)
    for name, bits in DTYPE_BITS.items():
        parts = 2 if name.startswith("C") else 1  # real and imaginary
        form = FORMATS[name]
        assert 8 * form.unit * parts == bits * form.per_unit, name


@pytest.mark.slow
def test_patterns_have_the_values_that_torch_reads():
    torch = pytest.importorskip("torch")
    kinds = EIGHT_BITS | {"BF16": "bfloat16", "F16": "float16"}
    for name, kind in kinds.items():
        bits = 8 if name in EIGHT_BITS else 16
        every = np.arange(1 << bits, dtype=f"u{bits // 8}")
        theirs = torch.from_numpy(every.view(f"i{bits // 8}")).view(getattr(torch, kind))
        ours = FORMATS[name].decode(every.view(np.uint8))
        assert np.array_equal(ours, theirs.double().numpy(), equal_nan=True), name


# OCP Microscaling Formats, tables 2 to 5: smallest, largest, and one between.
SPECIFIED = {
    ("F4", 0b0001): 0.5,
    ("F4", 0b0111): 6.0,
    ("F4", 0b1010): -1.0,
    ("F6_E2M3", 0b000001): 0.125,
    ("F6_E2M3", 0b011111): 7.5,
    ("F6_E3M2", 0b000001): 0.0625,
    ("F6_E3M2", 0b011111): 28.0,
    ("F6_E3M2", 0b111111): -28.0,
}


def test_formats_below_eight_bits_have_the_values_of_the_specification():
    found = {key: FORMATS[key[0]].pattern_value(key[1]) for key in SPECIFIED}
    assert found == SPECIFIED


def test_packed_numbers_follow_each_other_from_the_lowest_bit_up(subtests):
    for name, bits in [("F4", 4), ("F6_E2M3", 6)]:
        with subtests.test(name=name, bits=bits):
            form = FORMATS[name]
            patterns = np.random.default_rng(0).integers(0, 1 << bits, 24)
            word = sum(int(one) << (bits * at) for at, one in enumerate(patterns))
            data = np.frombuffer(word.to_bytes(24 * bits // 8, "little"), np.uint8)
            assert form.patterns(data).tolist() == patterns.tolist()


def test_scales_stand_where_the_gguf_package_has_them():
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4, 256), dtype=np.float32)
    for name in ("Q4_0", "Q5_0", "Q8_0"):
        kind = getattr(gguf.GGMLQuantizationType, name)
        packed = gguf.quantize(rows, kind).reshape(-1, BLOCKS[name].size)
        at, *_ = BLOCKS[name].at
        scales = packed[:, at : at + 2].copy().view(np.float16)[:, 0].astype(np.float32)
        packed[:, at : at + 2] = 0  # without its scale a block is zeros
        assert np.isfinite(scales).all()
        assert scales.any()
        assert not gguf.dequantize(packed.reshape(4, -1), kind).any()
    for name, scales in BLOCKS.items():
        kind = getattr(gguf.GGMLQuantizationType, name, None)
        if kind is not None:
            assert gguf.GGML_QUANT_SIZES[kind][1] == scales.size, name
