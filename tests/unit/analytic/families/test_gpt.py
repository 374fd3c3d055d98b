"""The GPT-like decoders: sizes of published files, older spellings, and what is refused."""

import re

import pytest
from support.bert_configs import config_of, refusal

from auditor.analytic import Role, catalogue

BLOOM = config_of(
    model_type="bloom", n_embed=14336, n_layer=70, num_attention_heads=112, vocab_size=250880
)
GPT_J = config_of(
    model_type="gptj",
    vocab_size=50400,
    n_positions=2048,
    n_embd=4096,
    n_layer=28,
    n_head=16,
    n_inner=None,
    rotary_dim=64,
    tie_word_embeddings=False,
)
REDPAJAMA_7B = config_of(
    model_type="gpt_neox",
    vocab_size=50432,
    hidden_size=4096,
    intermediate_size=16384,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
    rotary_pct=1.0,
    tie_word_embeddings=False,
)
FALCON_180B = config_of(
    model_type="falcon",
    vocab_size=65024,
    hidden_size=14848,
    num_hidden_layers=80,
    num_attention_heads=232,
    num_kv_heads=8,
    new_decoder_architecture=True,
    multi_query=True,
    parallel_attn=True,
    alibi=False,
    bias=False,
)
OPT_1_3B = config_of(
    model_type="opt",
    vocab_size=50272,
    hidden_size=2048,
    ffn_dim=8192,
    num_hidden_layers=24,
    num_attention_heads=32,
    max_position_embeddings=2048,
    word_embed_proj_dim=2048,
    do_layer_norm_before=True,
)


def legacy(config, target):
    """How many elements of each kind a file of an old version has beyond the parameters."""
    counts = {}
    for tensor in catalogue.expect(config, target).tensors:
        if tensor.role is Role.LEGACY:
            kind = tensor.name.rpartition(".")[2]
            counts[kind] = counts.get(kind, 0) + tensor.elements
    return counts


@pytest.mark.parametrize("target", ["BloomModel", "BloomForCausalLM"])  # the head is tied
def test_bloom_has_as_many_parameters_as_are_published(target):
    parameters = catalogue.expect(BLOOM, target).parameters
    assert parameters == 176_247_271_424
    assert 2 * parameters == 352_494_542_848  # total_size of its index


def test_the_bytes_of_gpt_j_are_parameters_and_masks():
    beyond = legacy(GPT_J, "GPTJForCausalLM")
    parameters = 4 * catalogue.expect(GPT_J, "GPTJForCausalLM").parameters
    masks = 1 * beyond.pop("bias") + 4 * beyond.pop("masked_bias")
    assert not beyond
    assert parameters + masks == 24_320_971_760  # total_size of an index of GPT-J 6B


def test_the_bytes_of_redpajama_are_parameters_masks_and_frequencies():
    beyond = legacy(REDPAJAMA_7B, "GPTNeoXForCausalLM")
    parameters = 2 * catalogue.expect(REDPAJAMA_7B, "GPTNeoXForCausalLM").parameters
    masks = beyond.pop("bias") / 8 + 2 * beyond.pop("masked_bias")  # 1/8 byte, as counted then
    frequencies = 2 * beyond.pop("inv_freq")
    assert not beyond
    assert parameters + masks + frequencies == 13_731_385_408.0  # total_size of its index


def test_the_bytes_of_falcon_are_parameters_and_a_head_that_is_stored_though_it_is_tied():
    parameters = catalogue.expect(FALCON_180B, "FalconForCausalLM").parameters
    assert 2 * (parameters + 65024 * 14848) == 359_045_130_240  # total_size of its index


def test_the_bytes_of_opt_are_parameters_and_what_a_pickle_adds():
    parameters = catalogue.expect(OPT_1_3B, "OPTForCausalLM").parameters
    added = 2_631_639_353 - 2 * parameters  # the size of its pytorch_model.bin
    assert 0 < added < 500 * 388  # some hundred bytes for each of 388 tensors


@pytest.mark.parametrize(
    ("config", "target", "layer", "names"),
    [
        pytest.param(
            GPT_J,
            "GPTJForCausalLM",
            "transformer.h.27.attn.",
            "bias k_proj.weight masked_bias out_proj.weight q_proj.weight v_proj.weight",
            id="gptj",
        ),
        pytest.param(
            REDPAJAMA_7B,
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
        tensor.name for tensor in catalogue.expect(REDPAJAMA_7B, "GPTNeoXForCausalLM").tensors
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


@pytest.mark.parametrize(
    ("values", "target", "message"),
    [
        (
            {"add_cross_attention": True},
            "GPTBigCodeModel",
            r"^add_cross_attention and multi_query are both true$",
        ),
        ({"n_embd": 10, "n_head": 4}, "GPTJModel", r"^n_embd 10 is not a multiple of n_head 4"),
        ({"n_heads": 0}, "MptModel", r"^d_model 2048 cannot be divided by n_heads 0$"),
        ({"n_embed": 0}, "BloomModel", r"^hidden_size 0 is shared by n_head 8: attention cannot"),
        ({"n_groups": 0}, "Mamba2Model", r"cannot be divided by n_groups 0$"),
        (
            {"hidden_size": 6, "num_heads": 2, "head_dim": 5},
            "Mamba2Model",
            r"^hidden_size 6 and expand 2 make 12, num_heads 2 and head_dim 5 make 10: they ",
        ),
        (
            {"time_step_rank": "automatic"},
            "MambaModel",
            r"^time_step_rank is the string 'automatic'; an integer",
        ),
        ({"multi_query": 1}, "FalconModel", r"^multi_query is 1; true or false is needed$"),
    ],
)
def test_what_no_class_can_be_built_from_is_refused(values, target, message):
    assert re.search(message, refusal(target, **values))
