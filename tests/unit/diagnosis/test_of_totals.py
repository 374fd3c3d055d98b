"""An index alone: the key with which its total_size comes out."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import config_of

import auditor
from auditor.analytic import Role, catalogue
from auditor.diagnosis.causes._of_totals import _roots

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "intermediate_size": 688,
    "dtype": "bfloat16",
}
GEMMA = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}
GPT2 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 500,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "dtype": "float32",
}
# Of published sizes, where more keys would do as well.
LLAMA_8B = LLAMA | {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
}
GPT2_SMALL = GPT2 | {
    "vocab_size": 50257,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
}
BYTES = {"bfloat16": 2, "float32": 4}


def index_alone(folder, values, **wrong):
    """A folder with an index of what the config implies, and the config with wrong values."""
    implied = catalogue.expect(config_of(**values), values["architectures"][0])
    tensors = [one for one in implied.tensors if one.role is Role.PARAMETER]
    total = sum(one.elements for one in tensors) * BYTES[values["dtype"]]
    index = {
        "metadata": {"total_size": total},
        "weight_map": {one.name: "model-00001-of-00001.safetensors" for one in tensors},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(values | wrong))
    return auditor.audit(str(folder))


@pytest.mark.parametrize("values", [LLAMA, GEMMA, GPT2], ids=lambda one: one["model_type"])
def test_a_sound_index_lacks_its_files_alone(values, tmp_path):
    [diagnosis] = index_alone(tmp_path, values).diagnosis
    assert diagnosis.cause == "partial-upload"


@pytest.mark.parametrize(
    ("values", "key", "wrong"),
    [
        (LLAMA, "vocab_size", 32064),
        (LLAMA, "vocab_size", 31999),
        (LLAMA, "vocab_size", 151936),
        (LLAMA, "intermediate_size", 1024),
        (LLAMA, "hidden_size", 512),
        (LLAMA, "num_key_value_heads", 8),
        (LLAMA, "head_dim", 64),
        (GEMMA, "vocab_size", 256000),
        (GPT2, "n_positions", 256),
        (GPT2, "vocab_size", 501),
        (LLAMA_8B, "vocab_size", 64128),
        (LLAMA_8B, "vocab_size", 128320),
        (LLAMA_8B, "intermediate_size", 7168),
        (LLAMA_8B, "head_dim", 64),
        (GPT2_SMALL, "vocab_size", 50321),
        (GPT2_SMALL, "n_positions", 2048),
    ],
)
def test_the_field_with_which_the_total_comes_out_is_named_first(values, key, wrong, tmp_path):
    [partial, found] = index_alone(tmp_path, values, **{key: wrong}).diagnosis
    assert partial.cause == "partial-upload"
    assert (found.cause, found.fields) == ("config-field", ((key, wrong, values[key]),))


def test_other_keys_that_fit_as_well_are_reported(tmp_path):
    [_, found] = index_alone(tmp_path, LLAMA, intermediate_size=1024).diagnosis
    assert "(or vocab_size = 29,984, which would explain as much)" in found.summary


@given(st.integers(1, 50), *[st.integers(0, 10**9)] * 3)
def test_a_polynomial_of_the_second_degree_is_solved_exactly(at, a, b, c):
    def sizes(x):
        return a * x * x + b * x + c

    roots = [*_roots([*map(sizes, (1, 2, 3))], Fraction(sizes(at)))]
    assert at in roots or a == b == 0
    assert all(sizes(root) == sizes(at) for root in roots)
