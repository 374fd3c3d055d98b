"""GPTQ: whole checkpoints, packed here, and known ones."""

import json
from math import ceil, prod

import pytest
from support.layouts.gptq_words import W, linear, marlin, packed_words
from support.layouts.indexed import its_total_is_told
from support.layouts.packed import (
    holds_the_plain_checkpoint,
    on_disk,
    opened,
    pieces,
    quantization_data,
    says,
    shapes,
    tells_what_is_written,
)

from auditor.audit.pipeline import audit
from auditor.layouts.gptq import LAYOUT


def quantised(  # noqa: PLR0913 - what a writer may choose
    folder, cls, config, *, bits, group, bias=False, act_order=False, said=None
):
    """A model saved plain, and once more with every linear of its layers packed."""
    numpy = pytest.importorskip("numpy")
    transformers = pytest.importorskip("transformers")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    model = getattr(transformers, cls)(config)
    model.save_pretrained(folder / "plain")
    table = {}
    random = numpy.random.default_rng(7)
    conv = transformers.pytorch_utils.Conv1D
    linears = {
        name: module.weight.shape if isinstance(module, conv) else module.weight.shape[::-1]
        for name, module in model.named_modules()
        if (isinstance(module, conv) or type(module).__name__ == "Linear") and "head" not in name
    }
    for name, tensor in on_disk(folder / "plain").items():
        module, _, last = name.rpartition(".")
        if module not in linears:
            module = next((one for one in linears if one.endswith(f".{module}")), module)
        if module not in linears or last != "weight":
            table[name] = numpy.zeros(tensor[1], numpy.float16)
            continue
        prefix = name.removesuffix(".weight")
        inputs, outputs = linears[module]
        size = inputs if group == -1 else group
        codes = random.integers(0, 2**bits, (inputs, outputs))
        table[f"{prefix}.qweight"] = packed_words(numpy, codes, bits)
        zeros = random.integers(0, 2**bits, (outputs, ceil(inputs / size)))
        table[f"{prefix}.qzeros"] = packed_words(numpy, zeros, bits).T.copy()
        table[f"{prefix}.scales"] = numpy.ones((ceil(inputs / size), outputs), numpy.float16)
        groups = numpy.arange(inputs, dtype=numpy.int32) // size
        table[f"{prefix}.g_idx"] = random.permutation(groups) if act_order else groups
        if bias:
            table.setdefault(f"{prefix}.bias", numpy.zeros(outputs, numpy.float16))
    (folder / "packed").mkdir()
    save_file(table, folder / "packed" / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((folder / "plain" / "config.json").read_text()) | {"dtype": "float16"}
    ours = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order}
    values["quantization_config"] = ours | (said or {})
    (folder / "packed" / "config.json").write_text(json.dumps(values))
    return on_disk(folder / "plain"), on_disk(folder / "packed")


def _llama(transformers):
    return transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
        max_position_embeddings=32,
    )


def _gpt2(transformers):
    return transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50, n_positions=16)


WAYS = {
    "4-bits": {"bits": 4, "group": 32},
    "act-order": {"bits": 4, "group": 32, "act_order": True},
    "3-bits": {"bits": 3, "group": 32, "said": {"sym": True}},
    "8-bits-v2": {"bits": 8, "group": -1, "said": {"checkpoint_format": "gptq_v2"}},
    "2-bits": {"bits": 2, "group": 16},
}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("cls", "config"), [("LlamaForCausalLM", _llama), ("GPT2LMHeadModel", _gpt2)]
)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_is_packed_is_the_unpacked_checkpoint(tmp_path, cls, config, way):
    transformers = pytest.importorskip("transformers")
    plain, packed = quantised(tmp_path, cls, config(transformers), **way)
    said = says("gptq", bits=way["bits"], group_size=way["group"])
    holds_the_plain_checkpoint(LAYOUT, tmp_path / "packed", tmp_path / "plain", said)
    its_total_is_told(tmp_path / "packed")
    tells_what_is_written(LAYOUT, packed, said, shapes(plain))


@pytest.mark.oracle
def test_the_biases_of_zeros_that_some_writers_add_are_unexpected(tmp_path):
    transformers = pytest.importorskip("transformers")
    way = {"bits": 4, "group": 32, "bias": True}
    quantised(tmp_path, "LlamaForCausalLM", _llama(transformers), **way)
    report = audit(str(tmp_path / "packed"))
    kinds = {finding.kind for finding in report.findings if finding.severity != "info"}
    assert (report.residual, kinds) == (0, {"unexpected"})


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"quant_method": "awq"}, "packed as gptq, but quantization_config declares awq"),
        ({"bits": 8}, "is 8, stored are 4"),
        ({"group_size": 64}, "groups of 64"),
        ({"bits": "four"}, "bits of quantization_config is the string 'four'"),
    ],
)
def test_a_config_that_contradicts_the_tensors_is_found(tmp_path, said, reason):
    transformers = pytest.importorskip("transformers")
    quantised(tmp_path, "LlamaForCausalLM", _llama(transformers), bits=4, group=32, said=said)
    report = audit(str(tmp_path / "packed"))
    loud = [finding for finding in report.findings if finding.severity != "info"]
    assert {finding.kind for finding in loud} == {"bad-quantization"}
    assert any(reason in finding.reason for finding in loud), loud
    assert report.residual == 0


def test_the_method_marlin_of_older_configs_is_this_layout():
    unpacked = opened(LAYOUT, marlin(256, 512), says("marlin", group_size=128))
    assert (pieces(unpacked), unpacked.faults) == ({W: (256, 512)}, ())


# --- known checkpoints ------------------------------------------------------------------------


def llama(hidden, inner, layers, heads_width, vocabulary, **settings):
    """All tensors of a Llama whose linears are packed, by name."""
    kinds = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (heads_width, hidden),
        "self_attn.v_proj": (heads_width, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    table = {
        "model.embed_tokens.weight": ("F16", (vocabulary, hidden)),
        "lm_head.weight": ("F16", (vocabulary, hidden)),
        "model.norm.weight": ("F16", (hidden,)),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for kind, shape in kinds.items():
            table |= linear(*shape, module=f"{prefix}.{kind}", **settings)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            table[f"{prefix}.{norm}.weight"] = ("F16", (hidden,))
    return table


def test_llama_3_1_8b_w4a16_has_a_bias_for_every_packed_linear():
    """Its card: I32 6,979,321,856 unpacked + F16 1,052,315,648, of a model of 8,030,261,248."""
    table = llama(4096, 14336, 32, 1024, 128256, bias=True)
    unpacked = opened(LAYOUT, table, says("gptq", bits=4, group_size=128))
    packed = sum(map(prod, pieces(unpacked).values()))
    inside = {piece.stored.name for piece in unpacked.tensors} | quantization_data(unpacked)
    plain = {name: prod(shape) for name, (_, shape) in table.items() if name not in inside}
    biases = sum(count for name, count in plain.items() if name.endswith(".bias"))
    assert unpacked.faults == ()
    assert (packed, sum(plain.values())) == (6_979_321_856, 1_052_315_648)
    assert packed + sum(plain.values()) - 8_030_261_248 == biases == 1_376_256


MYTHOMAX = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 40,
    "num_hidden_layers": 40,
    "num_key_value_heads": 40,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32000,
    "quantization_config": {
        "bits": 4,
        "group_size": 128,
        "damp_percent": 0.1,
        "desc_act": False,
        "sym": True,
        "true_sequential": True,
        "model_name_or_path": None,
        "model_file_base_name": "model",
        "quant_method": "gptq",
    },
}


def test_mythomax_13b_is_a_complete_llama_with_its_biases(tmp_path):
    """TheBloke/MythoMax-L2-13B-GPTQ: its file of 7,259,435,192 bytes is these tensors, exactly.

    The names stand in order, under {"format": "pt"}; without the biases it would be 7,293,112
    bytes smaller.
    """
    table = llama(5120, 13824, 40, 5120, 32000, bias=True)
    entries, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in sorted(table.items()):
        start, end = end, end + prod(shape) * (2 if dtype == "F16" else 4)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        assert file.truncate(len(header) + 8 + end) == 7_259_435_192
    (tmp_path / "config.json").write_text(json.dumps(MYTHOMAX))
    report = audit(str(tmp_path))
    loud = {finding.kind: finding for finding in report.findings if finding.severity != "info"}
    assert (report.residual, set(loud)) == (0, {"unexpected"})
    assert loud["unexpected"].parameters == 40 * (4 * 5120 + 2 * 13824 + 5120)
    assert report.expected.parameters == 13_015_864_320
