"""The dtype that a config declares, at its top or in a config inside it, against what is stored."""

import tempfile
from pathlib import Path

from support.pipelines import model, tensors, text, written

import auditor
from auditor.findings import BadIndex, WrongDtype

TEXT = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
}
VISION = {
    "hidden_size": 16,
    "depth": 1,
    "num_heads": 2,
    "intermediate_size": 24,
    "out_hidden_size": 16,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
}
QWEN3_VL = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "text_config": TEXT,
    "vision_config": VISION,
}


def declaring(**dtypes: str) -> dict:
    """The config with a dtype at its top (`dtype`) or in a config inside it (`text_config`)."""
    config = {**QWEN3_VL, **({"dtype": dtypes.pop("dtype")} if "dtype" in dtypes else {})}
    for key, dtype in dtypes.items():
        config[key] = {**config[key], "dtype": dtype}
    return config


def test_a_total_of_another_width_than_declared_is_found(subtests, tmp_path):
    for dtypes, width, alarms in [
        ({"dtype": "bfloat16"}, 2, False),
        ({"dtype": "bfloat16"}, 4, True),
        ({"text_config": "bfloat16"}, 2, False),
        ({"text_config": "bfloat16"}, 4, True),
        ({"vision_config": "bfloat16"}, 4, True),
        ({"text_config": "bfloat16", "vision_config": "float32"}, 4, False),
        ({"dtype": "float32", "text_config": "bfloat16"}, 4, False),
        ({}, 4, False),
    ]:
        with subtests.test(dtypes=dtypes, width=width, alarms=alarms):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            stored = tensors(QWEN3_VL)
            elements = auditor.explain(
                written(place / "x", {"config.json": text(QWEN3_VL)})
            ).expected
            index = {
                "metadata": {"total_size": elements.parameters * width},
                "weight_map": dict.fromkeys(stored, "model-00001-of-00001.safetensors"),
            }
            files = {
                "config.json": text(declaring(**dtypes)),
                "model.safetensors.index.json": text(index),
            }
            report = auditor.audit(written(place, files))
            assert [type(one) for one in report.findings] == [BadIndex, *([WrongDtype] * alarms)]


def test_headers_of_another_dtype_than_a_config_inside_declares_are_found(tmp_path: Path):
    config = declaring(text_config="bfloat16")
    report = auditor.audit(written(tmp_path, model(config, tensors(QWEN3_VL))))
    (finding,) = report.findings
    assert isinstance(finding, WrongDtype)
    assert "stored as F32, the config declares BF16" in finding.reason


def test_a_dtype_inside_that_torch_does_not_have_is_named_with_its_path(tmp_path: Path):
    report = auditor.audit(written(tmp_path, model(declaring(text_config="bf16"), {})))
    (finding,) = report.findings
    assert "text_config.dtype is the string 'bf16', expected a dtype of torch" in finding.reason


T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "vocab_size": 40,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 12,
    "num_layers": 2,
    "num_heads": 2,
    "dtype": "float16",
}


def test_only_parameters_that_the_class_keeps_may_be_stored_in_32_bits(subtests, tmp_path):
    for part, alarms in [("DenseReluDense.wo", False), (".wi.", True)]:
        with subtests.test(part=part, alarms=alarms):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            stored = {
                name: ("F32" if part in name else "F16", shape)
                for name, (_, shape) in tensors(T5).items()
            }
            report = auditor.audit(written(place, model(T5, stored)))
            assert any(isinstance(one, WrongDtype) for one in report.findings) is alarms
