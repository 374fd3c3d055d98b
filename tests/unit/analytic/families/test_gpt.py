"""The GPT-like decoders: names of published indexes, older spellings, and what is refused."""

import re

import pytest
from support.bert_configs import config_of, refusal
from support.published_configs import published

from auditor.analytic import catalogue


@pytest.mark.parametrize(
    ("config", "target", "layer", "names"),
    [
        pytest.param(
            published("GPT-J 6B"),
            "GPTJForCausalLM",
            "transformer.h.27.attn.",
            "bias k_proj.weight masked_bias out_proj.weight q_proj.weight v_proj.weight",
            id="gptj",
        ),
        pytest.param(
            published("RedPajama-INCITE-7B"),
            "GPTNeoXForCausalLM",
            "gpt_neox.layers.31.attention.",
            "bias dense.bias dense.weight masked_bias query_key_value.bias query_key_value.weight "
            "rotary_emb.inv_freq",
            id="gpt_neox",
        ),
    ],
)
def test_an_attention_has_the_names_of_its_published_index(config, target, layer, names):
    listed = {tensor.name for tensor in catalogue.expect(config, target).tensors}
    assert {name.removeprefix(layer) for name in listed if name.startswith(layer)} == set(
        names.split()
    )


def test_the_head_of_a_gpt_neox_is_stored_under_its_old_name():
    listed = [
        tensor.name
        for tensor in catalogue.expect(
            published("RedPajama-INCITE-7B"), "GPTNeoXForCausalLM"
        ).tensors
    ]
    assert "embed_out.weight" in listed
    assert "lm_head.weight" not in listed


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        pytest.param(
            {"model_type": "RefinedWebModel", "n_head": 8, "n_layer": 3, "multi_query": True},
            {"num_attention_heads": 8, "num_hidden_layers": 3, "multi_query": True},
            id="falcon-7b",
        ),
        pytest.param(
            {"model_type": "RefinedWeb", "n_head": 8, "n_head_kv": 2, "n_layer": 3},
            {
                "num_attention_heads": 8,
                "num_kv_heads": 2,
                "num_hidden_layers": 3,
                "new_decoder_architecture": True,
            },
            id="falcon-40b",
        ),
        pytest.param(
            {"model_type": "RefinedWebModel", "n_head": 8, "n_layer": 3, "multi_query": False}
            | {"alibi": True, "bias": True, "parallel_attn": False},
            {"num_attention_heads": 8, "num_hidden_layers": 3, "multi_query": False}
            | {"alibi": True, "bias": True, "parallel_attn": False},
            id="falcon-rw-1b",
        ),
    ],
)
def test_a_falcon_of_the_first_code_has_the_tensors_of_todays(older, newer):
    shared = {"hidden_size": 64, "vocab_size": 90}
    was = catalogue.expect(config_of(**shared, **older), "RWForCausalLM")
    now = catalogue.expect(config_of(**shared, **newer, model_type="falcon"), "FalconForCausalLM")
    assert was.tensors == now.tensors
    assert was.formula == now.formula


def test_a_falcon_of_today_does_not_read_the_keys_of_the_first_code():
    today = {"model_type": "falcon", "num_hidden_layers": 1}
    both = config_of(**today, n_head=5, n_layer=5, n_head_kv=5)
    expected = catalogue.expect(config_of(**today), "FalconModel")
    assert catalogue.expect(both, "FalconModel").tensors == expected.tensors


def test_what_no_class_can_be_built_from_is_refused(subtests):
    for values, target, message in [
        ({"n_embd": 10, "n_head": 4}, "GPTJModel", r"^n_embd 10 is not a multiple of n_head 4"),
        (
            {"time_step_rank": "automatic"},
            "MambaModel",
            r"^time_step_rank is the string 'automatic', expected an integer",
        ),
        ({"multi_query": 1}, "FalconModel", r"^multi_query is 1, expected true or false$"),
    ]:
        with subtests.test(values=values, target=target, message=message):
            assert re.search(message, refusal(target, **values))
