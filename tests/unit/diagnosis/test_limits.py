"""Bounds of the search for causes, and weights that no cause explains."""

import gc

from support.checkpoints import TINY, expect, stored, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.diagnosis.case import Case
from auditor.diagnosis.causes import config_field, other_architecture


def test_large_models_of_unexpected_names_are_solved_for_no_field(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a config was solved")

    monkeypatch.setattr(config_field, "solve", refuse)
    tensors = [stored(f"some.{at:x}.name", (4,)) for at in range(5_000)]
    config = {**TINY, "architectures": ["BertForMaskedLM"], "num_hidden_layers": 200}
    report = examine(snapshot_of(tensors, **config), Options(requested="large"))
    assert (report.verdict, report.diagnosis) == ("findings", ())


def test_only_the_first_parts_of_a_config_are_compared(monkeypatch):
    """A hostile config has any number of parts, each with a type."""
    many = {f"part_{number}": {"model_type": "bert"} for number in range(3000)}
    config = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], **many}
    solved = []
    solve = other_architecture.solve
    monkeypatch.setattr(
        other_architecture, "solve", lambda *a, **k: solved.append(1) or solve(*a, **k)
    )
    tensors = stored_by(expect("BertForMaskedLM"))
    assert examine(snapshot_of(tensors, **config), Options(requested="parts")).verdict != "clean"
    assert len(solved) < 100


def test_keys_that_explain_fewer_names_than_they_are_explain_nothing():
    """Weights in an unknown packing, with a bias for each in another dtype."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1},
    }
    tensors = []
    for one in stored_by(expect("LlamaForCausalLM", **config)):
        module, rows = one.name.removesuffix(".weight"), one.shape[0]
        if "_proj" not in module:
            tensors.append(stored(one.name, one.shape, dtype="BF16"))
            continue
        tensors.append(stored(f"{module}.qweight", (one.shape[1] // 8, rows), dtype="I32"))
        tensors += [stored(f"{module}.{last}", (rows, 1)) for last in ("zeros", "scales")]
        tensors.append(stored(f"{module}.bias", (rows,)))
    report = examine(snapshot_of(tensors, **config), Options(requested="packed"))
    assert (report.verdict, report.diagnosis) == ("findings", ())


def test_the_evidence_of_a_diagnosis_is_freed_with_it():
    """A reference from the evidence to itself would keep each model of a sweep in memory."""
    tensors = [stored("cls.other.weight", (4,)), *stored_by(expect("BertForMaskedLM"))[1:]]
    snapshot = snapshot_of(tensors, **TINY, architectures=["BertForMaskedLM"])
    gc.collect()
    gc.disable()
    try:
        assert examine(snapshot, Options(requested="freed")).verdict == "findings"
        assert not [one for one in gc.get_objects() if isinstance(one, Case)]
    finally:
        gc.enable()
