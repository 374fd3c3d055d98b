"""EETQ: int8, transposed.

Its kernels come from the Hub and need CUDA, so that the checkpoints here are written as
transformers/integrations/eetq.py declares them: EetqLinear has weight (in, out) and weight_scales.
"""

import json

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
from auditor.layouts.eetq import LAYOUT
from auditor.layouts.packing import Stored

M = "model.layers.0.mlp.up_proj"
W = f"{M}.weight"
SAID = says("eetq", weights="int8", modules_to_not_convert=["lm_head"])


def linear(outputs, inputs, module=M):
    return {
        f"{module}.weight": ("I8", (inputs, outputs)),
        f"{module}.weight_scales": ("F16", (outputs,)),
    }


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_the_transpose_is_the_weight_that_went_into_it(outputs, inputs):
    unpacked = opened(LAYOUT, linear(outputs, inputs), SAID)
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == {f"{M}.weight_scales"}
    assert unpacked.faults == ()


def test_a_tensor_of_another_shape_is_a_fault_or_another_shape():
    table = linear(64, 96)
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, SAID)
        assert unpacked.faults or pieces(unpacked) != {W: (64, 96)}, (name, other[name])


@pytest.mark.oracle
def test_what_is_packed_is_the_unpacked_checkpoint(tmp_path):
    numpy = pytest.importorskip("numpy")
    transformers = pytest.importorskip("transformers")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    config = transformers.LlamaConfig(**SMALL, dtype="float16")
    transformers.LlamaForCausalLM(config).half().save_pretrained(tmp_path / "plain")
    plain, table = on_disk(tmp_path / "plain"), {}
    for name, (_, shape) in plain.items():
        table[name] = numpy.zeros(shape, numpy.float16)
        if "proj" in name:
            table[name] = numpy.zeros(shape, numpy.int8).T.copy()
            table[f"{name}_scales"] = numpy.ones(shape[0], numpy.float16)
    (tmp_path / "packed").mkdir()
    save_file(table, tmp_path / "packed" / "model.safetensors", metadata={"format": "pt"})
    said = json.loads((tmp_path / "plain" / "config.json").read_text())
    said["quantization_config"] = {"quant_method": "eetq", "weights": "int8"}
    (tmp_path / "packed" / "config.json").write_text(json.dumps(said))
    found = on_disk(tmp_path / "packed")
    unpacked = opened(LAYOUT, found, SAID, shapes(plain))
    left = {name: shape for name, (_, shape) in found.items() if "_scales" not in name}
    assert {**left, **pieces(unpacked)} == shapes(plain)
    report = audit(str(tmp_path / "packed"))
    assert (report.residual, report.verdict) == (0, "clean")
    hides_what_it_cannot_show(tmp_path / "packed")
    its_total_is_told(tmp_path / "packed")
    tells_what_is_written(LAYOUT, found, SAID, shapes(plain))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({W: ("I8", (96, 64))}, "is stored without its weight_scales"),
        ({f"{W}_scales": ("F16", (64,))}, "is stored without its weight"),
        (linear(64, 96) | {W: ("F16", (96, 64))}, "weight is F16 (96, 64), expected I8"),
        (linear(64, 96) | {W: ("I8", (96,))}, "weight is I8 (96,), expected (in, out)"),
        (
            linear(64, 96) | {f"{W}_scales": ("F16", (96,))},
            "weight_scales is (96,), expected (64,)",
        ),
        (linear(64, 96, "lm_head"), "is packed, but plain by modules_to_not"),
    ],
)
def test_what_cannot_be_is_a_fault(table, reason):
    unpacked = opened(LAYOUT, table, SAID)
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (linear(8, 8), True),
        ({"a.weight": ("I8", (8, 8)), "a.SCB": ("F32", (8,))}, False),
        ({"a.weight": ("F8_E4M3", (8, 8)), "a.weight_scales": ("F32", (8,))}, False),
    ],
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known
