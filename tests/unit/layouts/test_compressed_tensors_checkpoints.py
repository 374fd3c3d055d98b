"""compressed-tensors: checkpoints that the library itself writes."""

import json
from math import prod

import pytest
from support.layouts.indexed import hides_what_it_cannot_show, its_total_is_told
from support.layouts.packed import (
    faults,
    on_disk,
    opened,
    pieces,
    quantization_data,
    says,
    shapes,
    tells_what_is_written,
)

import auditor
from auditor.layouts.compressed_tensors import LAYOUT

PRESETS = ["W4A16", "W4A16_ASYM", "W3A16", "W8A16", "W8A8", "W4AFP8", "FP8", "FP8_DYNAMIC"]
PRESETS += ["FP8_BLOCK", "NVFP4", "NVFP4A16", "MXFP4A16", "MXFP6A16", "MXFP8"]


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    sides = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 40, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**sides, num_attention_heads=4, num_key_value_heads=2))


def written(model, folder, groups, ignore=("lm_head",)):
    """The model, quantised and saved by the library."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import ModelCompressor  # noqa: PLC0415
    from compressed_tensors.quantization import (  # noqa: PLC0415
        QuantizationConfig,
        apply_quantization_config,
    )

    settings = QuantizationConfig(config_groups=groups, ignore=list(ignore))
    apply_quantization_config(model, settings)
    for name, parameter in model.named_parameters():
        if name.endswith("scale"):
            parameter.data.fill_(0.01)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)


def preset(name, targets=("Linear",)):
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.quantization.quant_scheme import (  # noqa: PLC0415
        preset_name_to_scheme,
    )

    found = preset_name_to_scheme(name, list(targets)).model_dump()
    if found["weights"].get("group_size") == 128:
        found["weights"]["group_size"] = 32
    if found["weights"].get("block_structure"):
        found["weights"]["block_structure"] = [32, 32]
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("name", PRESETS)
def test_what_the_library_writes_is_the_model_it_packed(name, tmp_path):
    model = llama()
    model.save_pretrained(tmp_path / "plain")
    written(model, tmp_path / "packed", {"group_0": preset(name)})
    table = on_disk(tmp_path / "packed")
    settings = json.loads((tmp_path / "packed/config.json").read_text())["quantization_config"]
    plain = shapes(on_disk(tmp_path / "plain"))
    unpacked = opened(LAYOUT, table, says(**{"method": "", **settings}), plain)
    left = (
        set(table) - quantization_data(unpacked) - {piece.stored.name for piece in unpacked.tensors}
    )
    assert pieces(unpacked) | {name: table[name][1] for name in left} == plain
    assert len(unpacked.tensors) == 14
    assert faults(unpacked) == {}
    report = auditor.audit(str(tmp_path / "packed"))
    assert (report.verdict, report.residual) == ("clean", 0)
    hides_what_it_cannot_show(tmp_path / "packed")
    its_total_is_told(tmp_path / "packed", exact=name != "W3A16")  # older versions padded words
    tells_what_is_written(LAYOUT, table, says(**{"method": "", **settings}), plain)
    assert report.observed.parameters == sum(map(prod, plain.values()))


@pytest.mark.oracle
def test_two_schemes_in_one_checkpoint_differ_by_their_targets(tmp_path):
    groups = {
        "group_0": preset("W4A16", ["re:.*self_attn.*"]),
        "group_1": preset("FP8_DYNAMIC", [r"re:.*mlp\.(gate|up)_proj$"]),
        "group_2": preset("W8A16", ["model.layers.1.mlp.down_proj"]),
    }
    written(llama(), tmp_path, groups, ignore=["model.layers.0.self_attn.o_proj"])
    report = auditor.audit(str(tmp_path))
    assert (report.verdict, report.residual) == ("clean", 0)
