"""Adapters that are not what they or their bases say, and bases that cannot be read."""

import re

import pytest
from support.small_adapters import (
    BELOW,
    CONFIG,
    FILE,
    GPT2,
    LORA,
    OWN,
    TENSORS,
    clean,
    coded,
    files,
    folder_of,
    kinds,
)

import auditor
from auditor import Reason, Report, Unaudited
from auditor.findings import (
    BadConfig,
    Mismatched,
    Missing,
    Unexpected,
)

ON_DISK = "is a path on the trainer's disk; write the Hub id"
FIRST = f"{BELOW}.0.attn.c_attn.lora_A.weight"


OTHER = f"{BELOW}.0.mlp.c_fc.lora_A.weight"


def test_a_planted_fault_is_found_and_explained(at_hub, tmp_path, subtests):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    for name, what, kind in (
        (FIRST, None, Missing),
        (OTHER, ("F32", (2, 8)), Unexpected),
        (FIRST, ("F32", (4, 8)), Mismatched),
        (FIRST, ("F32", (0,)), Mismatched),  # what DeepSpeed leaves of a partition
    ):
        with subtests.test(name=name, what=what):
            tensors = {each: one for each, one in (TENSORS | {name: what}).items() if one}
            report = auditor.audit(folder_of(tmp_path / "a", files(tensors=tensors)))
            assert isinstance(report, Report)
            assert kinds(report) == {kind}
            assert {one for finding in report.findings for one in finding.names} == {name}
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


WITHOUT_A_BASE = (
    ("org/absent", Reason.NOT_FOUND, "org/absent"),
    ("org/gated", Reason.GATED, "org/gated"),
    ("org/adapter", Reason.NO_CONFIG, "it is not a complete model"),
    ("../../etc/passwd", Reason.NOT_FOUND, ON_DISK),
    ("~/model", Reason.NOT_FOUND, ON_DISK),
    ("output/run/checkpoint-500", Reason.NOT_FOUND, ON_DISK),
    ("output\\merged", Reason.NOT_FOUND, ON_DISK),
    ("D:/models", Reason.NOT_FOUND, ON_DISK),
    ("http://127.0.0.1/x", Reason.NOT_FOUND, "not a Hub id"),
    ("org/broken", Reason.UNREADABLE, "is broken"),
    ("org/odd", Reason.UNREADABLE, "no base can be built"),
    ("org/labels", Reason.UNREADABLE, "num_labels is the string '2'"),
    ("org/unknown", Reason.UNKNOWN_ARCHITECTURE, "the base of this adapter"),
    (None, Reason.NO_CONFIG, "names no base model"),
    ("", Reason.NO_CONFIG, "names no base model"),
)


def test_an_adapter_without_its_base_is_tallied_and_not_audited(at_hub, subtests):
    at_hub.add("org/gated", {CONFIG: coded(GPT2)}, gated="manual")
    at_hub.add("org/broken", {CONFIG: b"{"})
    at_hub.add("org/odd", {CONFIG: coded({**GPT2, "n_embd": "8"})})
    at_hub.add("org/labels", {CONFIG: coded({**GPT2, "num_labels": "2"})})
    at_hub.add("org/unknown", {CONFIG: coded({"architectures": ["NoneForCausalLM"]})})
    at_hub.add("org/adapter", files())
    for named, reason, why in WITHOUT_A_BASE:
        with subtests.test(named=named):
            at_hub.push("org/adapter", files({**LORA, "base_model_name_or_path": named}))
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


# --- wrong, unknown and hostile settings ----------------------------------------------------------


WRONG = (
    ({"r": 0}, "r is 0"),
    ({"r": "8"}, "r is the string '8'"),
    ({"r": None}, "r is null"),
    ({"r": 10**15}, "r is 1000000000000000"),
    ({"target_modules": 7}, "target_modules is 7"),
    ({"target_modules": ["c_attn", 7]}, "an item of target_modules is 7"),
    ({"target_modules": ["x" * 9999]}, "matches no module of GPT2LMHeadModel"),
    ({"target_modules": "nothing"}, "matches no module of GPT2LMHeadModel"),
    ({"rank_pattern": {"c_attn": "2"}}, "the rank of 'c_attn' in rank_pattern"),
    ({"rank_pattern": [1]}, "rank_pattern is a list"),
    ({"layers_to_transform": ["0"]}, "layers_to_transform is the string '0'"),
    ({"modules_to_save": [""]}, "an empty name"),
    ({"modules_to_save": [f"m{n}" for n in range(2000)]}, "modules_to_save has 2,000 names"),
    ({"bias": "some"}, "bias is the string 'some'"),
    ({"use_dora": "yes"}, "use_dora is the string 'yes'"),
    ({"peft_type": 1}, "peft_type is 1"),
    ({"peft_type": None}, "has no peft_type"),
    ({"base_model_name_or_path": ["a"]}, "base_model_name_or_path is a list"),
    ({"revision": 5}, "revision is 5"),
    ({"auto_mapping": []}, "auto_mapping is a list"),
    ({"target_parameters": ["none"], "target_modules": None}, "matches no parameter of"),
    ({"target_parameters": [], "target_modules": None}, "names anything"),
    ({"trainable_token_indices": ["1"]}, "trainable_token_indices is the string '1'"),
    ({"trainable_token_indices": {"none": [1]}}, "no such module"),
)


def test_wrong_settings_are_a_finding_that_names_the_key(at_hub, tmp_path, subtests):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    for change, why in WRONG:
        with subtests.test(why=why):
            report = auditor.audit(folder_of(tmp_path / "a", files({**LORA, **change})))
            assert isinstance(report, Report), report
            (bad,) = (finding for finding in report.findings if BadConfig.describes(finding))
            assert bad.file == FILE
            assert why in bad.reason
            assert "\n" not in bad.reason
            assert len(bad.reason) < 400
            assert report.observed.parameters == OWN


UNKNOWN = (
    ({"target_modules": "(a*)*" * 900}, "is not followed"),
    ({"target_modules": "(.{900}){900}"}, "not followed: it has more than"),
    ({"target_modules": r"(c_attn)\1"}, r"'(c_attn)\\1', which is not followed"),
    ({"exclude_modules": "(?<=ab)b"}, "exclude_modules has the expression"),
    ({"rank_pattern": {"(?<=ab)b": 2}}, "rank_pattern has the expression"),
    ({"modules_to_save": ["(a|b)*"]}, "modules_to_save names '(a|b)*'"),
    ({"layers_to_transform": [0], "layers_pattern": ["(a*)*"]}, "layers_pattern"),
    ({"target_modules": ["attn"]}, "which is not a layer"),
    ({"target_modules": ["ln_1"]}, "of a kind that is not known"),
    ({"target_modules": None}, "target_modules is null"),
    ({"layer_replication": [[0, 1]]}, "layer_replication"),
    ({"use_qalora": True}, "use_qalora"),
    ({"enable_lora": [True, False, True]}, "enable_lora"),
    ({"peft_type": "POLY"}, "peft_type is 'POLY'"),
    ({"peft_type": "<script>"}, "peft_type is '<SCRIPT>'"),
)


@pytest.mark.slow
def test_unknown_settings_are_reported_as_not_checked(at_hub, tmp_path, subtests):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    for change, why in UNKNOWN:
        with subtests.test(why=why):
            outcome = auditor.audit(folder_of(tmp_path / "a", files({**LORA, **change})))
            assert isinstance(outcome, Unaudited), outcome
            assert outcome.reason is Reason.UNKNOWN_LAYOUT
            assert why in outcome.detail
            assert outcome.detail.startswith("not checked: ")
            assert outcome.observed.parameters == OWN


def test_a_rank_of_a_million_millions_allocates_nothing(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    report = auditor.audit(folder_of(tmp_path / "a", files({**LORA, "r": 10**12})))
    assert (kinds(report), report.residual) == ({Mismatched}, 0)
    assert report.expected.parameters == 10**12 * 2 * (8 + 24)


@pytest.mark.slow
def test_a_million_targets_are_refused_and_a_hundred_thousand_are_looked_up(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    million = coded({**LORA, "target_modules": [f"m{n}" for n in range(1_000_000)]})
    report = auditor.audit(folder_of(tmp_path / "a", files(million)))
    (bad,) = (finding for finding in report.findings if BadConfig.describes(finding))
    assert re.search(r"has some 1,000,\d+ JSON values", bad.reason)
    many = {**LORA, "target_modules": ["c_attn", *(f"m{n}" for n in range(100_000))]}
    clean(auditor.audit(folder_of(tmp_path / "b", files(many))))


def test_settings_that_are_no_json_are_a_finding(tmp_path, at_hub):
    report = auditor.audit(folder_of(tmp_path / "a", files(b'{"peft_type": ')))
    (bad,) = (finding for finding in report.findings if BadConfig.describes(finding))
    assert "is cut off" in bad.reason
    assert not at_hub.log
