"""Settings of adapters that are wrong, not known or hostile."""

import re

import pytest
from support.small_adapters import (
    CONFIG,
    FILE,
    GPT2,
    LORA,
    OWN,
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
)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"r": 0}, "r is 0"),
        ({"r": -8}, "r is -8"),
        ({"r": "8"}, "r is the string '8'"),
        ({"r": None}, "r is null"),
        ({"r": 10**15}, "r is 1000000000000000"),
        ({"target_modules": 7}, "target_modules is 7"),
        ({"target_modules": ["c_attn", 7]}, "an item of target_modules is 7"),
        ({"target_modules": ["nothing"]}, "matches no module of GPT2LMHeadModel"),
        ({"target_modules": ["x" * 9999]}, "matches no module of GPT2LMHeadModel"),
        ({"target_modules": "nothing"}, "matches no module of GPT2LMHeadModel"),
        ({"rank_pattern": {"c_attn": "2"}}, "the rank of 'c_attn' in rank_pattern"),
        ({"rank_pattern": [1]}, "rank_pattern is a list"),
        ({"layers_to_transform": ["0"]}, "layers_to_transform is the string '0'"),
        ({"modules_to_save": [""]}, "an empty name"),
        ({"modules_to_save": [f"m{n}" for n in range(2000)]}, "modules_to_save has 2,000 names"),
        ({"bias": "some"}, "bias is the string 'some'"),
        ({"bias": None}, "bias is null"),
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
    ],
)
def test_wrong_settings_are_a_finding_that_names_the_key(at_hub, tmp_path, change, why):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    report = auditor.audit(folder_of(tmp_path / "a", files({**LORA, **change})))
    assert isinstance(report, Report), report
    (bad,) = (finding for finding in report.findings if isinstance(finding, BadConfig))
    assert bad.file == FILE
    assert why in bad.reason
    assert "\n" not in bad.reason
    assert len(bad.reason) < 400
    assert report.observed.parameters == OWN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
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
        ({"peft_type": "OFT"}, "peft_type is 'OFT'"),
        ({"peft_type": "<script>"}, "peft_type is '<SCRIPT>'"),
    ],
)
def test_unknown_settings_are_reported_as_not_checked(at_hub, tmp_path, change, why):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
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
    (bad,) = (finding for finding in report.findings if isinstance(finding, BadConfig))
    assert re.search(r"has some 1,000,\d+ JSON values", bad.reason)
    many = {**LORA, "target_modules": ["c_attn", *(f"m{n}" for n in range(100_000))]}
    clean(auditor.audit(folder_of(tmp_path / "b", files(many))))


def test_settings_that_are_no_json_are_a_finding(tmp_path, at_hub):
    report = auditor.audit(folder_of(tmp_path / "a", files(b'{"peft_type": ')))
    (bad,) = (finding for finding in report.findings if isinstance(finding, BadConfig))
    assert "is cut off" in bad.reason
    assert not at_hub.log
