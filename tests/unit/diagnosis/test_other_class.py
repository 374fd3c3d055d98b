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
