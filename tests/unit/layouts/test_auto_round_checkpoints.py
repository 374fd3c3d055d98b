"""Whole checkpoints of AutoRound: what is unpacked is the model that was packed.

auto-round 0.16.1 exports on a CPU, without having tuned anything, where packers.py finds it; the
others are packed by the tests of GPTQ and AWQ.
"""

import json
from itertools import product
from math import ceil

import pytest
from support.examples import each_night, one_in
from support.layouts.awq_words import gemm_words
from support.layouts.gptq_words import packed_words
from support.layouts.indexed import its_total_is_told
from support.layouts.packed import (
    SMALL,
    holds_the_plain_checkpoint,
    on_disk,
    says,
    shapes,
    tells_what_is_written,
)
from support.layouts.packers import write

from auditor.audit.pipeline import audit
from auditor.layouts.auto_round import LAYOUT
from auditor.layouts.declared import declaration

M = "model.layers.0.mlp.up_proj"


def scheme_of(module, settings):
    """As save_quantized_as_autoround packs: in blocks, and what extra_config says otherwise."""
    default = {"bits": settings["bits"] if ".layers." in module else 16}
    own = settings.get("extra_config", {}).get(module, {})
    group = own.get("group_size", settings["group_size"])
    return {**default, **own}["bits"], group


def quantised(folder, cls, config, **settings):
    """A model saved plain, and once more with the linears packed as the settings say."""
    numpy = pytest.importorskip("numpy")
    transformers = pytest.importorskip("transformers")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    model = getattr(transformers, cls)(config)
    model.save_pretrained(folder / "plain")
    linears = {name for name, one in model.named_modules() if type(one).__name__ == "Linear"}
    random = numpy.random.default_rng(7)
    table = {}
    for name, (_, shape) in on_disk(folder / "plain").items():
        module, _, last = name.rpartition(".")
        bits, group = scheme_of(module, settings)
        expert = ".experts." in module
        if last != "weight" or not (module in linears or expert) or bits > 8:
            table[name] = numpy.zeros(shape, numpy.float16)
            continue
        outputs, inputs = shape
        groups = 1 if group == -1 else ceil(inputs / group)
        codes = random.integers(0, 2**bits, (inputs, outputs))
        zeros = random.integers(0, 2**bits, (groups, outputs))
        if "awq" in settings["packing_format"]:
            table[f"{module}.qweight"] = gemm_words(numpy, codes)
            table[f"{module}.qzeros"] = gemm_words(numpy, zeros)
        else:
            table[f"{module}.qweight"] = packed_words(numpy, codes, bits)
            table[f"{module}.qzeros"] = packed_words(numpy, zeros.T, bits).T.copy()
        table[f"{module}.scales"] = numpy.ones((groups, outputs), numpy.float16)
    (folder / "packed").mkdir()
    save_file(table, folder / "packed" / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((folder / "plain" / "config.json").read_text()) | {"dtype": "float16"}
    values["quantization_config"] = {"quant_method": "auto-round", **settings}
    (folder / "packed" / "config.json").write_text(json.dumps(values))
    return folder / "packed"


# All of a layer in its own config, as an export of auto-round 0.16.1 writes it.
HEAD = {"bits": 4, "group_size": 32, "sym": True, "data_type": "int", "act_bits": 16}
MIXED = {
    "lm_head": HEAD | {"act_data_type": None, "act_dynamic": None, "super_bits": None},
    "model.layers.0.mlp.down_proj": {"bits": 16},
    "model.layers.0.self_attn.q_proj": {"group_size": 64},
    "model.layers.1.mlp.up_proj": {"bits": 8},
}
WAYS = {
    "symmetric": {"bits": 4, "group_size": 32, "packing_format": "auto_round:auto_gptq"},
    "asymmetric": {"bits": 2, "group_size": 16, "packing_format": "auto_round"},
    "3-bits": {"bits": 3, "group_size": -1, "packing_format": "auto_round:gptqmodel"},
    "6-bits": {"bits": 6, "group_size": 64, "packing_format": "auto_round"},
    "awq": {"bits": 4, "group_size": 32, "packing_format": "auto_round:auto_awq"},
    "mixed": {
        "bits": 4,
        "group_size": 32,
        "packing_format": "auto_round:auto_gptq",
        "block_name_to_quantize": "model.layers",
        "extra_config": MIXED,
        "data_type": "int",
    },
}
MODELS = {"Llama": {}, "Qwen2": {}, "Mixtral": {"num_local_experts": 2}}


@pytest.mark.oracle
@pytest.mark.parametrize(("way", "family"), one_in(5, product(WAYS, MODELS)))
def test_what_is_packed_is_the_unpacked_checkpoint(tmp_path, way, family):
    transformers = pytest.importorskip("transformers")
    way = WAYS[way]
    if family == "Mixtral" and "extra_config" in way:
        extra = {
            f"model.layers.0.block_sparse_moe.experts.{expert}.w1": {"bits": 8} for expert in (0, 1)
        } | {f"model.layers.{layer}.block_sparse_moe.gate": {"bits": 16} for layer in (0, 1)}
        way = way | {"extra_config": extra}
    config = getattr(transformers, f"{family}Config")(
        **SMALL, tie_word_embeddings=False, **MODELS[family]
    )
    folder = quantised(tmp_path, f"{family}ForCausalLM", config, **way)
    expected, packed = shapes(on_disk(tmp_path / "plain")), on_disk(folder)
    said = says("auto-round", **way)
    holds_the_plain_checkpoint(LAYOUT, folder, tmp_path / "plain", said)
    its_total_is_told(folder)
    tells_what_is_written(LAYOUT, packed, said, expected)


EXPORT = """
from auto_round.export.export_to_autoround.export import save_quantized_as_autoround
from auto_round.export.export_to_awq.export import pack_layer
UNSET = "act_bits act_group_size act_sym act_data_type act_dynamic super_bits super_group_size"

def of_layer(name, scheme, own):
    said = dict.fromkeys(UNSET.split()) | {"data_type": "int", "act_bits": 16} | scheme
    said["in_blocks"] = name.startswith("model.layers")
    said["bits"] = scheme["bits"] if said["in_blocks"] else 16
    return said | own

def export(name, packing, blocks=None, layers={}, **scheme):
    model, settings = llama().half(), {}
    for module, linear in model.named_modules():
        if not isinstance(linear, torch.nn.Linear):
            continue
        said = of_layer(module, scheme, layers.get(module, {}))
        settings[module] = said
        vars(linear).update(said)
        outputs, inputs = linear.weight.shape
        groups = 1 if said["group_size"] == -1 else -(-inputs // said["group_size"])
        linear.scale = torch.full((outputs, groups), 0.01)
        linear.zp = torch.full((outputs, groups), 2.0 ** (said["bits"] - 1))
        if "awq" in packing:
            pack_layer(module, model, backend=packing)
    save_quantized_as_autoround(
        str(folder / name), model, layer_config=settings, backend=packing,
        serialization_dict={
            **scheme, "data_type": "int", "act_bits": 16, "to_quant_block_names": blocks,
            "regex_config": None,
        },
    )

MIXED = {
    "lm_head": {"bits": 4},
    "model.layers.0.mlp.down_proj": {"bits": 16},
    "model.layers.0.self_attn.q_proj": {"group_size": 64},
}
MORE = {"model.layers.1.mlp.up_proj": {"bits": 8}}
BLOCKS = "model.layers"
export("symmetric", "auto_round", BLOCKS, MIXED | MORE, bits=4, group_size=32, sym=True)
export("asymmetric", "auto_round", None, MIXED, bits=2, group_size=32, sym=False)
export("gptqmodel", "auto_round:gptqmodel", bits=3, group_size=-1, sym=True)
export("awq", "auto_round:auto_awq", BLOCKS, MIXED, bits=4, group_size=32, sym=False)
export("awq-5", "auto_round:auto_awq", bits=5, group_size=32, sym=False)
"""
EXPORTED = {  # what it says of each, and whether each input's group is stored
    "symmetric": ("auto_round:auto_gptq", False),
    "asymmetric": ("auto_round", False),
    "gptqmodel": ("auto_round:gptqmodel", True),
    "awq": ("auto_round:auto_awq", False),
    "awq-5": ("auto_round:auto_awq", False),
}


@each_night
@pytest.mark.oracle
def test_what_auto_round_exports_is_the_checkpoint_that_went_in(tmp_path):
    write(EXPORT, tmp_path, "auto_round")
    for name, (packing, g_idx) in EXPORTED.items():
        values = json.loads((tmp_path / name / "config.json").read_text())
        assert values["quantization_config"]["packing_format"] == packing
        assert any(one.endswith(".g_idx") for one in on_disk(tmp_path / name)) == g_idx
        said = declaration(values, None)
        holds_the_plain_checkpoint(LAYOUT, tmp_path / name, tmp_path / "plain", said)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"group_size": 16}, "groups of 16"),
        ({"bits": 8}, "is 8, stored are 4"),
        ({"packing_format": "auto_round:auto_awq"}, "stored is gptq"),
        ({"packing_format": 5}, "packing_format of quantization_config is 5; a string is needed"),
        ({"packing_format": ["auto_round"]}, "is a list; a string is needed"),
        ({"extra_config": MIXED | {"lm_head": {"bits": 2}}}, "is 2, stored are"),
        ({"extra_config": {**MIXED, f"{M}": {"bits": 16}}}, "is packed, but plain by extra_config"),
        ({"extra_config": []}, "is packed, but plain by extra_config"),
    ],
)
def test_a_config_that_the_shapes_deny_is_a_finding_and_the_residual_is_0(
    tmp_path, settings, reason
):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**SMALL, tie_word_embeddings=False)
    folder = quantised(tmp_path, "LlamaForCausalLM", config, **WAYS["mixed"])
    values = json.loads((folder / "config.json").read_text())
    values["quantization_config"] |= settings
    (folder / "config.json").write_text(json.dumps(values))
    report = audit(str(folder))
    assert (report.residual, report.verdict) == (0, "findings")
    found = [one.reason for one in report.findings if one.kind == "bad-quantization"]
    assert any(reason in one for one in found), found


def test_a_packing_that_is_not_read_here_is_unaudited_and_never_clean(tmp_path):
    settings = {"bits": 8, "group_size": 0, "data_type": "fp", "packing_format": "auto_round:fp8"}
    values = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "quantization_config": {"quant_method": "auto-round", **settings},
    }
    (tmp_path / "config.json").write_text(json.dumps(values | SMALL))
    header = {"a.weight": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}
    text = json.dumps(header).encode()
    file = len(text).to_bytes(8, "little") + text + b"\0"
    (tmp_path / "model.safetensors").write_bytes(file)
    outcome = audit(str(tmp_path))
    assert (outcome.verdict, outcome.reason.value) == ("unaudited", "unknown-layout")
    assert "the packing_format 'auto_round:fp8' and the data_type 'fp'" in outcome.detail
