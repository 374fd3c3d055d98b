"""`--values` of a model on the Hub: a sample, at the audited commit, and said to be one."""

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files as resources
from itertools import count

import jsonschema
import numpy as np
import pytest
from support.hub import Header, Origin, WholeFile
from support.sampled_faults import (
    BASE_OF_ADAPTERS,
    adapter_cases_to_sample,
    sampled_cases,
)
from support.value_causes import causes_of
from support.value_files import write_numbers

import auditor
from auditor.errors import Reason
from auditor.findings import Severity
from auditor.formats import View
from auditor.formats.registry import FORMATS

WEIGHTS, CONFIG = "model.safetensors", "config.json"
NAME = "LlamaForCausalLM"
SHOWN = {
    "trained",
    "padded",
    "padding rows",
    "fresh head",
    "added bias",
    "trained, NaN in norms",
    "trained, zeros in the last layer",
}


@pytest.fixture
def sample(at_hub, tmp_path):
    """Adds a case to the Hub and audits it with --values."""
    numbers = count(1)

    def audited(case, *, lfs=None, **choices):
        weights = "adapter_model.safetensors" if case.adapter else WEIGHTS
        path = write_numbers(tmp_path / weights, dict(case.tensors))
        config = "adapter_config.json" if case.adapter else CONFIG
        model = f"org/m{next(numbers)}"
        at_hub.add(model, {config: json.dumps(case.config), weights: path, **case.others}, lfs=lfs)
        at_hub.reset_log()
        return auditor.audit(model, values=True, **choices)

    return audited


@cache
def case_of(label, name=NAME):
    return next(sampled_cases(name, only={label}))


@pytest.mark.slow
def test_what_a_sample_can_show_is_named_alone_and_sound_checkpoints_are_left_alone(sample):
    for case in sampled_cases(NAME, only=SHOWN):
        outcome = sample(case)
        expected = [(case.cause, case.severity)] if case.cause else []
        assert causes_of(outcome) == expected, case.name
        alarms = [one for one in outcome.findings if one.severity is not Severity.INFO]
        assert bool(alarms) == bool(outcome.diagnosis), case.name


def test_a_tied_copy_that_differs_is_named_and_one_that_is_the_same_stays_in_doubt(sample):
    name = "Qwen2ForCausalLM"
    case = case_of("tied copy", name)
    assert causes_of(sample(case)) == [("tied-copy-differs", "error")]
    rows = case.tensors["model.embed_tokens.weight"]
    same = replace(case, tensors={**case.tensors, "lm_head.weight": rows})
    (finding,) = (one for one in sample(same).findings if one.kind == "duplicate")
    assert finding.severity is Severity.WARNING
    assert "bytes of both were sampled, and are the same" in finding.reason


def test_an_adapter_that_adds_nothing_is_named_and_one_that_is_half_trained_is_not(at_hub, sample):
    at_hub.add("org/base", {CONFIG: json.dumps(BASE_OF_ADAPTERS)})
    for case in adapter_cases_to_sample():
        outcome = sample(case)
        assert causes_of(outcome) == ([(case.cause, "error")] if case.cause else []), case.name
        assert outcome.values.sampled


@pytest.mark.parametrize("redirected", [False, True])
def test_a_sample_costs_eight_requests_and_600_kb_at_the_most(at_hub, sample, redirected):
    case = case_of("trained")
    outcome = sample(case, lfs=None if redirected else ())
    asked, sent = len(at_hub.log), sum(one.sent for one in at_hub.log)
    plain = auditor.audit("org/m1")
    extra = outcome.fetched.requests - plain.fetched.requests
    assert outcome.fetched.requests == asked
    assert 0 < extra <= 8
    assert 0 < outcome.fetched.bytes - plain.fetched.bytes <= 600_000
    assert sent == outcome.fetched.bytes
    assert any(one.origin == Origin.STORAGE for one in at_hub.log) == redirected


def test_a_larger_budget_reads_more_and_a_small_model_is_read_completely(sample):
    case = case_of("trained")
    few = sample(case, values_budget="2,50kB")
    many = sample(case, values_budget="40,3MB")
    for outcome in (few, many):
        for one in outcome.values.tensors:
            assert 0 < one.read <= one.numbers
            assert one.sampled == (one.read < one.numbers)
        assert sum(one.read for one in outcome.values.tensors) * 2 <= outcome.values.bytes
    assert few.values.bytes <= 50_000 < many.values.bytes <= 3_000_000
    assert len(few.values.tensors) < len(many.values.tensors)
    whole = sample(case, values_budget="2,100MB")
    assert whole.values.bytes == whole.values.of
    assert not any(one.startswith("values") for one in whole.unchecked)
    assert all(one.is_complete for one in whole.values.tensors)
    none = sample(case, values_budget="0")
    assert none.values is None
    assert any(one.startswith("values: not sampled") for one in none.unchecked)


def test_each_format_mentions_the_sample_and_its_size(sample):
    outcome = sample(case_of("trained, NaN in norms"))
    read = outcome.values
    said = f"sampled {len(read.tensors)} of {read.of_tensors} tensors, {read.bytes / 1000:,.0f} kB"
    assert any(one.startswith(f"values: {said}") for one in outcome.unchecked)
    (finding,) = (one for one in outcome.findings if one.kind == "not-finite")
    assert "numbers that were sampled" in finding.reason
    for name, form in FORMATS.items():
        texts = form([outcome], View()).values()
        if name not in {"svg", "badge"}:
            assert any("sampled" in text for text in texts), name
    schema = json.loads(resources("auditor.formats").joinpath("report.schema.json").read_text())
    jsonschema.validate(json.loads(outcome.to_json()), schema)
    assert set(outcome.values_frame()["sampled"]) == {True, False}


def test_a_server_that_ignores_ranges_is_left_before_it_sends_the_file(at_hub, sample):
    at_hub.misbehave(fault=WholeFile(), path=f"*{WEIGHTS}")
    outcome = sample(case_of("trained"))
    assert isinstance(outcome, auditor.Unaudited)
    assert outcome.reason is Reason.BAD_RESPONSE
    assert "too far from the start to wait for" in outcome.detail
    assert outcome.fetched.bytes < 300_000


def test_numbers_of_another_commit_are_refused(at_hub, sample):
    fault = Header(name="X-Repo-Commit", value="0" * 40)
    at_hub.misbehave(fault=fault, path=f"*{WEIGHTS}", origin=Origin.HUB, skip=1)
    outcome = sample(case_of("trained"))
    assert isinstance(outcome, auditor.Unaudited)
    assert outcome.reason is Reason.COMMIT_MOVED


def test_models_of_one_repository_share_the_budget(at_hub, tmp_path):
    rng = np.random.default_rng(0)
    parts = {f"part{at}/{WEIGHTS}": rng.standard_normal((512, 512), np.float32) for at in range(6)}
    manifest = {"_class_name": "P", **{f"part{at}": ["transformers", "X"] for at in range(6)}}
    held = {name: write_numbers(tmp_path / name, {"x.weight": one}) for name, one in parts.items()}
    configs = {f"part{at}/{CONFIG}": '{"model_type": "bert"}' for at in range(6)}
    at_hub.add("org/several", {"model_index.json": json.dumps(manifest), **held, **configs})
    plain = auditor.audit("org/several")
    outcome = auditor.audit("org/several", values=True)
    assert len(outcome.parts) == 6
    assert plain.fetched.requests < outcome.fetched.requests <= plain.fetched.requests + 8
    assert outcome.fetched.bytes - plain.fetched.bytes <= 600_000
    assert any(part.values for part in outcome.parts)
