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
from auditor.reconciler.repository_rules.repository_case import RepositoryCase
from auditor.tensors import StoredTensor

GENERATION, CONFIG = "generation_config.json", "tokenizer_config.json"
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
