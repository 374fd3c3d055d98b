"""A config that transformers refuses is refused here, and no other: drawn, and by example."""

from collections import Counter

import pytest
from refusals import MODEL_TYPES, MOST_SILENT, Verdict, cases, judge, judged, silent, summary
from support.bert_configs import refusal

pytestmark = pytest.mark.oracle

EACH = 3  # configs of a model type; `make refusals` draws more

LLAMA = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
NEO = {"model_type": "gpt_neo", "vocab_size": 8, "hidden_size": 8, "num_layers": 2, "num_heads": 2}
QWEN = LLAMA | {"model_type": "qwen3"}
BERT = {
    "model_type": "bert",
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


@pytest.fixture(scope="module")
def library():
    process = judge()
    yield process
    process.end()


def test_of_spoilt_configs_the_library_and_we_refuse_the_same(library):
    found = [case for each in MODEL_TYPES for case in cases(library, each, 1, EACH, bases=2)]
    counted = Counter(case.verdict for case in found)
    assert not counted[Verdict.US], summary(found)
    assert silent(counted) <= MOST_SILENT, summary(found)
    assert counted[Verdict.BOTH] > len(found) // 4 < counted[Verdict.NEITHER]


@pytest.mark.parametrize(
    ("target", "values", "reason"),
    [
        (
            "LlamaForCausalLM",
            LLAMA | {"pad_token_id": 32},
            "pad_token_id is 32, and the embedding has rows 0 to 31",
        ),
        (
            "Qwen3ForCausalLM",
            QWEN | {"head_dim": 8, "layer_types": ["full_attention"] * 6},
            "layer_types has 6 entries, and num_hidden_layers is 2",
        ),
        (
            "Qwen3ForCausalLM",
            QWEN | {"head_dim": 8, "layer_types": ["full_attention", "windowed"]},
            "layer_types has the string 'windowed', which is not a layer type",
        ),
        (
            "GPTNeoModel",
            NEO | {"attention_types": [[["global", "local"], 2]]},
            "attention_types implies 4 layers, and num_layers 2",
        ),
        (
            "GPTNeoModel",
            NEO | {"attention_types": [[["global", "near"], 1]]},
            'attention_layers has the string \'near\', expected "global" or "local"',
        ),
        (
            "LlamaForCausalLM",
            LLAMA | {"head_dim": 7},
            "head_dim is 7, and a rotation turns pairs: expected an even number",
        ),
        (
            "BertModel",
            BERT | {"hidden_act": "gelu_fastest"},
            "hidden_act is the string 'gelu_fastest', which is not an activation",
        ),
        (
            "LlamaForCausalLM",
            LLAMA | {"rope_scaling": {"rope_type": "linear"}},
            'rope_scaling has no factor, which rope_type "linear" needs',
        ),
        (
            "BertModel",
            BERT | {"num_attention_heads": 3},
            "hidden_size 16 is not a multiple of num_attention_heads 3: 16 = 5 * 3 + 1",
        ),
        (
            "Lfm2MoeModel",
            {"model_type": "lfm2_moe", "num_hidden_layers": 4, "layer_types": ["conv"]},
            "layer_types has 1 entries, and num_hidden_layers is 4",
        ),
        (
            "MarianMTModel",
            {"model_type": "marian", "max_position_embeddings": -1024},
            "a tensor of max_position_embeddings -1024 by d_model 1024 would have a negative size",
        ),
        ("ConvNextBackbone", {"model_type": "convnext"}, "hidden_sizes is not in the config, and"),
        (
            "ResNetModel",
            {"model_type": "resnet", "out_indices": [0.0]},
            "out_features (null) and out_indices (a list) cannot be used: list indices",
        ),
        (
            "M2M100Model",
            {"model_type": "m2m_100", "d_model": 2, "encoder_attention_heads": 1},
            "d_model 2 is too little for sines and cosines",
        ),
        ("BertModel", BERT | {"attention_probs_dropout_prob": 2.0}, "attention_probs_dropout_prob"),
    ],
)
def test_what_the_library_cannot_build_is_named(library, target, values, reason):
    case = judged(library, values, target)
    assert case.verdict is Verdict.BOTH
    assert refusal(target, **values).startswith(reason)


@pytest.mark.parametrize(
    ("target", "values"),
    [
        ("LlamaForCausalLM", LLAMA | {"pad_token_id": -1}),  # counted from the end
        ("LlamaForCausalLM", LLAMA | {"eos_token_id": 99, "bos_token_id": 99}),  # a warning, there
        ("GPT2LMHeadModel", {"model_type": "gpt2", "pad_token_id": 50257}),  # no padding in GPT-2
        ("Glm4MoeModel", {"model_type": "glm4_moe", "num_nextn_predict_layers": None}),
        ("BertModel", BERT | {"num_hidden_layers": 0, "hidden_act": "none"}),  # nobody acts
        ("LlamaForCausalLM", LLAMA | {"head_dim": 3}),  # test checkpoints have such heads
        ("Qwen3ForCausalLM", QWEN | {"head_dim": 8, "layer_types": None}),
        ("GPTNeoModel", NEO | {"attention_types": [[["global"], 2]]}),
        ("AlbertModel", {"model_type": "albert", "num_attention_heads": 3}),  # 4096 = 1365 * 3 + 1
        ("ConvNextBackbone", {"model_type": "convnext", "hidden_sizes": [96, 192, 384, 768]}),
        ("MistralForCausalLM", {"model_type": "mistral", "rope_theta": 10000}),
        ("BertModel", BERT | {"layer_norm_eps": float("nan")}),
        ("BertModel", BERT | {"_name_or_path": 4, "made_up": {"by": ["a", "stranger"]}}),
    ],
)
def test_what_the_library_builds_is_not_refused(library, target, values):
    case = judged(library, values, target)
    assert case.verdict is Verdict.NEITHER, str(case)


def test_all_faults_of_a_config_are_reported_and_each_once(library):
    values = LLAMA | {"pad_token_id": 40, "hidden_act": "none", "rms_norm_eps": "small"}
    assert judged(library, values, "LlamaForCausalLM").verdict is Verdict.BOTH
    keys = [line.partition(" ")[0] for line in refusal("LlamaForCausalLM", **values).split("\n")]
    assert sorted(keys) == ["hidden_act", "pad_token_id", "rms_norm_eps"]
