"""Where a checkpoint says how its weights are packed, and what is refused there."""

import json

import pytest

from auditor.errors import CheckpointError
from auditor.layouts.declared import declaration

GPTQ = {"quant_method": "gptq", "bits": 4}


def as_file(**settings):
    return json.dumps(settings).encode()


@pytest.mark.parametrize(
    ("values", "method", "where"),
    [
        ({"quantization_config": GPTQ}, "gptq", "quantization_config"),
        ({"quantization_config": {"quant_method": "FP8"}}, "fp8", "quantization_config"),
        ({"text_config": {"quantization_config": GPTQ}}, "gptq", "text_config.quantization_config"),
        ({"quantization_config": {}}, "an unnamed method", "quantization_config"),
        ({"quantization_config": {"load_in_8bit": True}}, "bitsandbytes", "quantization_config"),
        ({"compression_config": {"format": "x"}}, "compressed-tensors", "compression_config"),
        ({"quantization": {"bits": 4, "group_size": 64}}, "mlx", "quantization"),
        ({"quantization_config": {"bits": 4, "group_size": 64}}, "mlx", "quantization_config"),
        (
            {"quantization_config": GPTQ, "quantization": {"bits": 4, "group_size": 64}},
            "mlx",
            "quantization",
        ),
    ],
)
def test_a_config_names_its_layout_at_the_top_or_in_its_text_config(values, method, where):
    declared = declaration(values, {})
    assert (declared.method, declared.where) == (method, where)


@pytest.mark.parametrize(
    "values",
    [{}, {"quantization_config": None}, {"text_config": {}}, {"text_config": "x"}],
)
def test_a_config_that_names_none_declares_none(values):
    assert declaration(values, {}) is None


@pytest.mark.parametrize(
    ("name", "content", "method"),
    [
        ("quantize_config.json", as_file(bits=4, group_size=128, desc_act=True), "gptq"),
        ("quant_config.json", as_file(w_bit=4, q_group_size=128), "awq"),
        ("quantize_config.json", as_file(quant_method="awq", bits=4), "awq"),
        ("hf_quant_config.json", as_file(quantization={"quant_algo": "FP8"}), "modelopt"),
    ],
)
def test_a_file_beside_the_config_names_the_layout_where_the_config_does_not(name, content, method):
    declared = declaration({}, {name: content})
    assert (declared.method, declared.where) == (method, name)
    own = declaration({"quantization_config": {"quant_method": "hqq"}}, {name: content})
    assert own.method == "hqq"


@pytest.mark.parametrize(
    ("values", "files", "message"),
    [
        ({"quantization_config": "gptq"}, {}, "^quantization_config is the string"),
        (
            {"quantization_config": {"quant_method": 1}},
            {},
            r"quant_method is 1; a str",
        ),
        (
            {"text_config": {"quantization": []}},
            {},
            r"^text_config\.quantization is a list",
        ),
        ({}, {"quantize_config.json": b"{"}, r"^quantize_config\.json is cut off"),
        ({}, {"hf_quant_config.json": b"{}"}, r"^quantization of hf_quant_config.json is null"),
    ],
)
def test_an_invalid_declaration_is_refused(values, files, message):
    with pytest.raises(CheckpointError, match=message):
        declaration(values, files)
