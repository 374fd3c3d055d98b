"""AWQ: words of 4-bit integers in four forms.

AutoAWQ 0.2.9 needs triton and an older transformers, so that the checkpoints here are packed by
the arithmetic of awq/modules/linear/{gemm,gemv,gemv_fast,marlin}.py.
"""

import json
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layouts.awq_words import gemm_words
from support.layouts.indexed import its_total_is_told
from support.layouts.packed import (
    LINEARS_OF_8B,
    SMALL,
    faults,
    holds_the_plain_checkpoint,
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

from auditor.bounded.json_text import JsonFile
from auditor.layouts import gptq
from auditor.layouts.awq import LAYOUT
from auditor.layouts.declared import declaration
from auditor.layouts.packing import Stored

M = "model.layers.0.mlp.up_proj"
W = f"{M}.weight"
sides = st.integers(1, 20).map(lambda n: 128 * n)


def divided(number, divisor):
    """make_divisible of awq/modules/linear/gemv.py."""
    return (number + divisor - 1) // divisor


def zeros_width(inputs, group):
    """calculate_zeros_width of awq/modules/linear/gemv.py."""
    multiplier = {64: 2, 32: 4}.get(group, 1)
    return divided(divided(inputs // group, 8), multiplier) * multiplier


def gemm(outputs, inputs, group=128, module=M):
    return {
        f"{module}.qweight": ("I32", (inputs, outputs // 8)),
        f"{module}.qzeros": ("I32", (inputs // group, outputs // 8)),
        f"{module}.scales": ("F16", (inputs // group, outputs)),
    }


def gemv(outputs, inputs, group=128, module=M):
    width = zeros_width(inputs, group)
    return {
        f"{module}.qweight": ("I32", (outputs, inputs // 8)),
        f"{module}.qzeros": ("I32", (outputs, width)),
        f"{module}.scales": ("F16", (outputs, width * 8)),
    }


def gemv_fast(outputs, inputs, group=128, module=M, zeros="qzeros"):
    width = zeros_width(inputs, group)
    return {
        f"{module}.qweight": ("I16", (outputs // 4, inputs // 4 * 4)),
        f"{module}.{zeros}": ("F16", (width * 8, outputs)),
        f"{module}.scales": ("F16", (width * 8, outputs)),
    }


def marlin(outputs, inputs, group=128, module=M):
    return {
        f"{module}.qweight": ("I32", (inputs // 16, outputs * 16 // 8)),
        f"{module}.scales": ("F16", (inputs // group, outputs)),
    }


FORMS = {"gemm": gemm, "gemv": gemv, "gemv_fast": gemv_fast, "marlin": marlin}
GROUPS = (32, 64, 128)
forms = pytest.mark.parametrize("form", FORMS)


# --- laws -------------------------------------------------------------------------------------


@forms
@given(sides, sides, st.sampled_from(GROUPS))
def test_every_form_is_the_weight_that_went_into_it(form, outputs, inputs, group):
    table = FORMS[form](outputs, inputs, group)
    said = says("awq", bits=4, group_size=group, version=form.upper(), zero_point=True)
    unpacked = opened(LAYOUT, table, said)
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {f"{M}.qweight"}
    assert unpacked.faults == ()
    tells_what_is_written(LAYOUT, table, said, {W: (outputs, inputs)})


@forms
@given(sides, sides)
def test_the_shapes_determine_the_form(form, outputs, inputs):
    unpacked = opened(LAYOUT, FORMS[form](outputs, inputs))
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert unpacked.faults == ()


@forms
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(form):
    table = FORMS[form](1024, 2048)
    for said in (None, says("awq", bits=4, group_size=128, version=form)):
        assert opened(LAYOUT, table, said, {W: (1024, 2048)}).faults == ()
        for name, other in spoiled(table):
            unpacked = opened(LAYOUT, other, said, {W: (1024, 2048)})
            assert unpacked.faults or pieces(unpacked) != {W: (1024, 2048)}, (name, other[name])


@given(sides, sides, st.sampled_from(GROUPS), st.sampled_from(("gemm", "gemv", "gemv_fast")))
def test_awq_is_not_mistaken_for_gptq(outputs, inputs, group, form):
    tensors = Stored(stored(FORMS[form](outputs, inputs, group)))
    assert LAYOUT.recognises(tensors)
    assert not gptq.LAYOUT.recognises(tensors)


@given(sides, sides, st.sampled_from((2, 3, 4, 8)), st.sampled_from(GROUPS), st.booleans())
def test_gptq_is_not_mistaken_for_awq(outputs, inputs, bits, group, g_idx):
    table = {
        f"{M}.qweight": ("I32", (inputs * bits // 32, outputs)),
        f"{M}.qzeros": ("I32", (inputs // group, outputs * bits // 32)),
        f"{M}.scales": ("F16", (inputs // group, outputs)),
        **({f"{M}.g_idx": ("I32", (inputs,))} if g_idx else {}),
    }
    tensors = Stored(stored(table))
    assert gptq.LAYOUT.recognises(tensors)
    assert not LAYOUT.recognises(tensors)


# --- checkpoints ------------------------------------------------------------------------------


def quantised(folder, cls, config, **settings):
    """A model saved plain, and once more with every linear of its layers packed as gemm."""
    numpy = pytest.importorskip("numpy")
    transformers = pytest.importorskip("transformers")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    getattr(transformers, cls)(config).save_pretrained(folder / "plain")
    random = numpy.random.default_rng(7)
    table = {}
    for name, (_, shape) in on_disk(folder / "plain").items():
        module, _, last = name.rpartition(".")
        if last != "weight" or len(shape) != 2 or "proj" not in module:
            table[name] = numpy.zeros(shape, numpy.float16)
            continue
        outputs, inputs = shape
        table[f"{module}.qweight"] = gemm_words(numpy, random.integers(0, 16, (inputs, outputs)))
        zeros = random.integers(0, 16, (inputs // 32, outputs))
        table[f"{module}.qzeros"] = gemm_words(numpy, zeros)
        table[f"{module}.scales"] = numpy.ones((inputs // 32, outputs), numpy.float16)
    (folder / "packed").mkdir()
    save_file(table, folder / "packed" / "model.safetensors", metadata={"format": "pt"})
    said = json.loads((folder / "plain" / "config.json").read_text()) | {"dtype": "float16"}
    ours = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
    said["quantization_config"] = ours | {"version": "gemm"} | settings
    (folder / "packed" / "config.json").write_text(json.dumps(said))
    return on_disk(folder / "plain"), on_disk(folder / "packed")


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("Llama", {}),
        ("Qwen2", {"tie_word_embeddings": True}),
        ("Mixtral", {"num_local_experts": 2}),
    ],
)
def test_what_is_packed_is_the_unpacked_checkpoint(tmp_path, family, more):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(**SMALL, **more)
    plain, packed = quantised(tmp_path, f"{family}ForCausalLM", config)
    said = says("awq", bits=4, group_size=32, version="gemm")
    holds_the_plain_checkpoint(LAYOUT, tmp_path / "packed", tmp_path / "plain", said)
    its_total_is_told(tmp_path / "packed")
    tells_what_is_written(LAYOUT, packed, said, shapes(plain))


# --- what checkpoints get wrong ---------------------------------------------------------------

GEMM = gemm(256, 512)
ANOTHER = {"model.layers.1.mlp.up_proj.weight": ("F16", (256, 512))}  # in another layer, plain
PARTLY = GEMM | gemm(512, 256, module="model.layers.1.mlp.down_proj") | ANOTHER


def without(table, last):
    return {name: described for name, described in table.items() if not name.endswith(f".{last}")}


@pytest.mark.parametrize(
    ("table", "settings", "reason"),
    [
        (without(GEMM, "scales"), {}, "is stored without its scales"),
        (without(GEMM, "qzeros"), {}, "is stored without its qzeros"),
        (without(GEMM, "qweight"), {}, "is stored without its qweight"),
        (GEMM, {"bits": 8}, "bits of quantization_config is 8, stored are 4"),
        (GEMM, {"group_size": 64}, "scales is (4, 256), expected (8, 256)"),
        (GEMM, {"version": "gemv"}, "version of quantization_config is gemv, stored is gemm"),
        (GEMM | {f"{M}.qzeros": ("I32", (4, 31))}, {}, "qzeros is (4, 31), expected (4, 32)"),
        (GEMM | {f"{M}.scales": ("F16", (4, 64))}, {}, "scales is (4, 64), expected (4, 256)"),
        (
            GEMM | {f"{M}.qweight": ("F32", (512, 32))},
            {},
            "qweight is F32 (512, 32), expected I16 or",
        ),
        (
            gemv(256, 512) | {f"{M}.scales": ("F16", (256, 4))},
            {"version": "gemv"},
            "scales is (256, 4), expected (256, 8)",
        ),
        (GEMM, {"modules_to_not_convert": ["up_proj"]}, "is packed, but plain by modules_to_not"),
        (PARTLY, {}, "is plain, but not by modules_to_not"),
        (PARTLY, {"modules_to_not_convert": ["lm_head"]}, "is plain, but not by modules_to_not"),
        (
            PARTLY,
            {"modules_to_not_convert": ["model.layers.1"]},
            "is packed, but plain by modules_to_not",
        ),
        (
            PARTLY,
            {"modules_to_not_convert": [r"model\.layers\.1\..*"]},
            "is packed, but plain by modules_to_not",
        ),
    ],
)
def test_what_cannot_be_is_a_fault(table, settings, reason):
    said = says("awq", **({"bits": 4, "group_size": 128, "version": "gemm"} | settings))
    unpacked = opened(LAYOUT, table, said, {W: (256, 512)})
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (GEMM, {"version": None}),
        (GEMM, {"version": "exllama"}),
        (gemm(256, 512, 512), {"group_size": -1}),
        (without(marlin(256, 512), "qzeros"), {"version": "marlin"}),
        (gemv_fast(256, 512, zeros="scaled_zeros"), {"version": "llm-awq"}),
        (GEMM | ANOTHER, {}),
        (GEMM | {"transformer.h.0.mlp.gelu_impl.scales": ("F16", (1024,))}, {}),
        (PARTLY, {"modules_to_not_convert": ["model.layers.1.mlp.up_proj"]}),
        (PARTLY, {"modules_to_not_convert": ["layers.1.mlp.up_proj"]}),
        (PARTLY, {"modules_to_not_convert": [r"model\.layers\.1\.mlp\.up.*"]}),
        (PARTLY, {"modules_to_not_convert": [f"a{n}" for n in range(25_000)]}),
    ],
)
def test_a_possible_id_has_no_fault(table, settings):
    said = says("awq", **({"bits": 4, "group_size": 128, "version": "gemm"} | settings))
    assert opened(LAYOUT, table, said).faults == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"bits": 0},
        {"bits": "4"},
        {"group_size": [1]},
        {"w_bit": 5},
        {"w_bit": 4, "q_group_size": 0.5},
    ],
)
def test_settings_of_another_type_or_size_are_a_fault_and_no_more(settings):
    unpacked = opened(LAYOUT, GEMM, says("awq", **settings))
    assert pieces(unpacked) == {W: (256, 512)}
    assert any("quantization_config is" in reason for reason in faults(unpacked))


def test_the_settings_of_quant_config_json_are_read_as_those_of_the_config():
    written = {"zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}
    declared = declaration({}, JsonFile("quant_config.json", json.dumps(written).encode()))
    assert declared.method == "awq"
    assert opened(LAYOUT, GEMM, declared).layout == "awq gemm, 4 bits, groups of 128"


def test_a_mistral_7b_in_awq_holds_its_parameters():
    """TheBloke/Mistral-7B-v0.1-AWQ packs all linears of the layers: 7,241,732,096 parameters."""
    table = {}
    for layer in range(32):
        for kind, shape in LINEARS_OF_8B.items():
            table |= gemm(*shape, module=f"model.layers.{layer}.{kind}")
    packed = sum(map(prod, pieces(opened(LAYOUT, table)).values()))
    embedding, norms = 32000 * 4096, 65 * 4096
    assert packed + 2 * embedding + norms == 7_241_732_096
