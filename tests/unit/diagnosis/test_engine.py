"""The choice between explanations: equal ones are reported together, others add up."""

from support.checkpoints import stored_by
from support.small_snapshots import snapshot_of

from auditor.analytic import Config, catalogue
from auditor.audit.options import Options
from auditor.audit.pipeline import examine

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
LAST = ("model.layers.4", "model.layers.5", "model.layers.6", "model.layers.7")
ENDS = ("model.norm.", "lm_head.")


def diagnosis_of(left_out, **true):
    """Return the diagnosis of a folder that declares LLAMA and lacks some tensors of `true`."""
    tensors = stored_by(catalogue.expect(Config(values=LLAMA | true), "LlamaForCausalLM"))
    stored = [one for one in tensors if not one.name.startswith(left_out)]
    return examine(snapshot_of(stored, **LLAMA), Options(requested="llama")).diagnosis


def test_a_first_stage_may_be_a_rank_or_what_is_left_of_a_model():
    [one] = diagnosis_of(LAST + ENDS)
    assert one.cause == "parallel-rank"
    assert "(or lost-part: the files lack layers 4-7 of 8" in one.summary
    assert "gather the parts of all ranks" in one.fix
    assert "save the complete model again" in one.fix


def test_causes_that_explain_different_findings_are_no_alternatives():
    found = diagnosis_of(("lm_head.",), vocab_size=120)
    assert {one.cause: dict([field[::2] for field in one.fields]) for one in found} == {
        "head-not-saved": {"tie_word_embeddings": True},
        "config-field": {"vocab_size": 120},
    }
    assert not any("which would explain as much" in one.summary for one in found)
