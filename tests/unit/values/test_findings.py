"""What numbers show of checkpoints that transformers and peft write, and what they do not."""

import json
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

pytest.importorskip("torch", reason="writes the checkpoints")
from diagnose_values import COLUMNS, judged
from support.examples import one_in
from support.value_causes import causes_of
from support.value_faults import adapter_cases, value_cases
from support.value_files import write_numbers

import auditor
from auditor.findings import AddedBiasZero, EqualDuplicate, TiedCopyDiffers
from auditor.formats import as_json

# A masked model, a causal one whose head is its own, one that ties and starts its norms at zero,
# one of images, one of two towers.
FAMILIES = [
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "LlamaForCausalLM",
    "GemmaForCausalLM",
    "ViTForImageClassification",
    "T5ForConditionalGeneration",
]


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("family", one_in(2, FAMILIES))
def test_each_fault_is_named_alone_and_a_sound_checkpoint_is_left_alone(tmp_path, family):
    for case in value_cases(family, tmp_path):
        outcome = auditor.audit(str(case.folder), values=True)
        if case.cause is None:
            assert causes_of(outcome) == [], case.name
            assert outcome.verdict == "clean", case.name
        else:
            assert judged(case, outcome) == COLUMNS, case.name
            assert outcome.residual == 0, case.name
            causes = [one.cause for one in outcome.diagnosis]
            fresh = case.cause != "untrained" and "untrained" in causes
            assert len(causes) - fresh == (case.severity != "info"), case.name


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_an_adapter_that_adds_nothing_is_named_and_so_are_the_idle_modules_of_another(tmp_path):
    pytest.importorskip("peft")
    for case in adapter_cases(tmp_path):
        outcome = auditor.audit(str(case.folder), values=True)
        expected = [(case.cause, case.severity)] if case.cause else []
        assert causes_of(outcome) == expected, case.name


def test_the_norm_of_what_a_lora_adds_is_that_of_its_product(tmp_path):
    rng = np.random.default_rng(0)
    down, up = rng.standard_normal((2, 8)), rng.standard_normal((6, 2))
    path = "base_model.model.layers.0.q_proj.lora_"
    write_numbers(
        tmp_path / "adapter_model.safetensors",
        {f"{path}A.weight": down, f"{path}B.weight": up},
    )
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 8}')
    outcome = auditor.audit(str(tmp_path), values=True)
    norm = 4 * np.linalg.norm(up @ down)
    assert f"the adapter adds {norm:.4g} (Frobenius norm) to 1 x q_proj" in outcome.notes


def small(folder, change):
    """A file of one tied pair and more, as a model of no known class: values need none."""
    rng = np.random.default_rng(0)
    tensors = {f"x.{at}.weight": rng.standard_normal((8, 4), np.float32) for at in range(2)}
    return auditor.audit(
        str(write_numbers(folder / "model.safetensors", tensors | change(tensors)).parent),
        values=True,
    )


def test_numbers_are_judged_whatever_the_architecture(tmp_path):
    def spoilt(tensors):
        broken = tensors["x.0.weight"].copy()
        broken[1, 1] = np.nan
        return {"x.0.weight": broken}

    outcome = small(tmp_path, spoilt)
    assert isinstance(outcome, auditor.Unaudited)
    assert [one.kind for one in outcome.findings] == ["not-finite"]
    assert [one.cause for one in outcome.diagnosis] == ["not-finite"]


def test_a_matrix_of_zeros_is_named_and_a_vector_or_a_table_of_biases_is_not(tmp_path):
    zeros = {
        "x.0.weight": np.zeros((8, 4), np.float32),
        "x.0.bias": np.zeros(8, np.float32),
        "x.relative_position_bias_table": np.zeros((8, 4), np.float32),
        "x.0.lora_B.weight": np.zeros((8, 4), np.float32),
    }
    outcome = small(tmp_path, lambda _: zeros)
    assert [(one.kind, one.names) for one in outcome.findings] == [("all-zero", ("x.0.weight",))]


BYTES = np.arange(64, dtype=np.uint8).reshape(8, 8)
SCALES = {  # the packed tensor, its scales, and the shape of those
    "gptq": ("a.qweight", np.int32, "a.scales", (2, 8), np.float16),
    "fp8": ("a.weight", "F8_E4M3", "a.weight_scale_inv", (1, 1), np.float32),
    "one for all": ("a.weight", "F8_E4M3", "a.weight_scale", (), np.float32),
    "nvfp4": ("a.weight_packed", np.uint8, "a.weight_global_scale", (1,), np.float32),
    "4-bit": ("a.weight", np.uint8, "a.weight.absmax", (4,), np.float32),
    "int8": ("a.weight", np.int8, "a.SCB", (8,), np.float32),
}


def packed(kind):
    name, dtype, *_ = SCALES[kind]
    if isinstance(dtype, str):
        return {name: (dtype, BYTES.shape, BYTES.tobytes())}
    return {name: BYTES.astype(dtype)}


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize(
    ("value", "found"),
    [(0, "all-zero"), (np.nan, "not-finite"), (np.inf, "not-finite"), (1, None)],
)
def test_scales_of_packed_weights_that_are_zero_or_not_finite_are_named(
    tmp_path, kind, value, found
):
    name, shape, dtype = SCALES[kind][2:]
    scales = {name: np.full(shape, value, dtype)}
    outcome = small(tmp_path, lambda _: packed(kind) | scales)
    expected = [(found, (name,))] if found else []
    assert [(one.kind, one.names) for one in outcome.findings] == expected


def test_a_scale_of_zero_among_others_or_of_nothing_packed_is_no_fault(tmp_path):
    some = {"a.scales": np.array([[0, 1], [0, 1]], np.float16)}
    assert not small(tmp_path / "a", lambda _: packed("gptq") | some).findings
    alone = {"ls1.scale": np.zeros(8, np.float32), "ls1.weight": np.ones((8, 8), np.float32)}
    assert not small(tmp_path / "b", lambda _: alone).findings


@pytest.mark.parametrize(
    ("packs", "scales"),
    [
        ({"e_blocks": BYTES}, "e_scales"),
        ({"a.weight_packed": BYTES}, "a.weight_scale"),
        ({"a.weight": ("F8_E4M3", (8, 8), bytes(range(64)))}, "a.weight_scale"),
        ({"a.qweight": BYTES.astype(np.int32)}, None),
    ],
)
def test_bytes_that_are_exponents_are_read_as_such(tmp_path, packs, scales):
    """0xff is NaN of F8_E8M0; in other bytes it is 255."""
    exponents = np.array([0, 127, 255], np.uint8)
    name = scales or "a.scales"
    outcome = small(tmp_path, lambda _: packs | {name: exponents})
    named = [one.names for one in outcome.findings if one.kind == "not-finite"]
    assert named == ([(name,)] if scales else [])
    (read,) = (one for one in outcome.values.tensors if one.name == name)
    assert (read.dtype, read.numbers, read.absmax) == ("U8", 3, 1.0 if scales else 255.0)


def test_an_infinite_number_of_a_mask_is_no_fault_and_a_nan_is(tmp_path):
    mask = np.full((4, 4), -np.inf, np.float32)
    assert not small(tmp_path / "a", lambda _: {"h.0.attn.masked_bias": mask}).findings
    mask[0, 0] = np.nan
    found = small(tmp_path / "b", lambda _: {"h.0.attn.masked_bias": mask}).findings
    assert [one.kind for one in found] == ["not-finite"]


def rounded(numbers):
    """To bfloat16, still in four bytes."""
    return (np.asarray(numbers, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


PLAIN = {
    "random": (lambda rng: rng.standard_normal((64, 64), np.float32), False),
    "rounded": (lambda rng: rounded(rng.standard_normal((64, 64))), True),
    "too few": (lambda rng: rounded(rng.standard_normal((16, 16))), False),
    "a mask": (lambda rng: rng.integers(0, 2, (64, 64)).astype(np.float32), False),
    "ones": (lambda _: np.ones((64, 64), np.float32), False),
}


@pytest.mark.parametrize("label", PLAIN)
def test_few_or_plain_numbers_are_not_padded(tmp_path, label):
    make, padded = PLAIN[label]
    outcome = small(tmp_path, lambda _: {"y": make(np.random.default_rng(0))})
    assert ("padded-dtype" in [one.kind for one in outcome.findings]) == padded


def test_a_report_with_values_fits_the_schema(tmp_path):
    schema = json.loads(files("auditor.formats").joinpath("report.schema.json").read_text("utf-8"))
    outcome = small(tmp_path, lambda tensors: {"x.0.weight": 0 * tensors["x.0.weight"]})
    jsonschema.validate(json.loads(as_json.render(outcome)), schema)


def test_what_a_copy_becomes_keeps_its_kind_or_takes_its_own():
    assert (EqualDuplicate.kind, EqualDuplicate.severity) == ("duplicate", auditor.Severity.INFO)
    assert TiedCopyDiffers.severity is auditor.Severity.ERROR
    assert AddedBiasZero.severity is auditor.Severity.INFO
