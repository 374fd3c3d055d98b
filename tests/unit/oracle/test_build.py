"""What the builder refuses and leaves alone; law 9 compares what it builds with closed forms."""

import sys

import pytest
from support.bert_configs import config_of

from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.oracle import build

TINY_BERT = {"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 11, "num_hidden_layers": 1}


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
