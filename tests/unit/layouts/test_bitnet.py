"""BitNet: four ternary rows in a row of bytes, as transformers' integrations/bitnet.py packs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layouts.indexed import hides_what_it_cannot_show, its_total_is_told
from support.layouts.packed import (
    SMALL,
    faults,
    on_disk,
    opened,
    pieces,
    quantization_data,
    says,
    shapes,
    spoiled,
    stored,
    tells_what_is_written,
)

from auditor.audit.pipeline import audit
from auditor.layouts.bitnet import LAYOUT
from auditor.layouts.packing import Stored

X = "model.layers.0.mlp.up_proj"
W = f"{X}.weight"
sizes = st.integers(1, 400)


def packed(rows, columns, module=X):
    return {f"{module}.weight": ("U8", (rows, columns)), f"{module}.weight_scale": ("BF16", (1,))}


@given(sizes, sizes)
def test_bytes_are_four_rows(rows, columns):
    unpacked = opened(LAYOUT, packed(rows, columns), says("bitnet"))
    assert pieces(unpacked) == {W: (4 * rows, columns)}
    assert quantization_data(unpacked) == {f"{X}.weight_scale"}
    assert unpacked.faults == ()


def test_a_tensor_of_another_shape_is_a_fault_or_another_shape():
    for name, other in spoiled(packed(16, 96)):
        unpacked = opened(LAYOUT, other, says("bitnet"))
        assert unpacked.faults or pieces(unpacked) != {W: (64, 96)}, (name, other[name])


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(4, 8), (64, 96), (12, 3)])
def test_shapes_are_those_of_the_packing_in_transformers(shape):
    torch = pytest.importorskip("torch")
    bitnet = pytest.importorskip("transformers.integrations.bitnet")
    bytes_ = bitnet.pack_weights(torch.zeros(shape))
    unpacked = opened(LAYOUT, packed(*bytes_.shape), says("bitnet"))
    assert (bytes_.dtype, pieces(unpacked)) == (torch.uint8, {W: shape})


@pytest.mark.oracle
@pytest.mark.parametrize("way", [{}, {"linear_class": "autobitlinear", "use_rms_norm": True}])
def test_what_transformers_saves_is_the_unpacked_checkpoint(tmp_path, way):
    """A model is made of transformers' own linears, and saved: nothing here quantises weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    integration = pytest.importorskip("transformers.integrations.bitnet")
    config = transformers.LlamaConfig(**SMALL)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "plain")
    quantised = transformers.BitNetQuantConfig(["lm_head"], quantization_mode="offline", **way)
    integration.replace_with_bitnet_linear(model, ["lm_head"], quantised)
    model.to_empty(device="cpu")
    model.config.quantization_config = quantised
    model.save_pretrained(tmp_path / "packed")
    plain, table = on_disk(tmp_path / "plain"), on_disk(tmp_path / "packed")
    unpacked = opened(LAYOUT, table, says("bitnet", **way), shapes(plain))
    aside = quantization_data(unpacked)
    kept = {name: shape for name, (_, shape) in table.items() if name not in aside}
    assert {**kept, **pieces(unpacked)} == shapes(plain)
    assert unpacked.faults == ()
    report = audit(str(tmp_path / "packed"))
    assert (report.residual, report.verdict) == (0, "clean")
    hides_what_it_cannot_show(tmp_path / "packed")
    if not way:  # what is loaded and saved again as autobitlinear may be floats
        its_total_is_told(tmp_path / "packed")
        tells_what_is_written(LAYOUT, table, says("bitnet", **way), shapes(plain))


TABLE = packed(16, 96)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (TABLE, None),
        (TABLE | {f"{X}.bias": ("BF16", (64,))}, None),
        ({W: TABLE[W]}, "is stored without its weight_scale"),
        ({f"{X}.weight_scale": ("BF16", (1,))}, "is stored without its weight"),
        (TABLE | {f"{X}.weight_scale": ("BF16", (64,))}, "weight_scale is (64,), expected (1,)"),
        (TABLE | {W: ("U8", (1536,))}, "weight is U8 (1536,), expected (out / 4, in)"),
    ],
)
def test_what_cannot_be_is_a_fault(table, reason):
    unpacked = opened(LAYOUT, table, says("bitnet"))
    if reason is None:
        assert (pieces(unpacked), unpacked.faults) == ({W: (64, 96)}, ())
    else:
        assert any(reason in found for found in faults(unpacked)), faults(unpacked)


PLAIN = {"model.layers.1.mlp.up_proj.weight": ("BF16", (64, 96))}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"modules_to_not_convert": ["lm_head"]}, "is plain, but not by modules_to_not"),
        ({"modules_to_not_convert": None}, "is plain, but not by modules_to_not"),
        ({"modules_to_not_convert": ["model.layers.1"]}, None),
        ({"linear_class": "autobitlinear"}, None),
        ({"modules_to_not_convert": [X, "layers.1.mlp"]}, "is packed, but plain by modules_to_not"),
    ],
)
def test_modules_are_packed_as_the_config_declares(settings, reason):
    unpacked = opened(LAYOUT, TABLE | PLAIN, says("bitnet", **settings))
    found = list(faults(unpacked))
    assert found == [] if reason is None else (len(found) == 1 and reason in found[0])


def test_weights_that_were_saved_after_loading_are_plain_beside_their_scale():
    unpacked = opened(LAYOUT, TABLE | {W: ("BF16", (64, 96))}, says("bitnet"))
    assert (pieces(unpacked), unpacked.faults) == ({}, ())
    assert quantization_data(unpacked) == {f"{X}.weight_scale"}


def test_a_shape_that_only_an_unread_shard_has_is_not_a_fault():
    for hidden in TABLE:
        unpacked = opened(LAYOUT, TABLE | {hidden: None}, says("bitnet"), {W: (64, 96)})
        assert pieces(unpacked) in ({W: None}, {W: (64, 96)})
        assert unpacked.faults == ()


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (TABLE, True),
        (TABLE | {f"{X}.weight_scale_2": ("F32", ())}, False),
        (TABLE | {f"{X}.weight_scale": ("F8_E4M3", (16, 12))}, False),
        (TABLE | {W: ("F8_E4M3", (64, 96))}, False),
    ],
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known
