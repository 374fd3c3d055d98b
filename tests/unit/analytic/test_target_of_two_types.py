"""A class of one model type over the config of another: AutoModel goes by the type."""

import pytest
from support.bert_configs import config_of
from support.checkpoints import expect, stored_by
from support.small_snapshots import snapshot_of

from auditor.analytic import catalogue
from auditor.analytic.target import TargetChoice, choose
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.errors import CheckpointError

LLAMA = {
    "vocab_size": 131,
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
PAIRS = [
    ("mistral", "LlamaForCausalLM", "MistralForCausalLM"),
    ("llama", "MistralForTokenClassification", "LlamaForTokenClassification"),
    ("roberta", "XLMRobertaForSequenceClassification", "RobertaForSequenceClassification"),
]


@pytest.mark.parametrize(("model_type", "declared", "built"), PAIRS)
def test_the_class_of_the_type_for_the_same_task_is_taken(model_type, declared, built):
    choice = choose(config_of(model_type=model_type, architectures=[declared]), None, catalogue)
    assert isinstance(choice, TargetChoice)
    assert (choice.target, choice.model_type, choice.contradiction) == (built, model_type, None)
    assert choice.namesake is not None
    assert choice.namesake.endswith(f"AutoModel and its kin build {built}")


@pytest.mark.parametrize(
    ("model_type", "declared"),
    [("bert", "LlamaForCausalLM"), ("roberta", "BertModel"), ("vit", "BertForMaskedLM")],
)
def test_without_a_class_for_the_task_nothing_follows(model_type, declared):
    with pytest.raises(CheckpointError, match="but model_type says"):
        choose(config_of(model_type=model_type, architectures=[declared]), None, catalogue)


@pytest.mark.parametrize(
    "values",
    [
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        {"model_type": "llama", "architectures": ["LLaMAForCausalLM"]},
        {"model_type": "llama"},
        {"architectures": ["LlamaForCausalLM"]},
    ],
)
def test_one_type_is_no_contradiction(values):
    choice = choose(config_of(**values), None, catalogue)
    assert isinstance(choice, TargetChoice)
    assert choice.namesake is None


@pytest.mark.oracle
@pytest.mark.parametrize(("model_type", "declared", "built"), PAIRS)
def test_transformers_builds_it_of_such_a_config(model_type, declared, built, tmp_path):
    import transformers  # noqa: PLC0415 - seconds

    saved = getattr(transformers, declared)
    saved.config_class(**LLAMA, max_position_embeddings=64).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace(saved.config_class.model_type, model_type))
    task = built[built.index("For") :]
    auto = getattr(transformers, f"AutoModel{task}")
    model = auto.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    assert type(model).__name__ == built


def test_what_loads_is_a_warning_and_all_is_compared():
    tensors = stored_by(expect("LlamaForCausalLM", **{**LLAMA, "model_type": "llama"}))
    config = {**LLAMA, "model_type": "mistral", "architectures": ["LlamaForCausalLM"]}
    report = examine(snapshot_of(tensors, **config), Options(requested="saved"))
    alarming = [one.kind for one in report.findings if one.severity != "info"]
    assert (alarming, report.residual, report.target) == (
        ["config-contradiction"],
        0,
        "MistralForCausalLM",
    )


def test_tensors_of_the_declared_class_are_distinguished_from_those_of_the_type():
    tensors = stored_by(expect("Qwen2ForCausalLM", **{**LLAMA, "model_type": "qwen2"}))
    config = {**LLAMA, "model_type": "llama", "architectures": ["Qwen2ForCausalLM"]}
    report = examine(snapshot_of(tensors, **config), Options(requested="saved"))
    [found] = report.diagnosis
    assert found.cause == "other-architecture"
    claimed = {report.findings[place].kind for place in found.findings}
    assert claimed == {"config-contradiction", "unexpected"}
