"""What the bytes of two copies show, and the advice that follows from it."""

import json

import numpy as np
import pytest
from support.builders import safetensors_bytes
from support.checkpoints import expect, stored_by

import auditor

LLAMA = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 16,
    "tie_word_embeddings": False,
}  # fmt: skip
HEAD, WORDS = "lm_head.weight", "model.embed_tokens.weight"


def arrays():
    rng = np.random.default_rng(0)
    tensors = stored_by(expect("LlamaForCausalLM", **LLAMA))
    return {one.name: rng.standard_normal(one.shape, np.float32) for one in tensors}


def audited(path, *files, **config):
    for number, file in enumerate(files):
        table = {name: ("F32", array.shape) for name, array in file.items()}
        data = b"".join(array.tobytes() for array in file.values())
        header = safetensors_bytes(table)[: -len(data)]
        (path / f"model-{number}.safetensors").write_bytes(header + data)
    values = {**LLAMA, **config, "architectures": ["LlamaForCausalLM"]}
    (path / "config.json").write_text(json.dumps(values))
    index = {"weight_map": {name: f"model-{at}.safetensors"
             for at, file in reversed([*enumerate(files)]) for name in file}}  # fmt: skip
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return auditor.audit(str(path), values=True)


@pytest.mark.parametrize(
    ("is_equal", "is_tied", "kinds"),
    [
        (True, False, [("head-equals-embedding", "info")]),
        (False, False, []),
        (True, True, [("duplicate", "info")]),
        (False, True, [("tied-copy-differs", "error")]),
    ],
)
def test_a_head_is_compared_with_the_embedding(tmp_path, is_equal, is_tied, kinds):
    tensors = arrays()
    if is_equal:
        tensors[HEAD] = tensors[WORDS]
    outcome = audited(tmp_path, tensors, tie_word_embeddings=is_tied)
    assert [(one.kind, one.severity) for one in outcome.findings] == kinds
    assert all(one.evidence["of"] == (WORDS,) for one in outcome.findings)


@pytest.mark.parametrize(("is_equal", "severity"), [(True, "info"), (False, "error")])
def test_copies_in_two_files_are_compared(tmp_path, is_equal, severity):
    tensors = arrays()
    norm = tensors.pop("model.norm.weight")
    copy = {HEAD: tensors[HEAD] if is_equal else tensors[HEAD] + 1, "model.norm.weight": norm}
    outcome = audited(tmp_path, tensors, copy)
    [duplicate] = [one for one in outcome.findings if one.kind == "duplicate"]
    assert duplicate.severity == severity
    fixes = [one.fix for one in outcome.diagnosis]
    assert not any("--values" in fix for fix in fixes)
    assert any("either copy" in fix for fix in fixes) == (is_equal and bool(fixes))
