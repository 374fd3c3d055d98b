"""Which layout reads a checkpoint, by what the config declares and by what the tensors show."""

import json
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from support.checkpoints import stored

from auditor import layouts
from auditor.bounded.json_text import JsonFile
from auditor.errors import CheckpointError
from auditor.layouts import METHODS, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.layouts.packing import PLAIN, Declared

SEAMS = {"packing", "declared", "engine", "fused", "gguf_names"}
FOLDER = Path(layouts.__file__).parent


def test_the_table_of_methods_lists_what_the_layouts_declare():
    for file in dict.fromkeys(METHODS.values()):
        layout = import_module(f"auditor.layouts.{file}").LAYOUT
        assert {method for method, its in METHODS.items() if its == file} == set(layout.methods)


def test_what_is_neither_a_layout_nor_a_seam_begins_with_an_underscore():
    found = {module.name for module in iter_modules(layouts.__path__)}
    assert {name for name in found if name[0] != "_"} == SEAMS | set(METHODS.values())


def test_no_layout_reads_another_and_what_they_share_reads_none():
    for path in FOLDER.glob("*.py"):
        imported = re.findall(r"^from auditor\.layouts\.(\w+)", path.read_text(), re.MULTILINE)
        assert set(imported) & set(METHODS.values()) <= {path.stem}, path.name


PLAIN_WEIGHTS = (stored("a.weight", (4, 4), dtype="BF16"),)
FOUR_BITS = (
    stored("a.weight", (8, 1), dtype="U8"),
    stored("a.weight.absmax", (1,)),
    stored("a.weight.quant_map", (16,)),
    stored("a.weight.quant_state.bitsandbytes__nf4", (70,), dtype="U8"),
)


def unpacked_of(tensors, method=None, **settings):
    declared = Declared(method=method, settings=settings, where="the config") if method else None
    return unpack_tensors(tensors, declared, {"a.weight": (4, 4)}.get)


def test_weights_that_are_packed_on_loading_alone_are_plain():
    assert unpacked_of(PLAIN_WEIGHTS, "bitnet", quantization_mode="online") is PLAIN
    assert unpacked_of(PLAIN_WEIGHTS, "bitsandbytes", llm_int8_has_fp16_weight=True) is PLAIN


def test_integers_of_no_layout_are_plain():
    assert unpacked_of((stored("attn.bias", (1, 4), dtype="U8"), *PLAIN_WEIGHTS)) is PLAIN


def test_a_layout_that_no_tensor_bears_out_is_a_fault():
    (fault,) = unpacked_of(PLAIN_WEIGHTS, "gptq", bits=4).faults
    assert fault.reason == "the config declares gptq, but no stored tensor is packed"


def test_packed_tensors_of_another_layout_are_unpacked_and_a_fault(subtests):
    for method, reason in [
        (None, "the config declares no quantization"),
        ("awq", "the config declares awq"),
    ]:
        with subtests.test(method=method, reason=reason):
            unpacked = unpacked_of(FOUR_BITS, method)
            assert [piece[1:] for piece in unpacked.tensors] == [("a.weight", (4, 4), "NF4")]
            assert unpacked.faults[0].reason == f"packed as bitsandbytes, but {reason}"


# --- declarations of a layout ---------------------------------------------------------------------

GPTQ = {"quant_method": "gptq", "bits": 4}
OF_MLX = {"bits": 4, "group_size": 64}


def test_a_config_names_its_layout_at_the_top_or_in_its_text_config(subtests):
    for values, method, where in [
        ({"quantization_config": {"quant_method": "FP8"}}, "fp8", "quantization_config"),
        ({"text_config": {"quantization_config": GPTQ}}, "gptq", "text_config.quantization_config"),
        ({"quantization_config": {}}, "an unnamed method", "quantization_config"),
        ({"quantization_config": {"load_in_8bit": True}}, "bitsandbytes", "quantization_config"),
        ({"compression_config": {"format": "x"}}, "compressed-tensors", "compression_config"),
        ({"quantization_config": OF_MLX}, "mlx", "quantization_config"),
        ({"quantization_config": GPTQ, "quantization": OF_MLX}, "mlx", "quantization"),
    ]:
        with subtests.test(values=values, method=method, where=where):
            declared = declaration(values, None)
            assert (declared.method, declared.where) == (method, where)


def test_a_config_that_names_none_declares_none(subtests):
    for values in [{}, {"quantization_config": None}, {"text_config": "x"}]:
        with subtests.test(values=values):
            assert declaration(values, None) is None


def test_a_file_beside_the_config_names_the_layout_where_the_config_does_not(subtests):
    for name, settings, method in [
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": True}, "gptq"),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128}, "awq"),
        ("quantize_config.json", {"quant_method": "awq", "bits": 4}, "awq"),
        ("hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}}, "modelopt"),
    ]:
        with subtests.test(name=name, settings=settings, method=method):
            file = JsonFile(name, json.dumps(settings).encode())
            declared = declaration({}, file)
            assert (declared.method, declared.where) == (method, name)
            assert (
                declaration({"quantization_config": {"quant_method": "hqq"}}, file).method == "hqq"
            )


def test_an_invalid_declaration_is_refused(subtests):
    for values, files, message in [
        ({"quantization_config": "gptq"}, {}, "^quantization_config is the string"),
        ({"quantization_config": {"quant_method": 1}}, {}, "quant_method is 1; a str"),
        ({"text_config": {"quantization": []}}, {}, r"^text_config\.quantization is a list"),
        ({}, {"quantize_config.json": b"{"}, r"^quantize_config\.json is cut off"),
        ({}, {"hf_quant_config.json": b"{}"}, r"^quantization of hf_quant_config.json is null"),
    ]:
        with (
            subtests.test(values=values, files=files, message=message),
            pytest.raises(CheckpointError, match=message),
        ):
            declaration(values, next((JsonFile(*one) for one in files.items()), None))
