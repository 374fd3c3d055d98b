"""other-class is said of a head in the place of another, and no tie of what is not stored."""

import pytest
from msgspec.structs import replace
from support.checkpoints import TINY, expect, stored, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import RepoFile
from auditor.diagnosis.causes import custom_code

LLAMA = {
    "model_type": "llama",
    "vocab_size": 131,
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def diagnosed(tensors, **config):
    report = examine(snapshot_of(tensors, **config), Options(requested="saved"))
    return [(one.cause, one.fields) for one in report.diagnosis]


@pytest.mark.parametrize(
    ("declared", "saved", "config"),
    [
        ("LlamaForCausalLM", "LlamaForSequenceClassification", LLAMA),
        ("LlamaForCausalLM", "LlamaForQuestionAnswering", LLAMA),
        ("MistralForCausalLM", "MistralForTokenClassification", {**LLAMA, "model_type": "mistral"}),
    ],
)
def test_a_classifier_in_the_place_of_an_untied_head_is_the_class(declared, saved, config):
    tensors = stored_by(expect(saved, **config))
    said = diagnosed(tensors, architectures=[declared], **config)
    assert said == [("other-class", (("architectures", [declared], [saved]),))]


@pytest.mark.parametrize("declared", [{}, {"architectures": []}, {"architectures": None}])
def test_a_config_without_a_class_is_not_reported_to_declare_one(declared):
    tensors = stored_by(expect("BertForMaskedLM"))
    report = examine(snapshot_of(tensors, **TINY, **declared), Options(requested="saved"))
    [found] = report.diagnosis
    assert found.cause == "other-class"
    assert "the config names no architectures, which stands for BertModel" in found.summary


def test_two_classes_with_the_same_tensors_are_both_named():
    config = {**TINY, "id2label": {"0": "fits"}, "architectures": ["BertForQuestionAnswering"]}
    tensors = stored_by(expect("BertForMultipleChoice"))
    report = examine(snapshot_of(tensors, **config), Options(requested="saved"))
    [found] = report.diagnosis
    classes = ["BertForSequenceClassification", "BertForMultipleChoice"]
    assert f"the shapes do not decide between {classes[0]} and {classes[1]}" in found.summary
    assert found.fields == ()
    assert found.alternatives == tuple({"architectures": [name]} for name in classes)


@pytest.mark.parametrize(
    ("is_decoder", "saved"), [(False, "BertForMaskedLM"), (True, "BertLMHeadModel")]
)
def test_is_decoder_tells_a_causal_class_from_a_masked_one(is_decoder, saved):
    tensors = stored_by(expect("BertForMaskedLM"))
    config = {**TINY, "is_decoder": is_decoder, "architectures": ["BertForQuestionAnswering"]}
    report = examine(snapshot_of(tensors, **config), Options(requested="saved"))
    [found] = report.diagnosis
    assert {key: value for key, _, value in found.fields} == {"architectures": [saved]}
    assert "would explain as much" not in found.summary


@pytest.mark.parametrize("declared", ["T5EncoderModel", "Qwen3VLForConditionalGeneration"])
def test_a_class_of_another_type_is_replaced_by_the_class_of_the_stated_type(declared):
    tensors = stored_by(expect("LlamaForCausalLM", **LLAMA))
    field = ("architectures", [declared], ["LlamaForCausalLM"])
    assert diagnosed(tensors, **LLAMA, architectures=[declared]) == [("other-class", (field,))]


def test_without_a_head_of_any_kind_the_head_was_not_saved():
    tensors = [one for one in stored_by(expect("LlamaForCausalLM", **LLAMA)) if one[0][:2] != "lm"]
    [(cause, _)] = diagnosed(tensors, architectures=["LlamaForCausalLM"], **LLAMA)
    assert cause == "head-not-saved"


def test_an_adapter_that_is_not_there_hides_no_cause_of_the_weights():
    config, declared = {**TINY, "model_type": "bert"}, ["BertForSequenceClassification"]
    shot = snapshot_of(stored_by(expect("BertModel")), **config, architectures=declared)
    shot = replace(shot, files=(*shot.files, RepoFile(name="adapter_config.json", size=2)))
    report = examine(shot, Options(requested="saved"))
    assert [one.cause for one in report.diagnosis] == ["other-class"]
    assert {"missing", "missing-component"} <= {one.kind for one in report.findings}


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        ("BertForMaskedLM", {}, ["the names are those of BertForMaskedLM, of model_type 'bert'"]),
        ("BertModel", {}, []),  # RoBERTa and others have the same names
        ("LlamaForCausalLM", LLAMA, []),  # as have Mistral and Gemma
    ],
)
def test_a_config_without_a_type_gets_a_note_if_one_type_has_the_names(name, config, says):
    tensors = stored_by(expect(name, **config))
    sizes = {key: value for key, value in (config or TINY).items() if key != "model_type"}
    report = examine(snapshot_of(tensors, **sizes), Options(requested="saved"))
    assert (report.verdict, report.reason.value) == ("unaudited", "unknown-architecture")
    assert [note for note in report.notes if "the names are those" in note] == says


@pytest.mark.parametrize(("more", "names"), [((), "the names are"), (("linear.weight",), "most")])
def test_a_class_that_nobody_knows_gets_a_note_with_the_class_of_its_type(more, names):
    tensors = [*stored_by(expect("BertModel")), *(stored(name, (4, 4)) for name in more)]
    config = {**TINY, "model_type": "bert", "architectures": ["HF_ColBERT"]}
    report = examine(snapshot_of(tensors, **config), Options(requested="saved"))
    assert report.reason.value == "unknown-architecture"
    [note] = report.notes
    assert note.startswith(names)
    assert note.endswith("of BertModel, of model_type 'bert'; --as BertModel compares them")


def test_a_class_of_custom_code_beside_the_declared_one_has_its_remedy():
    """As jina-embeddings-v2 in sentence-transformers: AutoModel is not the declared class."""
    tensors = stored_by(expect("BertModel"))
    code = {"AutoModel": "code.JinaBertModel", "AutoModelForMaskedLM": "code.JinaBertForMaskedLM"}
    config = {**TINY, "model_type": "bert", "architectures": ["JinaBertForMaskedLM"]}
    shot = snapshot_of(tensors, **config, auto_map=code)
    shot = replace(shot, files=(*shot.files, RepoFile(name="code.py", size=2)))
    outcome = examine(shot, Options(requested="saved"))
    [found] = custom_code.declared(replace(outcome, target="JinaBertModel"), shot)
    assert "'code.JinaBertModel' in auto_map" in found.summary
    assert "trust_remote_code=True" in found.fix
    assert not [*custom_code.declared(replace(outcome, target="BertModel"), shot)]
