"""The fix of files that name different end tokens."""

import json

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import expect, stored_by

from auditor import audit
from auditor.fixing.of_folder import fix_folder, plan_for_folder

SIZES = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
LLAMA = {**SIZES, "model_type": "llama", "num_attention_heads": 2}


@pytest.fixture
def folder(tmp_path):
    """A model whose config ends at token 1, and its tokenizer at token 3."""
    config = {**LLAMA, "architectures": ["LlamaForCausalLM"], "dtype": "float32", "eos_token_id": 1}
    stored = stored_by(expect("LlamaForCausalLM", **LLAMA))
    tensors = {tensor.name: ("F32", tensor.shape) for tensor in stored}
    added = [{"id": at, "content": f"<|{at}|>"} for at in (2, 3)]
    tokenizer = {"added_tokens": added, "model": {"type": "BPE", "vocab": {"</s>": 1}}}
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|3|>"}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 2, "bos_token_id": 0}')
    return tmp_path


def kinds(folder):
    return [finding.kind for finding in audit(str(folder)).findings]


def test_the_generation_config_gets_each_end_token(folder):
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"eos_token_id": 3})
    )
    assert kinds(folder) == ["eos-disagrees"]
    plan = plan_for_folder(str(folder), None, (), print)
    fixed = fix_folder(plan, say=print)
    assert kinds(fixed) == []
    written = json.loads((fixed / "generation_config.json").read_text())
    assert written == {"eos_token_id": [2, 3], "bos_token_id": 0}


def test_an_end_token_that_may_be_a_word_is_not_written(folder):
    assert kinds(folder) == ["eos-disagrees"]
    assert plan_for_folder(str(folder), None, (), print).plan.changes == ()


def test_without_a_generation_config_nothing_is_written(folder):
    (folder / "generation_config.json").unlink()
    assert kinds(folder) == ["eos-disagrees"]
    assert plan_for_folder(str(folder), None, (), print).plan.changes == ()
