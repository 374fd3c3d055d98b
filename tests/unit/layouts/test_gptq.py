"""GPTQ: shapes by the arithmetic of its packing, and what checkpoints get wrong."""

import json
from itertools import product
from math import ceil, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import one_in
from support.layouts.gptq_words import M, W, linear, marlin, packed_words, without
from support.layouts.indexed import its_total_is_told
from support.layouts.packed import (
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

from auditor.audit.pipeline import audit
from auditor.layouts.gptq import LAYOUT
from auditor.layouts.packing import Stored

inputs_ = st.integers(1, 40).map(lambda n: 32 * n)
outputs_ = st.integers(1, 40).map(lambda n: 32 * n)


# --- laws -------------------------------------------------------------------------------------


@given(
    outputs_,
    inputs_,
    st.sampled_from((2, 3, 4, 8)),
    st.sampled_from((-1, 32, 64, 128, 1024)),
    st.booleans(),
    st.sampled_from((8, 16, 32, 64)),
)
def test_words_of_any_size_unpack_to_the_packed_weight(  # noqa: PLR0913, PLR0917 - drawn
    outputs, inputs, bits, group, g_idx, word
):
    table = linear(outputs, inputs, bits=bits, group=group, g_idx=g_idx, word=word)
    said = says("gptq", bits=bits, group_size=group, pack_dtype=f"int{word}")
    tells_what_is_written(LAYOUT, table, said, {W: (outputs, inputs)})
    unpacked = opened(LAYOUT, table, said, {W: (outputs, inputs)})  # which tell of half-full words
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {f"{M}.qweight"}
    assert unpacked.faults == ()
    assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}"]


@given(outputs_, inputs_, st.sampled_from((2, 3, 4, 8)), st.sampled_from((32, 64, 128)))
def test_the_tensors_determine_their_bits(outputs, inputs, bits, group):
    unpacked = opened(LAYOUT, linear(outputs, inputs, bits=bits, group=min(group, inputs)))
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert unpacked.faults == ()


@given(st.integers(1, 16), st.integers(1, 16), st.sampled_from((4, 8)), st.sampled_from((-1, 128)))
def test_tiles_of_marlin_are_the_weight_that_went_into_them(outputs, inputs, bits, group):
    shape = (256 * outputs, 128 * inputs)
    said = says("gptq", bits=bits, group_size=group, checkpoint_format="marlin")
    for names in ({}, {"weight": "qweight", "scales": "scales"}):
        table = marlin(*shape, bits=bits, group=group, **names)
        unpacked = opened(LAYOUT, table, said)
        assert (pieces(unpacked), unpacked.faults) == ({W: shape}, ())
        assert len(quantization_data(unpacked)) == 1
        tells_what_is_written(LAYOUT, table, said, {W: shape})


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("g_idx", [True, False])
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(bits, declared, g_idx):
    table = linear(256, 512, bits=bits, g_idx=g_idx)
    said = says("gptq", bits=bits, group_size=128) if declared else None
    assert opened(LAYOUT, table, said, {W: (256, 512)}).faults == ()
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, said, {W: (256, 512)})
        assert unpacked.faults or pieces(unpacked) != {W: (256, 512)}, (name, other[name])


# --- what checkpoints get wrong ---------------------------------------------------------------

FOUR = linear(256, 512)
ANOTHER = {"model.layers.1.mlp.up_proj.weight": ("F16", (256, 512))}  # in another layer, plain
PARTLY = FOUR | linear(512, 256, module="model.layers.1.mlp.down_proj") | ANOTHER


@pytest.mark.parametrize(
    ("table", "settings", "reason"),
    [
        (without(FOUR, "scales"), {}, "is stored without its scales"),
        (without(FOUR, "qzeros"), {}, "is stored without its qzeros"),
        (without(FOUR, "qweight"), {}, "is stored without its qweight"),
        (without(FOUR, "g_idx"), {"desc_act": True}, "is stored without its g_idx"),
        (FOUR, {"bits": 8}, "bits of quantization_config is 8, stored are 4"),
        (FOUR, {"group_size": 64}, "scales is (4, 256), expected (8, 256)"),
        (
            FOUR,
            {"checkpoint_format": "marlin"},
            "checkpoint_format of quantization_config is marlin",
        ),
        (marlin(256, 512), {}, "checkpoint_format of quantization_config is gptq"),
        (FOUR | {f"{M}.g_idx": ("I32", (256,))}, {}, "g_idx is (256,), expected (512,)"),
        (FOUR | {f"{M}.scales": ("F16", (4, 128))}, {}, "scales is (4, 128), expected (4, 256)"),
        (FOUR | {f"{M}.qzeros": ("I32", (4, 64))}, {}, "qzeros is (4, 64), expected (4, 32)"),
        (
            FOUR | {f"{M}.qweight": ("F16", (64, 256))},
            {},
            "qweight is F16 (64, 256), expected I16 or",
        ),
        (
            FOUR | {f"{M}.qweight": ("I32", (64,))},
            {},
            "qweight is I32 (64,), expected a matrix of integers",
        ),
        (PARTLY, {}, "is plain, but not by quantization_c"),
    ],
)
def test_what_cannot_be_is_a_fault(table, settings, reason):
    said = says("gptq", **({"bits": 4, "group_size": 128} | settings))
    unpacked = opened(LAYOUT, table, said, {W: (256, 512)})
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (without(FOUR, "g_idx"), {}),
        (FOUR, {"desc_act": True}),
        (FOUR, {"bits": None, "group_size": None}),
        (FOUR, {"dynamic": {"+:.*up_proj": {"bits": 4}}, "bits": 8, "group_size": 32}),
        (linear(256, 512, bias=True), {}),
        (linear(250, 512), {}),
        (linear(256, 500, group=100), {"group_size": 100}),
        (PARTLY, {"dynamic": {"-:.*1.*": {}}}),
        (PARTLY, {"modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.down_proj"]]}),
        (FOUR | ANOTHER, {}),
        (FOUR | {"model.layers.1.mlp.gate.weight": ("F16", (8, 512))}, {}),
    ],
)
def test_a_possible_id_has_no_fault(table, settings):
    said = says("gptq", **({"bits": 4, "group_size": 128} | settings))
    assert opened(LAYOUT, table, said).faults == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"bits": 0},
        {"bits": "4"},
        {"bits": [4]},
        {"bits": True},
        {"bits": 2**70},
        {"group_size": 0.5},
        {"group_size": -2},
        {"group_size": {"a": 1}},
    ],
)
def test_settings_of_another_type_or_size_are_a_fault_and_no_more(settings):
    unpacked = opened(LAYOUT, FOUR, says("gptq", **settings))
    assert pieces(unpacked) == {W: (256, 512)}
    assert any("quantization_config is" in reason for reason in faults(unpacked))


@pytest.mark.parametrize("settings", [{"checkpoint_format": [1]}, {"dynamic": 3}, {"desc_act": 1}])
def test_empty_settings_are_not_a_fault(settings):
    assert opened(LAYOUT, FOUR, says("gptq", bits=4, group_size=128, **settings)).faults == ()


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (FOUR, True),
        (without(FOUR, "g_idx"), True),
        (marlin(256, 512), True),
        (marlin(256, 512, weight="qweight", scales="scales"), True),
        (dict.fromkeys(FOUR), True),
        ({"a.weight": ("I8", (8, 8)), "a.scales": ("F16", (8,))}, False),
        ({"a.B": ("F32", (8, 8)), "a.s": ("F32", (8, 8))}, False),
    ],
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known


@pytest.mark.parametrize(("router", "alarmed"), [("gate", True), ("shared_expert_gate", False)])
def test_a_packed_router_is_a_fault_because_no_class_has_a_linear_there(router, alarmed):
    mlp = "model.layers.0.mlp"
    table = linear(256, 512, module=f"{mlp}.experts.0.up_proj")
    table |= linear(64, 512, module=f"{mlp}.{router}")
    unpacked = opened(LAYOUT, table, says("gptq", bits=4, group_size=128))
    assert list(faults(unpacked).values()) == [{f"{mlp}.gate.qweight"}] * alarmed


# --- complete checkpoints -------------------------------------------------------------------------


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
    return transformers.LlamaConfig(**SMALL)


def _gpt2(transformers):
    return transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50, n_positions=16)


WAYS = {
    "4-bits": {"bits": 4, "group": 32},
    "act-order": {"bits": 4, "group": 32, "act_order": True},
    "3-bits": {"bits": 3, "group": 32, "said": {"sym": True}},
    "8-bits-v2": {"bits": 8, "group": -1, "said": {"checkpoint_format": "gptq_v2"}},
    "2-bits": {"bits": 2, "group": 16},
}


MODELS = {"LlamaForCausalLM": _llama, "GPT2LMHeadModel": _gpt2}


@pytest.mark.oracle
@pytest.mark.parametrize(("model", "way"), one_in(2, product(MODELS, WAYS)))
def test_what_is_packed_is_the_unpacked_checkpoint(tmp_path, model, way):
    way = WAYS[way]
    transformers = pytest.importorskip("transformers")
    plain, packed = quantised(tmp_path, model, MODELS[model](transformers), **way)
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
