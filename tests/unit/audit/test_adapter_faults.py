"""Adapters that are not what they or their bases say, and bases that cannot be read."""

import pytest
from support.small_adapters import (
    BELOW,
    CONFIG,
    GPT2,
    LORA,
    OWN,
    TENSORS,
    coded,
    files,
    folder_of,
    kinds,
)

import auditor
from auditor import Reason, Report, Unaudited
from auditor.findings import (
    Mismatched,
    Missing,
    Unexpected,
)

ON_DISK = "is a path on the trainer's disk; write the Hub id"
FIRST = f"{BELOW}.0.attn.c_attn.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "kind", "names"),
    [
        ({FIRST: None}, Missing, {FIRST}),
        (
            {f"{BELOW}.0.mlp.c_fc.lora_A.weight": ("F32", (2, 8))},
            Unexpected,
            {f"{BELOW}.0.mlp.c_fc.lora_A.weight"},
        ),
        ({FIRST: ("F32", (8, 2))}, Mismatched, {FIRST}),
        ({FIRST: ("F32", (4, 8))}, Mismatched, {FIRST}),
        ({FIRST: ("F32", (0,))}, Mismatched, {FIRST}),  # what DeepSpeed leaves of a partition
    ],
)
def test_a_planted_fault_is_found_and_explained(at_hub, tmp_path, change, kind, names):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    tensors = {name: what for name, what in (TENSORS | change).items() if what}
    report = auditor.audit(folder_of(tmp_path / "a", files(tensors=tensors)))
    assert isinstance(report, Report)
    assert kinds(report) == {kind}
    assert {name for finding in report.findings for name in finding.names} == names
    assert (report.verdict, report.residual) == ("findings", 0)


def test_settings_of_another_rank_than_the_file_are_found(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    report = auditor.audit(folder_of(tmp_path / "a", files({**LORA, "r": 4})))
    assert kinds(report) == {Mismatched}
    assert {name for finding in report.findings for name in finding.names} == set(TENSORS)
    assert report.residual == 0


def test_another_base_than_the_right_one_is_found(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded({**GPT2, "n_embd": 16})})
    report = auditor.audit(folder_of(tmp_path / "a", files()))
    assert (kinds(report), report.residual) == ({Mismatched}, 0)


# --- bases that are not to be had -------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "reason", "why"),
    [
        ("org/absent", Reason.NOT_FOUND, "org/absent"),
        ("org/gated", Reason.GATED, "org/gated"),
        ("org/adapter", Reason.NO_CONFIG, "it is not a complete model"),
        ("../../etc/passwd", Reason.NOT_FOUND, ON_DISK),
        ("/etc/passwd", Reason.NOT_FOUND, ON_DISK),
        ("~/model", Reason.NOT_FOUND, ON_DISK),
        ("./output/merged", Reason.NOT_FOUND, ON_DISK),
        ("output/run/checkpoint-500", Reason.NOT_FOUND, ON_DISK),
        ("output\\merged", Reason.NOT_FOUND, ON_DISK),
        ("C:\\models\\llama", Reason.NOT_FOUND, ON_DISK),
        ("D:/models", Reason.NOT_FOUND, ON_DISK),
        ("http://127.0.0.1/x", Reason.NOT_FOUND, "not a Hub id"),
        ("org/broken", Reason.UNREADABLE, "is broken"),
        ("org/odd", Reason.UNREADABLE, "no base can be built"),
        ("org/labels", Reason.UNREADABLE, "num_labels is the string '2'"),
        ("org/unknown", Reason.UNKNOWN_ARCHITECTURE, "the base of this adapter"),
        (None, Reason.NO_CONFIG, "names no base model"),
        ("", Reason.NO_CONFIG, "names no base model"),
    ],
)
def test_an_adapter_without_its_base_is_tallied_and_not_audited(at_hub, named, reason, why):
    at_hub.add("org/gated", {CONFIG: coded(GPT2)}, gated="manual")
    at_hub.add("org/broken", {CONFIG: b"{"})
    at_hub.add("org/odd", {CONFIG: coded({**GPT2, "n_embd": "8"})})
    at_hub.add("org/labels", {CONFIG: coded({**GPT2, "num_labels": "2"})})
    at_hub.add("org/unknown", {CONFIG: coded({"architectures": ["NoneForCausalLM"]})})
    at_hub.add("org/adapter", files({**LORA, "base_model_name_or_path": named}))
    outcome = auditor.audit("org/adapter")
    assert isinstance(outcome, Unaudited)
    assert outcome.reason is reason
    assert why in outcome.detail
    assert "\n" not in outcome.detail
    assert outcome.observed.parameters == OWN


def test_an_adapter_of_the_hub_names_no_folder_of_this_machine(at_hub, tmp_path, monkeypatch):
    folder_of(tmp_path / "base", {CONFIG: coded(GPT2)})
    monkeypatch.chdir(tmp_path)
    for number, named in enumerate(("base", str(tmp_path / "base"), "./base")):
        adapter = f"org/adapter-{number}"
        at_hub.add(adapter, files({**LORA, "base_model_name_or_path": named}))
        outcome = auditor.audit(adapter)
        assert isinstance(outcome, Unaudited)
        assert outcome.reason is Reason.NOT_FOUND


def test_a_folder_names_no_file_as_its_base(tmp_path, at_hub):
    secret = tmp_path / "secret.json"
    secret.write_bytes(b"root:x:0:0")
    named = {**LORA, "base_model_name_or_path": str(secret)}
    outcome = auditor.audit(folder_of(tmp_path / "a", files(named)))
    assert isinstance(outcome, Unaudited)
    assert "root:x" not in outcome.detail
    assert not at_hub.log
