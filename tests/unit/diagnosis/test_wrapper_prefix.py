"""wrapper-prefix names the wrappers that the model was saved from."""

import pytest
from support.checkpoints import expect, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine

CLASS = "LlamaForCausalLM"
LLAMA = {
    "model_type": "llama",
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
COMPILED = "the state dict of a compiled model was saved"
IN_PARALLEL = "the state dict of a DistributedDataParallel model was saved"


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("_orig_mod.", COMPILED),
        ("module._orig_mod.", f"{IN_PARALLEL} and {COMPILED}"),
        ("net.", "the model was saved from within a wrapper"),
        ("module.net.", "the model was saved from within a wrapper"),
    ],
)
def test_wrappers_that_are_known_are_named_each(prefix, said):
    stored = stored_by(expect(CLASS, **LLAMA))
    wrapped = [one._replace(name=f"{prefix}{one.name}") for one in stored]
    report = examine(
        snapshot_of(wrapped, **LLAMA, architectures=[CLASS]), Options(requested="wrapped")
    )
    [found] = report.diagnosis
    assert found.cause == "wrapper-prefix"
    assert found.summary.startswith(f"every name begins with {prefix} ({said}): ")
