"""A head that the declared class has no use for, in the save of a class that has it."""

import json

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by

from auditor import AuditRequest, audit

TINY_LLAMA = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 16,
}  # fmt: skip


def folder_of(path, saved, declared, **config):
    tensors = {one.name: ("F32", one.shape) for one in stored_by(expect(saved, **config))}
    (path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    content = json.loads(config_bytes(**config, architectures=[declared]))
    (path / "config.json").write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("saved", "declared", "config", "kinds"),
    [
        ("LlamaForCausalLM", "LlamaModel", TINY_LLAMA, {"unused-head"}),
        ("LlamaForCausalLM", "LLamaModel", TINY_LLAMA, {"unused-head"}),
        ("LlamaForSequenceClassification", "LlamaModel", TINY_LLAMA, {"unused-head"}),
        ("LlamaModel", "LlamaModel", TINY_LLAMA, set()),
        ("LlamaForCausalLM", "LlamaForCausalLM", TINY_LLAMA, set()),
        ("BertForSequenceClassification", "BertModel", {}, {"unused-head"}),
        ("BertForPreTraining", "BertModel", {}, {"unused"}),
        ("BertForPreTraining", "BertForMaskedLM", {}, {"unused"}),
    ],
)
def test_only_the_head_of_a_task_is_an_unused_head(tmp_path, saved, declared, config, kinds):
    outcome = audit(folder_of(tmp_path, saved, declared, **config))
    assert {one.kind for one in outcome.findings} & {"unused", "unused-head", "missing"} == kinds
    causes = [(one.cause, one.fields) for one in outcome.diagnosis]
    change = ("other-class", (("architectures", [declared], [saved]),))
    assert causes == ([change] if "unused-head" in kinds else [])
    assert not outcome.residual


def test_a_head_is_merely_unused_for_a_class_that_the_user_chose(tmp_path):
    folder = folder_of(tmp_path, "LlamaForCausalLM", "LlamaForCausalLM", **TINY_LLAMA)
    outcome = audit(AuditRequest(model=folder, target="LlamaModel"))
    assert {one.kind for one in outcome.findings} == {"unused", "renamed"}


@pytest.mark.parametrize("declared", ["LlamaModel", "LlamaForCausalLM"])
def test_a_head_is_merely_unused_where_sentence_transformers_loads_the_body(tmp_path, declared):
    folder = folder_of(tmp_path, "LlamaForCausalLM", declared, **TINY_LLAMA)
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    assert {one.kind for one in audit(folder).findings} == {"unused", "renamed"}
