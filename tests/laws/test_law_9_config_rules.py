"""The table of config rules, held to transformers: a rule fires only where the library fails."""

from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.bert_configs import refusal
from support.examples import ORACLE_EXAMPLES, one_in

from auditor.analytic import catalogue
from auditor.analytic.config_classes import ConfigClass, complete, of_model_type
from auditor.analytic.config_classes.rules import RULES, faults_by_rules
from auditor.analytic.families import FILES
from auditor.errors import CheckpointError, SourceError
from auditor.oracle import build

Values = dict[str, Any]

EXAMPLES = 2 * ORACLE_EXAMPLES
PAPERS = frozenset({"transformer-2017"})  # models that transformers does not have
MODEL_TYPES = [each for each in catalogue.model_types() if each not in PAPERS]

LLAMA = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
QWEN3 = LLAMA | {"head_dim": 8}
BERT = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
NEO = {"vocab_size": 8, "hidden_size": 8, "num_layers": 2, "num_heads": 2}
BART = {"vocab_size": 32, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
GPT2 = {"vocab_size": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
VIT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
STAGES = {"depths": [1, 1], "hidden_sizes": [4, 8], "embedding_size": 4}
SPEECH = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "add_adapter": True}
FULL = "full_attention"

# Class, its config, and how the reason begins.
MISTAKES = [
    ("LlamaForCausalLM", LLAMA | {"pad_token_id": 32}, "pad_token_id is 32, and the embedding has"),
    ("BertModel", BERT | {"pad_token_id": 32}, "pad_token_id is 32, and the embedding has rows 0"),
    ("BartModel", BART | {"pad_token_id": -33}, "pad_token_id is -33, and the embedding has rows"),
    ("OPTModel", BERT | {"pad_token_id": 99}, "pad_token_id is 99, and the embedding has rows 0"),
    ("Qwen3ForCausalLM", QWEN3 | {"pad_token_id": 40}, "pad_token_id is 40, and the embedding"),
    (
        "LlavaForConditionalGeneration",
        {"text_config": LLAMA | {"model_type": "llama", "pad_token_id": 32}, "vision_config": VIT},
        "text_config.pad_token_id is 32, and the embedding has rows 0 to 31",
    ),
    ("Qwen3ForCausalLM", QWEN3 | {"layer_types": [FULL] * 6}, "layer_types has 6 entries, and num"),
    ("MistralModel", LLAMA | {"layer_types": [FULL]}, "layer_types has 1 entries, and num_hidden"),
    ("BertModel", BERT | {"layer_types": [FULL] * 3}, "layer_types has 3 entries, and num_hidden"),
    ("GemmaModel", LLAMA | {"layer_types": []}, "layer_types has 0 entries, and num_hidden_layers"),
    (
        "Qwen3ForCausalLM",
        QWEN3 | {"layer_types": [FULL, "windowed"]},
        "layer_types has the string 'windowed', which is not a layer type",
    ),
    (
        "SmolLM3Model",
        LLAMA | {"no_rope_layers": [1], "pad_token_id": 0},
        "no_rope_layers has 1 entries, and num_hidden_layers is 2",
    ),
    (
        "GPTNeoModel",
        NEO | {"attention_types": [[["global", "local"], 2]]},
        "attention_types has 4 entries, and num_layers is 2",
    ),
    (
        "GPTNeoModel",
        NEO | {"attention_layers": ["global"] * 3},
        "attention_layers has 3 entries, and num_layers is 2",
    ),
    (
        "GPTNeoModel",
        NEO | {"attention_types": None},
        "attention_types has 24 entries, and num_layers is 2",
    ),
    ("HubertForSequenceClassification", SPEECH, "add_adapter is true, expected false"),
    ("WavLMForAudioFrameClassification", SPEECH, "add_adapter is true, expected false"),
    ("HubertForCTC", SPEECH, "output_hidden_size is not in the config"),
    ("ResNetModel", STAGES | {"out_indices": [0, 3]}, "out_indices has 3, and there are 2 stages"),
    (
        "SwinModel",
        {"depths": [1], "num_heads": [1], "embed_dim": 4, "out_features": ["stage2"]},
        "out_features has the string 'stage2', and there are 1 stages",
    ),
    ("BertModel", BERT | {"num_attention_heads": 3}, "hidden_size 16 is not a multiple of num_att"),
    ("LlamaModel", LLAMA | {"num_attention_heads": 5}, "hidden_size 16 is not a multiple of num_a"),
    ("GPT2Model", GPT2 | {"n_head": 5}, "n_embd 16 is not a multiple of n_head 5: 16 = 3 * 5 + 1"),
    ("CLIPVisionModel", VIT | {"num_attention_heads": 3}, "hidden_size 16 is not a multiple of nu"),
    ("DebertaV2Model", BERT | {"num_attention_heads": 3}, "hidden_size 16 is not a multiple of n"),
    ("BertModel", BERT | {"hidden_act": "gelu_fastest"}, "hidden_act is the string 'gelu_fastest'"),
    ("LlamaModel", LLAMA | {"hidden_act": "swiglu"}, "hidden_act is the string 'swiglu', which is"),
    (
        "GPT2Model",
        GPT2 | {"activation_function": "gelu2"},
        "activation_function is the string 'gel",
    ),
    ("T5Model", {"num_layers": 1, "feed_forward_proj": "gated-gelux"}, "feed_forward_proj is the"),
    ("ViTModel", VIT | {"hidden_act": "geglu"}, "hidden_act is the string 'geglu', which is not"),
    (
        "MixtralModel",
        LLAMA | {"num_local_experts": 2, "hidden_act": "silo"},
        "hidden_act is the string 'silo', which is not an activation",
    ),
    (
        "BertModel",
        BERT | {"id2label": ["no", "yes"]},
        "id2label is a list, expected an object from",
    ),
    ("GPT2Model", GPT2 | {"id2label": {"no": 0}}, "id2label has the key the string 'no', expected"),
]
# What the library builds, though it looks like a mistake.
NO_MISTAKES = [
    ("LlamaForCausalLM", LLAMA | {"pad_token_id": -1}),  # counted from the end
    ("LlamaForCausalLM", LLAMA | {"eos_token_id": 99, "bos_token_id": 99}),  # only a warning
    ("GPT2LMHeadModel", GPT2 | {"pad_token_id": 32}),  # GPT-2 has no row for padding
    ("MPNetModel", BERT | {"pad_token_id": 40}),  # row 1 is for padding, whatever the config says
    ("BertModel", BERT | {"num_hidden_layers": 0, "hidden_act": "none", "num_attention_heads": 3}),
    ("AlbertModel", {"vocab_size": 8, "num_attention_heads": 3}),  # 4096 = 1365 * 3 + 1
    ("MistralModel", LLAMA | {"num_attention_heads": 5}),
    ("ElectraModel", BERT | {"num_attention_heads": 3}),
    ("Qwen3ForCausalLM", QWEN3 | {"layer_types": None}),
    ("Qwen3ForCausalLM", QWEN3 | {"layer_types": ["attention", FULL]}),  # an older name
    ("SmolLM3Model", LLAMA | {"no_rope_layers": [1, 0, 1], "pad_token_id": 0}),
    ("GPTNeoModel", NEO | {"attention_types": [[["global"], 2]]}),
    (
        "GPTNeoModel",
        NEO | {"attention_types": [[["global"], 4]], "attention_layers": ["local"] * 2},
    ),
    ("ResNetModel", STAGES | {"out_indices": [-1]}),
    ("BertModel", BERT | {"_name_or_path": 4, "made_up": {"by": ["a", "stranger"]}}),
]


def library_fails(values: Values, target: str) -> bool:
    try:
        build.build_expectation(values, target)
    except CheckpointError:
        return True
    return False


@pytest.mark.parametrize(("target", "values", "reason"), MISTAKES)
def test_a_mistake_is_named_with_its_key(target, values, reason):
    assert refusal(target, **values).startswith(reason)


@pytest.mark.oracle
@pytest.mark.parametrize(("target", "values", "reason"), MISTAKES)
def test_the_library_fails_for_a_mistake(target, values, reason):
    assert library_fails(values, target), reason


@pytest.mark.parametrize(("target", "values"), NO_MISTAKES)
def test_what_the_library_builds_is_no_mistake(target, values):
    assert refusal(target, **values) == ""


@pytest.mark.oracle
@pytest.mark.parametrize(("target", "values"), NO_MISTAKES)
def test_the_library_builds_what_is_no_mistake(target, values):
    assert not library_fails(values, target)


def test_each_rule_has_a_mistake_and_a_docstring():
    models = {name: each for each in catalogue.model_types() for name in catalogue.siblings(each)}
    fired = set()
    for target, values, _ in MISTAKES:
        kind = of_model_type(models[target])
        assert kind is not None
        config = complete(kind, values)
        parts = (config, config.part("text_config"))
        fired |= {rule for rule in RULES for part in parts if part and any(rule(part))}
    # test_refused_configs.py has the mistakes in dtypes, which the oracle is not given
    assert {rule.__name__ for rule in RULES} == {rule.__name__ for rule in fired} | {"dtypes"}
    assert all((rule.__doc__ or "").strip() for rule in RULES)


def changes(kind: ConfigClass, values: Values) -> list[Values]:
    """Changes of a config of that class that people make by mistake."""
    settled = complete(kind, values)
    rows, width, depth = (settled.get(key) for key in ("vocab_size", "hidden_size", _DEPTH))
    found: list[Values] = []
    if isinstance(rows, int) and "vocab_size" in kind.fields:
        found += [{"pad_token_id": row} for row in (rows - 1, rows, rows + 7, -1, -rows - 1)]
    for key in ("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"):
        if isinstance(width, int) and settled.own(key) in kind.fields:
            found += [{settled.own(key): heads} for heads in (2, 3, 5, 7)]
    found += [{key: "gelu_fastest"} for key in kind.fields if "act" in key.split("_")[-1]]
    found += [{"activation_function": "no"}, {"hidden_activation": "no"}, {"activation": "no"}]
    if isinstance(depth, int):
        found += [{"layer_types": [FULL] * (depth + more)} for more in (0, 1, 5)]
        found += [{"layer_types": ["windowed"] * depth}, {"no_rope_layers": [1] * (depth // 2)}]
    found += [{"id2label": names} for names in ([], {}, {"0": "no"}, {"no": 0})]
    found += [{"out_indices": [9]}, {"out_features": ["stem", "stage9"]}]
    return found


_DEPTH = "num_hidden_layers"


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", one_in(3, MODEL_TYPES))
def test_a_rule_fires_only_where_the_library_fails(model_type):
    kind = of_model_type(model_type)
    assert kind is not None
    declared = import_module(f"support.strategies.{FILES[model_type]}")

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(st.data())
    def holds(drawn):
        target = drawn.draw(st.sampled_from(catalogue.siblings(model_type)))
        values = drawn.draw(declared.VALUES.get(target, declared.VALUES[model_type]))
        values = values | drawn.draw(st.sampled_from(changes(kind, values)))
        if any(faults_by_rules(complete(kind, values))):
            with suppress(SourceError):  # for a class that the oracle does not build here
                assert library_fails(values, target)

    holds()
