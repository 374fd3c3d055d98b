"""Whose tensors an audit expects, of a config that holds the configs of several models."""

import tempfile
from pathlib import Path

import pytest
from support.bert_configs import config_of
from support.checkpoints import LLAMA, expect, stored_by
from support.small_snapshots import snapshot_of

from auditor.analytic import catalogue, generated
from auditor.analytic.target import Refusal, TargetChoice, choose
from auditor.audit.expected import Implied, expectation_of
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.errors import CheckpointError, Reason

TEXT = {"model_type": "gemma3_text", "num_hidden_layers": 1}
VISION = {"model_type": "siglip_vision_model", "num_hidden_layers": 1}
GEMMA3 = {"model_type": "gemma3", "text_config": TEXT, "vision_config": VISION}
WHOLE = "Gemma3ForConditionalGeneration"


def chosen(target: str | None = None, **values: object) -> TargetChoice:
    choice = choose(config_of(**values), target, catalogue)
    assert isinstance(choice, TargetChoice)
    return choice


def test_a_class_is_built_from_its_own_part_of_the_config(subtests):
    for architectures, target, name, model_type, path in [
        ([WHOLE], None, WHOLE, "gemma3", ""),
        ([], None, "Gemma3Model", "gemma3", ""),
        (["Gemma3ForCausalLM"], None, "Gemma3ForCausalLM", "gemma3_text", "text_config."),
        ([WHOLE], "Gemma3ForCausalLM", "Gemma3ForCausalLM", "gemma3_text", "text_config."),
        (
            [WHOLE],
            "SiglipVisionModel",
            "SiglipVisionModel",
            "siglip_vision_model",
            "vision_config.",
        ),
        (["Gemma3ForCausalLM"], WHOLE, WHOLE, "gemma3", ""),
        (
            ["Gemma3ForCausalLM"],
            "Gemma3TextModel",
            "Gemma3TextModel",
            "gemma3_text",
            "text_config.",
        ),
    ]:
        with subtests.test(
            architectures=architectures, target=target, name=name, model_type=model_type, path=path
        ):
            choice = chosen(target, **GEMMA3, architectures=architectures)
            assert (choice.target, choice.model_type, choice.kind.config.path) == (
                name,
                model_type,
                path,
            )


def test_a_class_of_the_model_type_may_be_spelled_in_another_case(subtests):
    for name, model_type, target in [
        ("BERTForMaskedLM", "bert", "BertForMaskedLM"),
        ("gpt2lmheadmodel", "gpt2", "GPT2LMHeadModel"),
    ]:
        with subtests.test(name=name, model_type=model_type, target=target):
            choice = chosen(architectures=[name], model_type=model_type)
            assert (choice.target, choice.declared) == (target, target)


def test_the_class_that_is_asked_for_names_the_type_if_the_config_does_not():
    choice = chosen("BertForMaskedLM", vocab_size=100)
    assert (choice.target, choice.model_type) == ("BertForMaskedLM", "bert")


def test_a_nested_config_without_a_model_type_has_that_of_its_key():
    unsaid = {key: value for key, value in VISION.items() if key != "model_type"}
    choice = chosen("SiglipVisionModel", **GEMMA3 | {"vision_config": unsaid})
    assert choice.kind.config.values == unsaid


def test_of_two_parts_of_one_model_type_the_last_counts_as_in_transformers():
    parts = {"a_config": TEXT | {"num_hidden_layers": 2}, "b_config": TEXT}
    choice = chosen("Gemma3ForCausalLM", model_type="gemma3", **parts)
    assert choice.kind.config.path == "b_config."


def test_a_note_names_the_nested_config_that_is_used():
    choice = chosen("Gemma3ForCausalLM", **GEMMA3, architectures=[WHOLE])
    assert choice.notes == ("of the config only text_config counts, which is gemma3_text",)
    assert chosen(**GEMMA3, architectures=[WHOLE]).notes == ()


def test_the_classes_of_the_outer_type_identify_unused_tensors():
    config = config_of(**GEMMA3, architectures=["Gemma3ForCausalLM"])
    found = expectation_of(config, None)
    assert isinstance(found, Implied)
    assert found.expectation.target == "Gemma3ForCausalLM"
    names = [sibling.target for sibling in found.family.siblings()]
    assert names[0] == catalogue.siblings("gemma3_text")[0]
    assert WHOLE in names


def test_a_class_that_sees_over_the_config_of_its_text_model_is_that_text_model():
    text = {"model_type": "qwen3_5_moe_text", "num_hidden_layers": 4}
    choice = chosen(**text, architectures=["Qwen3_5MoeForConditionalGeneration"])
    assert choice.target == choice.declared == "Qwen3_5MoeForCausalLM"
    assert choice.contradiction == (
        "architectures names Qwen3_5MoeForConditionalGeneration, which is qwen3_5_moe, but "
        "model_type is that of the language model in one, 'qwen3_5_moe_text': taken as a "
        "checkpoint of Qwen3_5MoeForCausalLM"
    )


def test_a_text_class_over_a_config_without_its_part_is_a_contradiction(subtests):
    for parts in [
        {},
        {"text_config": None},
        {"text_config": "gemma3_text"},
        {"text_config": {"model_type": 3}},
    ]:
        with subtests.test(parts=parts):
            config = config_of(model_type="llava", architectures=["Gemma3ForCausalLM"], **parts)
            with pytest.raises(
                CheckpointError, match="which is gemma3_text, but model_type says 'llava'"
            ):
                choose(config, None, catalogue)


def test_a_class_of_no_nested_config_is_of_another_family():
    refusal = choose(config_of(**GEMMA3, architectures=[WHOLE]), "BertModel", catalogue)
    assert refusal == Refusal(
        Reason.OTHER_FAMILY, "BertModel is of the family bert, the checkpoint gemma3"
    )


# --- a class over the config of another type ------------------------------------------------------


PAIRS = [
    ("mistral", "LlamaForCausalLM", "MistralForCausalLM"),
    ("llama", "MistralForTokenClassification", "LlamaForTokenClassification"),
    ("roberta", "XLMRobertaForSequenceClassification", "RobertaForSequenceClassification"),
]


def test_the_class_of_the_type_for_the_same_task_is_taken(subtests):
    for model_type, declared, built in PAIRS:
        with subtests.test(model_type=model_type, declared=declared, built=built):
            choice = choose(
                config_of(model_type=model_type, architectures=[declared]), None, catalogue
            )
            assert isinstance(choice, TargetChoice)
            assert (choice.target, choice.model_type, choice.contradiction) == (
                built,
                model_type,
                None,
            )
            assert choice.namesake is not None
            assert choice.namesake.endswith(f"AutoModel and its kin build {built}")


def test_without_a_class_for_the_task_nothing_follows(subtests):
    for model_type, declared in [
        ("bert", "LlamaForCausalLM"),
        ("roberta", "BertModel"),
        ("vit", "BertForMaskedLM"),
    ]:
        with (
            subtests.test(model_type=model_type, declared=declared),
            pytest.raises(CheckpointError, match="but model_type says"),
        ):
            choose(config_of(model_type=model_type, architectures=[declared]), None, catalogue)


def test_one_type_is_no_contradiction(subtests):
    for values in [
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        {"model_type": "llama", "architectures": ["LLaMAForCausalLM"]},
        {"model_type": "llama"},
        {"architectures": ["LlamaForCausalLM"]},
    ]:
        with subtests.test(values=values):
            choice = choose(config_of(**values), None, catalogue)
            assert isinstance(choice, TargetChoice)
            assert choice.namesake is None


@pytest.mark.oracle
def test_transformers_builds_it_of_such_a_config(subtests, tmp_path):
    for model_type, declared, built in PAIRS:
        with subtests.test(model_type=model_type, declared=declared, built=built):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            import transformers  # noqa: PLC0415 - seconds

            saved = getattr(transformers, declared)
            saved.config_class(**LLAMA, max_position_embeddings=64).save_pretrained(place)
            path = place / "config.json"
            path.write_text(path.read_text().replace(saved.config_class.model_type, model_type))
            task = built[built.index("For") :]
            auto = getattr(transformers, f"AutoModel{task}")
            model = auto.from_config(transformers.AutoConfig.from_pretrained(place))
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


def test_a_type_known_only_as_a_part_of_others_is_unknown() -> None:
    config = config_of(model_type="musicgen_decoder", architectures=["MusicgenForCausalLM"])
    refusal = choose(config, None, generated)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.UNKNOWN_ARCHITECTURE
