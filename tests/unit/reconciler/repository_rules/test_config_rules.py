"""Of two values of one fact transformers takes the one that the finding names."""

import pytest
from support.examples import one_in

from auditor.analytic.config_classes import of_model_type
from auditor.companions.reading import Companions
from auditor.reconciler.repository_rules.config_rules import contradiction_findings, key_findings
from auditor.reconciler.repository_rules.repository_case import RepositoryCase

LINEAR = {"rope_type": "linear", "factor": 2.0}


def case_of(model_type, values, shaping=None):
    return RepositoryCase(
        names=frozenset(),
        is_complete=False,
        config_file="config.json",
        config={"model_type": model_type, **values},
        kind=of_model_type(model_type),
        is_custom=False,
        target=None,
        stored=(),
        expected=tuple,
        companions=Companions.of(()),
        shaping=shaping,
    )


def findings_of(model_type, values, shaping=None):
    return [*contradiction_findings(case_of(model_type, values, shaping))]


def built(model_type, values):
    """The config as the library builds it of the same keys."""
    transformers = pytest.importorskip("transformers", reason="the judge of who wins")
    return transformers.CONFIG_MAPPING[model_type].from_dict({"model_type": model_type, **values})


TAKEN = {
    "dtype": (
        "llama",
        {"torch_dtype": "bfloat16", "dtype": "float16"},
        lambda config: str(config.dtype).removeprefix("torch."),
        "float16",
        "dtype",
    ),
    "base of rope_parameters": (
        "llama",
        {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        lambda config: config.rope_parameters["rope_theta"],
        5e5,
        "rope_parameters.rope_theta",
    ),
    "base of rope_scaling": (
        "llama",
        {"rope_theta": 1e4, "rope_scaling": {**LINEAR, "rope_theta": 5e5}},
        lambda config: config.rope_parameters["rope_theta"],
        5e5,
        "rope_scaling.rope_theta",
    ),
    "rope_scaling beside rope_parameters": (
        "llama",
        {
            "rope_scaling": {**LINEAR, "rope_theta": 1e4},
            "rope_parameters": {**LINEAR, "factor": 8.0, "rope_theta": 1e4},
        },
        lambda config: config.rope_parameters["factor"],
        2.0,
        "rope_scaling",
    ),
    "a synonym": (
        "gpt2",
        {"n_embd": 32, "hidden_size": 48},
        lambda config: config.n_embd,
        48,
        "hidden_size",
    ),
    "num_labels": (
        "bert",
        {"num_labels": 3, "id2label": {"0": "a", "1": "b"}},
        lambda config: config.num_labels,
        3,
        "num_labels",
    ),
    "id2label": (
        "bert",
        {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1}},
        lambda config: config.num_labels,
        3,
        "id2label for the number of labels",
    ),
    "text_config": (
        "llava",
        {"vocab_size": 99, "text_config": {"model_type": "llama", "vocab_size": 77}},
        lambda config: config.get_text_config().vocab_size,
        77,
        "text_config.vocab_size",
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_the_library_takes_what_the_finding_says(name):
    model_type, values, read, taken, key = TAKEN[name]
    [finding] = findings_of(model_type, values)
    assert finding.reason.endswith(f" takes {key}")
    assert read(built(model_type, values)) == taken


@pytest.mark.parametrize("name", TAKEN)
def test_the_same_value_twice_is_no_contradiction(name):
    model_type, values, *_ = TAKEN[name]
    once = dict([next(iter(values.items()))])
    assert findings_of(model_type, once) == []


WIDER = {"hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128}


@pytest.mark.parametrize(
    ("shaping", "count"), [(frozenset({"head_dim"}), 0), (None, 0), (frozenset({"hidden_size"}), 1)]
)
def test_a_head_dim_that_tensors_follow_is_no_contradiction(shaping, count):
    """Qwen3-30B-A3B's, whose config class has no such field, and whose model reads it."""
    assert "head_dim" not in of_model_type("qwen3_moe").fields
    assert len(findings_of("qwen3_moe", WIDER, shaping)) == count


@pytest.mark.parametrize(
    ("model_type", "older", "kind"), [("qwen2_vl", "mrope", "default"), ("phi3", "su", "longrope")]
)
def test_an_older_name_of_a_rotation_is_no_contradiction(model_type, older, kind):
    rope = {"type": older, "rope_type": kind, "factor": 2.0}
    assert findings_of(model_type, {"rope_scaling": rope}) == []
    [finding] = findings_of(model_type, {"rope_scaling": {**rope, "type": "linear"}})
    assert finding.kind == "config-contradiction"


@pytest.mark.parametrize(
    ("model_type", "values", "known"),
    [
        ("llama", {"num_hiden_layers": 2}, "num_hidden_layers"),
        ("deepseek_v2", {"head_dim": 8, "vhead_dim": 8}, "v_head_dim"),
        ("deepseek_v2", {"head_dim": 8, "v_head_dim": 8, "vhead_dim": 8}, None),
        ("llama", {"pads_token_id": 0}, "pad_token_id"),
        ("llama", {"eoa_token_id": 0}, None),
        ("bart", {"forced_os_token_id": 0}, None),
        ("llama", {"num_hiden_layers": "two"}, None),
    ],
)
def test_a_key_is_renamed_to_the_only_absent_key_that_is_one_slip_away(model_type, values, known):
    fixes = [finding.fix for finding in key_findings(case_of(model_type, values))]
    wrong = [*values][-1]
    assert fixes == ([f"rename {wrong} to {known}"] if known else [])


@pytest.mark.oracle
def test_a_default_config_of_the_library_has_no_unknown_key():
    transformers = pytest.importorskip("transformers", reason="it writes the configs")
    for model_type, config_class in one_in(12, transformers.CONFIG_MAPPING.items()):
        try:
            values = config_class().to_dict()
        except Exception:  # noqa: BLE001, S112 - a class that cannot be built without arguments
            continue
        assert not [*key_findings(case_of(model_type, values))], model_type
