"""What the files beside the weights say, by the smallest of them."""

import json

import pytest

from auditor.analytic.config_classes import of_model_type
from auditor.companions.companion_files import CompanionFile, is_vocabulary, summary
from auditor.reconciler.repository_rules.config_rules import (
    FLAT,
    contradiction_findings,
    key_findings,
)
from auditor.reconciler.repository_rules.of_files import file_findings
from auditor.reconciler.repository_rules.processors import library_processors
from auditor.reconciler.repository_rules.repository_case import RepositoryCase
from auditor.tensors import StoredTensor

GENERATION, CONFIG = "generation_config.json", "tokenizer_config.json"
PREPROCESSOR = "preprocessor_config.json"
BROKEN = "{{ a }"


def case_of(config=None, rows=10, target="LlamaForCausalLM", **files):
    """A model of so many rows, and files by their names."""
    config = {"model_type": "llama", **(config or {})}
    texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in files.items()}
    return RepositoryCase(
        names=frozenset(files),
        whole=True,
        config_file="config.json",
        config=config,
        kind=of_model_type(config["model_type"]),
        custom=False,
        target=target,
        stored=(StoredTensor("model.embed_tokens.weight", "F32", (rows, 4), 4 * rows, "", None),),
        expected=tuple,
        companions={name: companion(name, text.encode()) for name, text in texts.items()},
    )


def companion(name, content):
    return summary(name, content) if is_vocabulary(name) else CompanionFile(name, content)


def kinds(case):
    return [finding.kind for finding in file_findings(case)]


def test_an_end_beyond_the_embedding_is_one_fault():
    files = {GENERATION: {"eos_token_id": 2}}
    assert kinds(case_of({"eos_token_id": 10}, **files)) == ["special-id-beyond-vocabulary"]
    assert kinds(case_of({"eos_token_id": 9}, **files)) == ["eos-disagrees"]
    assert kinds(case_of({"eos_token_id": 2}, **files)) == []


@pytest.mark.parametrize(("text", "found"), [("</s>", []), ("<pad>", ["eos-disagrees"])])
def test_the_end_of_a_tokenizer_is_known_by_a_plain_vocabulary(text, found):
    files = {"vocab.json": {"<pad>": 1, "</s>": 2}, GENERATION: {"eos_token_id": 2}}
    assert kinds(case_of({"eos_token_id": 2}, **files, **{CONFIG: {"eos_token": text}})) == found


def test_an_added_token_is_before_one_of_the_vocabulary():
    files = {"vocab.json": {"</s>": 2}, "added_tokens.json": {"</s>": 9}}
    files |= {GENERATION: {"eos_token_id": 9}, CONFIG: {"eos_token": "</s>"}}
    assert kinds(case_of({"eos_token_id": 9}, **files)) == []


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("chat_template.jinja", BROKEN),
        ("additional_chat_templates/tool_use.jinja", BROKEN),
        ("chat_template.json", {"chat_template": BROKEN}),
        ("processor_config.json", {"chat_template": BROKEN}),
        (CONFIG, {"chat_template": BROKEN}),
        (CONFIG, {"chat_template": [{"name": "rag", "template": BROKEN}]}),
        (CONFIG, {"chat_template": {"rag": BROKEN}}),
    ],
)
def test_a_template_is_looked_for_wherever_transformers_does(file, said):
    [finding] = file_findings(case_of(**{file: said}))
    assert (finding.kind, finding.says[0][0]) == ("chat-template-broken", file)


def test_a_named_template_beside_the_default_differs_as_it_should():
    files = {"chat_template.jinja": "{{ a }}", "additional_chat_templates/rag.jinja": "{{ b }}"}
    assert kinds(case_of(**files)) == []


PAIR = {"model_type": "vision-encoder-decoder", "encoder": {"model_type": "vit"}}


def test_an_encoder_of_images_wants_a_processor():
    target = "VisionEncoderDecoderModel"
    assert kinds(case_of(PAIR, target=target)) == ["processor-missing"]
    assert kinds(case_of(PAIR, target=target, **{"preprocessor_config.json": {}})) == []
    texts = {"model_type": "encoder-decoder", "encoder": {"model_type": "bert"}}
    assert kinds(case_of(texts, target="EncoderDecoderModel")) == []


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"num_hiden_layers": 2}, ["num_hiden_layers"]),
        ({"num_hiden_layers": 2, "num_hidden_layers": 2}, []),  # the key is there
        ({"num_hiden_layers": "2"}, []),  # of another kind
        ({"model_type": "gemma4", "eoa_token_id": 3}, []),  # a key of its own, whatever reads it
        ({"model_type": "bert", "boa_token_id": 3}, []),  # some class of the library reads it
    ],
)
def test_a_rename_is_proposed_for_a_key_that_nothing_reads(config, keys):
    findings = key_findings(case_of({"model_type": "llama"} | config))
    assert [finding.says[0][1] for finding in findings] == keys


QWEN = {"model_type": "qwen2_5_vl"}


@pytest.mark.parametrize(
    ("file", "values", "keys"),
    [
        ("preprocessor_config.json", {"image_processor_type": "Qwen2VLImageProcessorFast"}, []),
        ("preprocessor_config.json", {"feature_extractor_type": "ViTFeatureExtractor"}, []),
        ("preprocessor_config.json", {"image_processor_type": "Mine", "auto_map": {}}, []),
        (
            "preprocessor_config.json",
            {"image_processor_type": "Qwen2_5_VLImageProcessor", "processor_class": "Gone"},
            ["image_processor_type", "processor_class"],
        ),
        (
            "processor_config.json",
            {"image_processor": {"image_processor_type": "Gone"}},
            ["image_processor.image_processor_type"],
        ),
        (
            "video_preprocessor_config.json",
            {"video_processor_type": "Gone"},
            ["video_processor_type"],
        ),
    ],
)
def test_a_class_of_a_processor_that_the_library_does_not_have_is_a_finding(file, values, keys):
    findings = [*file_findings(case_of(QWEN, target="Qwen2_5_VLModel", **{file: values}))]
    assert [finding.kind for finding in findings] == ["processor-unknown"] * len(keys)
    assert [finding.says[0][1] for finding in findings] == keys
    if "image_processor_type" in keys:
        assert "Qwen2VLImageProcessor" in findings[0].fix


def test_a_model_type_that_the_library_does_not_know_may_have_any_processor():
    case = case_of({"model_type": "llama9"}, **{PREPROCESSOR: {"image_processor_type": "Llama9"}})
    assert kinds(case) == []


@pytest.mark.oracle
def test_the_library_finds_the_classes_that_the_data_file_has():
    pytest.importorskip("transformers", reason="the judge of which classes there are")
    from rebuild_processors import processors  # noqa: PLC0415 - imports the library
    from transformers.models.auto.feature_extraction_auto import (  # noqa: PLC0415
        feature_extractor_class_from_name,
    )

    known = library_processors()
    rebuilt = processors()
    assert (known.transformers, known.by_type) == (rebuilt["transformers"], rebuilt["by_type"])
    assert known.classes == set(rebuilt["classes"])
    for name in ("WhisperFeatureExtractor", "ViTFeatureExtractor", "NoSuchFeatureExtractor"):
        is_class = feature_extractor_class_from_name(name) is not None
        assert (name in known.classes) is is_class, name


def test_a_pair_reveals_a_size_of_its_decoder():
    config = {**PAIR, "vocab_size": 7, "decoder": {"model_type": "gpt2", "vocab_size": 8}}
    [finding] = contradiction_findings(case_of(config))
    assert [key for _, key, _ in finding.says] == ["vocab_size", "decoder.vocab_size"]


@pytest.mark.parametrize("model_type", sorted(FLAT))
def test_a_flat_config_is_read_by_the_class_of_its_text(model_type):
    transformers = pytest.importorskip("transformers", reason="the judge of who reads a key")
    built = transformers.CONFIG_MAPPING[model_type].from_dict({"intermediate_size": 48})
    assert built.text_config.intermediate_size == 48
    [finding] = key_findings(case_of({"model_type": model_type, "intermediate_sizes": 48}))
    assert finding.says[1][1] == "intermediate_size"
    nested = {"model_type": model_type, "text_config": {}, "intermediate_sizes": 48}
    assert [*key_findings(case_of(nested))] == []
