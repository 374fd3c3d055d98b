import sys

import pytest
from support.bert_configs import config_of

from auditor.analytic import ExpectedTensor, Role
from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.oracle import build

TINY_BERT = {"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 11, "num_hidden_layers": 1}
TINY_MIXTRAL = {
    "vocab_size": 16,
    "hidden_size": 8,
    "intermediate_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_local_experts": 2,
}


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_the_extra_the_message_names_what_to_install(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"torch and .*: pip install torch transformers"):
        build.build_expectation({}, "BertModel")


@pytest.mark.oracle
def test_only_a_model_class_of_transformers_is_built():
    classes = ("NoSuchModel", "AutoModel", "BertConfig", "FNetLayer", "BertPreTrainedModel")
    for target in (*classes, "utils", "__name__"):
        with pytest.raises(SourceError, match=f"has no model class '{target}'$") as caught:
            build.build_expectation({"auto_map": {"AutoModel": f"evil--{target}"}}, target)
        assert caught.value.reason is Reason.UNKNOWN_ARCHITECTURE


FAULTS = [
    ({"hidden_size": "8"}, r"^transformers cannot build BertModel .*: Strict.*expected int"),
    ({"hidden_size": 13}, r"^transformers cannot build BertModel .*: ValueError: The hidden"),
    ({"add_cross_attention": True}, r"BertLayer\( .* \.\.\. .* decoder model if cross"),
    (
        {"__class__": 3},
        r"^transformers cannot build BertModel from this config, and does not .*: TypeError",
    ),
    ({"num_hidden_layers": 10**9}, r"^num_hidden_layers is 1000000000; the oracle .* 4,096"),
    ({"num_labels": 10**12}, r"^num_labels is 1000000000000; the oracle .* 1,000,000"),
    ({"text_config": {"num_experts": 5000}}, r"^num_experts is 5000; the oracle"),
    (
        {"\x1b\nlayers" + "s" * 500: 10**300},
        r"^'\\x1b\\nlayerss+\.\.\.s+' is 1000+\.\.\. \(301",
    ),
]


@pytest.mark.oracle
def test_a_config_that_builds_no_model_is_at_fault():
    for values, message in FAULTS:
        with pytest.raises(CheckpointError, match=message) as caught:
            build.build_expectation(values, "BertModel")
        assert "\n" not in str(caught.value)


@pytest.mark.oracle
def test_keys_that_fetch_code_or_pack_weights_change_nothing():
    plain = build.build_expectation(TINY_BERT, "BertModel")
    keys = {
        "_attn_implementation": "somebody/kernel",
        "experts_implementation": "somebody/kernel",
        "quantization_config": {"quant_method": "gptq"},
        "torch_dtype": "no such dtype",
        "model_type": "no such type",
        "auto_map": {"AutoModel": "somebody/code--modeling.Model"},
        "text_config": {"dtype": "float16"},
    }
    values = TINY_BERT | keys
    assert build.build_expectation(values, "BertModel") == plain
    assert values == TINY_BERT | keys  # the config that was passed stays as it was


@pytest.mark.oracle
def test_a_nested_config_is_found_by_the_key_of_its_class_or_by_its_model_type():
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 4, "vocab_size": 16}
    whole = {"text_config": tiny, "vision_config": {"hidden_size": 4}, "projection_dim": 3}
    expected = build.build_expectation(tiny, "CLIPTextModel")
    assert build.build_expectation(whole, "CLIPTextModel") == expected
    tiny = {"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 16}
    whole = {"model_type": "llava", "first": tiny | {"vocab_size": 9}, "second": tiny}
    expected = build.build_expectation(tiny, "LlamaModel")
    assert build.build_expectation(whole, "LlamaModel") == expected


@pytest.mark.oracle
def test_experts_are_named_one_by_one_as_on_disk():
    expected = build.build_expectation(TINY_MIXTRAL, "MixtralForCausalLM")
    shapes = {tensor.name: tensor.shape for tensor in expected.tensors}
    experts = {name: shape for name, shape in shapes.items() if ".experts." in name}
    prefix = "model.layers.0.block_sparse_moe.experts"
    assert experts == {
        f"{prefix}.{expert}.{name}.weight": shape
        for expert in range(2)
        for name, shape in {"w1": (4, 8), "w2": (8, 4), "w3": (4, 8)}.items()
    }
    assert expected.modules[prefix].parameters == 2 * 3 * 4 * 8


@pytest.mark.oracle
def test_tied_tensors_and_buffers_have_their_roles():
    gpt2 = build.build_expectation(
        {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 16}, "GPT2LMHeadModel"
    )
    assert gpt2.tensors[-1] == ExpectedTensor(
        "lm_head.weight", (16, 8), 128, Role.TIED, "transformer.wte.weight"
    )
    learned = sum(tensor.elements for tensor in gpt2.tensors if tensor.role is Role.PARAMETER)
    assert gpt2.parameters == learned
    assert gpt2.formula == str(learned)
    assert gpt2.modules["lm_head"].parameters == 0

    resnet = build.build_expectation(
        {"embedding_size": 4, "hidden_sizes": [4], "depths": [1], "layer_type": "basic"},
        "ResNetModel",
    )
    buffers = [tensor.name for tensor in resnet.tensors if tensor.role is Role.BUFFER]
    assert buffers
    assert all("running_" in name or "num_batches_tracked" in name for name in buffers)


@pytest.mark.oracle
def test_a_buffer_that_loading_never_misses_is_not_required():
    tiny = {"d_model": 8, "encoder_layers": 0, "decoder_layers": 0, "vocab_size": 16}
    bart = build.build_expectation(tiny, "BartForConditionalGeneration")
    unlearned = [tensor for tensor in bart.tensors if not tensor.role.learned]
    assert unlearned == [ExpectedTensor("final_logits_bias", (1, 16), 16, Role.LEGACY)]


@pytest.mark.oracle
def test_what_esm_alone_reverses_on_saving_is_named_as_for_all_others():
    tiny = {"hidden_size": 4, "num_attention_heads": 1, "num_hidden_layers": 1, "vocab_size": 8}
    esm = build.build_expectation({**tiny, "position_embedding_type": "rotary"}, "EsmModel")
    names = {tensor.name for tensor in esm.tensors}
    assert {f"encoder.layer.0.LayerNorm.{kind}" for kind in ("weight", "bias")} <= names
    assert not [name for name in names if name.endswith((".gamma", ".beta"))]
    unlearned = [tensor for tensor in esm.tensors if not tensor.role.learned]
    assert [(tensor.shape, tensor.role) for tensor in unlearned] == [((2,), Role.LEGACY)]
    assert unlearned[0].name not in esm.modules


@pytest.mark.oracle
def test_the_verbosity_of_transformers_is_left_as_it_was(capfd):
    from transformers.utils import logging  # noqa: PLC0415 - seconds, which only this test pays

    before = logging.get_verbosity()
    build.build_expectation(
        {"id2label": {"0": "a"}, "num_labels": 3, **TINY_BERT}, "BertLMHeadModel"
    )
    assert logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.oracle
def test_a_config_with_an_infinity_as_transformers_writes_it_is_built():
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "mamba_n_heads": 4, "mamba_d_head": 4}
    tiny = {**sizes, "num_hidden_layers": 1, "vocab_size": 16, "intermediate_size": 8}
    limit = {"time_step_limit": [0.0, {"__float__": "Infinity"}]}
    bamba = build.build_expectation(config_of(**tiny, **limit).values, "BambaModel")
    assert bamba == build.build_expectation(tiny, "BambaModel")


@pytest.mark.oracle
def test_no_report_is_predicted_for_a_class_whose_own_loading_gives_none():
    llama = {**TINY_BERT, "model_type": "llama"}
    jev = {"model_type": "jev", "hidden_size": 8, "text_config": llama}
    assert not build.build_expectation(jev, "JevForDecision").loading.reports
    assert build.build_expectation(llama, "LlamaModel").loading.reports
