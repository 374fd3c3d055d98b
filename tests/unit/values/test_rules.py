"""What numbers show of packed weights, adapters, and checkpoints that transformers and peft write.

Faults in plain weights are in tests/cases/values.
"""

import json
import tempfile
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from support.builders import safetensors_bytes
from support.case_numbers import drawn
from support.checkpoints import expect, stored_by
from support.examples import one_in
from support.value_causes import causes_of
from support.value_files import write_numbers

import auditor
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
RNG = np.random.default_rng(0)


@pytest.mark.slow
@pytest.mark.oracle
def test_each_fault_is_named_alone_and_a_sound_checkpoint_is_left_alone(subtests, tmp_path):
    for family in one_in(2, FAMILIES):
        with subtests.test(family=family):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            pytest.importorskip("torch", reason="writes the checkpoints")
            from diagnosing.numbers import COLUMNS, judged  # noqa: PLC0415 - needs torch
            from support.value_faults import value_cases  # noqa: PLC0415 - likewise

            for case in value_cases(family, place):
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


# --- adapters -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_an_adapter_that_adds_nothing_is_named_and_so_are_the_idle_modules_of_another(tmp_path):
    pytest.importorskip("peft")
    from support.value_faults import adapter_cases  # noqa: PLC0415 - needs torch

    for case in adapter_cases(tmp_path):
        outcome = auditor.audit(str(case.folder), values=True)
        expected = [(case.cause, case.severity)] if case.cause else []
        assert causes_of(outcome) == expected, case.name


def adapter(folder, tensors):
    write_numbers(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 8}')
    return auditor.audit(str(folder), values=True)


def test_the_norm_of_the_matrix_that_a_lora_adds_is_that_of_the_product(tmp_path):
    down, up = RNG.standard_normal((2, 8)), RNG.standard_normal((6, 2))
    path = "base_model.model.layers.0.q_proj.lora_"
    outcome = adapter(tmp_path, {f"{path}A.weight": down, f"{path}B.weight": up})
    norm = 4 * np.linalg.norm(up @ down)
    assert f"the adapter adds {norm:.4g} (Frobenius norm) to 1 x q_proj" in outcome.notes


def lora(idle, module="q_proj"):
    tensors = {}
    for layer in range(4):
        for tower in ("model.layers", "visual.blocks"):
            start = f"base_model.model.{tower}.{layer}.{module}.lora_"
            tensors[f"{start}A.weight"] = drawn(RNG, 2, 64)
            tensors[f"{start}B.weight"] = drawn(RNG, 64, 2) * (f"{tower}.{layer}" not in idle)
    return tensors


def test_idle_modules_are_named_beside_trained_ones_of_their_tower(subtests, tmp_path):
    for idle, kinds in [
        ({"model.layers.0", "model.layers.2"}, ["idle-modules"]),
        ({"model.layers.3"}, []),  # the last layer, which clip_skip leaves out
        ({f"visual.blocks.{at}" for at in range(4)}, []),  # a tower without an image to train on
    ]:
        with subtests.test(idle=idle, kinds=kinds):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            assert [kind for kind, _ in causes_of(adapter(place, lora(idle)))] == kinds


def test_an_expert_to_which_no_token_was_routed_is_not_idle(tmp_path):
    tensors = lora({"model.layers.0", "model.layers.2"}, "experts.0.up_proj")
    assert causes_of(adapter(tmp_path, tensors)) == []


# --- packed weights -----------------------------------------------------------------------------


def small(folder, tensors):
    """The findings of a file with two matrices and more tensors, of no known class."""
    matrices = {f"x.{at}.weight": RNG.standard_normal((8, 4), np.float32) for at in range(2)}
    path = write_numbers(folder / "model.safetensors", matrices | tensors)
    return auditor.audit(str(path.parent), values=True)


BYTES = np.arange(64, dtype=np.uint8).reshape(8, 8)
FP8 = ("F8_E4M3", (8, 8), BYTES.tobytes())
SCALES = {  # the packed tensor, its scales, and the shape of the scales
    "gptq": ({"a.qweight": BYTES.astype(np.int32)}, "a.scales", (2, 8), np.float16),
    "fp8": ({"a.weight": FP8}, "a.weight_scale_inv", (1, 1), np.float32),
    "one for all": ({"a.weight": FP8}, "a.weight_scale", (), np.float32),
    "nvfp4": ({"a.weight_packed": BYTES}, "a.weight_global_scale", (1,), np.float32),
    "4-bit": ({"a.weight": BYTES}, "a.weight.absmax", (4,), np.float32),
    "int8": ({"a.weight": BYTES.astype(np.int8)}, "a.SCB", (8,), np.float32),
}


def test_scales_of_packed_weights_that_are_zero_or_not_finite_are_named(subtests, tmp_path):
    for value, kind in [(0, "all-zero"), (np.nan, "not-finite"), (np.inf, "not-finite"), (1, None)]:
        with subtests.test(value=value, kind=kind):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            for layout, (packed, name, shape, dtype) in SCALES.items():
                outcome = small(place / layout, packed | {name: np.full(shape, value, dtype)})
                expected = [(kind, (name,))] if kind else []
                assert [(one.kind, one.names) for one in outcome.findings] == expected, layout


def test_a_scale_of_zero_among_others_or_of_nothing_packed_is_harmless(tmp_path):
    some = {"a.scales": np.array([[0, 1], [0, 1]], np.float16)}
    assert not small(tmp_path / "a", SCALES["gptq"][0] | some).findings
    alone = {"ls1.scale": np.zeros(8, np.float32), "ls1.weight": np.ones((8, 8), np.float32)}
    assert not small(tmp_path / "b", alone).findings


def test_half_of_the_scales_of_a_packed_weight_may_not_be_zero(subtests, tmp_path):
    for zero in [slice(16), slice(0, 32, 2)]:
        with subtests.test(zero=zero):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            scales = np.ones((32, 1), np.float32)
            scales[zero] = 0
            packed = {
                "a.weight": ("F8_E4M3", (32, 32), bytes(range(1, 65)) * 16),
                "a.weight_scale": scales,
            }
            [finding] = small(place, packed).findings
            assert (finding.kind, finding.names) == ("part-zero", ("a.weight_scale",))


def test_bytes_that_are_exponents_are_read_as_such(subtests, tmp_path):
    """0xff is NaN of F8_E8M0; in other bytes it is 255."""
    for packed, scales in [
        ({"e_blocks": BYTES}, "e_scales"),
        ({"a.weight_packed": BYTES}, "a.weight_scale"),
        ({"a.weight": FP8}, "a.weight_scale"),
        ({"a.qweight": BYTES.astype(np.int32)}, None),
    ]:
        with subtests.test(packed=packed, scales=scales):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            name = scales or "a.scales"
            outcome = small(place, packed | {name: np.array([0, 127, 255], np.uint8)})
            named = [one.names for one in outcome.findings if one.kind == "not-finite"]
            assert named == ([(name,)] if scales else [])
            (read,) = (one for one in outcome.values.tensors if one.name == name)
            assert (read.dtype, read.numbers, read.absmax) == ("U8", 3, 1.0 if scales else 255.0)


def test_a_dtype_is_not_mislabeled_if_numbers_have_one_sign_or_are_few(tmp_path):
    factors = np.exp2(0.4 * RNG.standard_normal((16, 64))).astype(np.float16)
    few = (RNG.standard_normal((16, 16)).astype(np.float32).view(np.uint32) & 0xFFFF0000).view("f4")
    assert causes_of(small(tmp_path, {"attn.q_factor": factors, "y": few})) == []


def test_a_report_with_values_fits_the_schema(tmp_path):
    schema = json.loads(files("auditor.formats").joinpath("report.schema.json").read_text("utf-8"))
    outcome = small(tmp_path, {"y.weight": np.zeros((8, 4), np.float32)})
    jsonschema.validate(json.loads(as_json.render(outcome)), schema)


# --- copies in two files ------------------------------------------------------------------------


def test_copies_in_two_files_are_compared(subtests, tmp_path):
    for is_equal, severity in [(True, "info"), (False, "error")]:
        with subtests.test(is_equal=is_equal, severity=severity):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            config = {
                "model_type": "llama",
                "hidden_size": 8,
                "intermediate_size": 12,
                "vocab_size": 16,
            }
            config |= {
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "architectures": ["LlamaModel"],
            }
            tensors = {
                one.name: RNG.standard_normal(one.shape, np.float32)
                for one in stored_by(expect("LlamaModel", **config))
            }
            copy = {"norm.weight": tensors["norm.weight"] + (not is_equal)}
            copy["layers.0.mlp.up_proj.weight"] = tensors.pop("layers.0.mlp.up_proj.weight")
            weight_map = {}
            for number, table in enumerate((tensors, copy)):
                file = f"model-{number}.safetensors"
                data = b"".join(array.tobytes() for array in table.values())
                head = safetensors_bytes(
                    {key: ("F32", one.shape) for key, one in table.items()}, data=False
                )
                (place / file).write_bytes(head + data)
                weight_map = dict.fromkeys(table, file) | weight_map
            (place / "config.json").write_text(json.dumps(config))
            (place / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": weight_map})
            )
            outcome = auditor.audit(str(place), values=True)
            [duplicate] = [one for one in outcome.findings if one.kind == "duplicate"]
            assert duplicate.severity == severity
            fixes = [one.fix for one in outcome.diagnosis]
            assert not any("--values" in fix for fix in fixes)
            assert any("either copy" in fix for fix in fixes) == (is_equal and bool(fixes))
