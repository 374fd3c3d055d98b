"""Whole nights against a Hub on loopback: what is planted is found, and nothing is asked twice."""

import json

import pytest
from support.builders import safetensors_bytes
from support.hub import (
    OFTEN_SEEN,
    Drip,
    EndlessBody,
    Quota,
    ServerError,
    Sparse,
    Stall,
    TooMany,
)
from support.sweep_models import alarms, healthy, planted

from auditor.errors import SourceError
from auditor.sweep import runner
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.settings import ModelSelection
from auditor.sweep.store.reading import Store

OURS = ModelSelection(author="sweep")
_START = (90_000_000).to_bytes(8, "little") + b'{"' + b"a" * 100_000
HUGE = {"config.json": b"{}", "model.safetensors": Sparse(_START, 10**9)}  # a header of 90 MB


def add(hub, count):
    """So many models on the Hub; the planted fault of each, by id."""
    faults = {}
    for name, files, fault in planted(count):
        hub.add(name, files)
        faults[name] = fault
    return faults


def results(settings, night):
    with Store.open(settings.output.store) as store:
        return {one.model: one for one in store.results(night)}


def found(settings, night):
    """Model -> kinds of alarms, and None where it was not audited."""
    return {
        name: alarms(one) if one.verdict in {"clean", "findings"} else None
        for name, one in results(settings, night).items()
    }


def as_planted(faults):
    return {name: {fault} if fault else set() for name, fault in faults.items()}


def asked(hub):
    """What was asked of the Hub, without what tells one model from another."""
    return {"/api/models" if r.path == "/api/models" else r.path.split("/")[-1] for r in hub.log}


def test_planted_faults_are_found_and_nothing_else(at_hub, settings):
    faults = add(at_hub, 84)
    assert len(set(faults.values())) == 9
    swept = runner.sweep(settings(OURS), night="n1")
    assert found(settings(OURS), "n1") == as_planted(faults)
    assert (swept.models, swept.audited) == (84, 84)
    assert {record.status for record in at_hub.log} == {200, 206, 302}
    broken = sum(fault is not None for fault in faults.values())  # who pushed these is asked
    assert len(at_hub.log) == 1 + 3 * 84 + broken


def test_planted_faults_are_found_with_a_tenth_of_all_answers_spoilt(at_hub, settings):
    faults = add(at_hub, 250)
    assert len(set(faults.values())) == 9
    spoilt = (*OFTEN_SEEN, Stall(), Stall(after=1))
    at_hub.misbehave_at_random(rate=0.1, seed=5, faults=spoilt)
    runner.sweep(settings(OURS, at_once=32), night="n1")
    assert found(settings(OURS), "n1") == as_planted(faults)
    spoiling = [record.fault for record in at_hub.log if record.fault]
    assert len(spoiling) > 60
    assert set(spoiling) == {type(one).__name__ for one in spoilt}


def test_an_unchanged_night_costs_list_requests_alone(at_hub, settings):
    add(at_hub, 30)
    runner.sweep(settings(OURS), night="n1")
    at_hub.reset_log()
    swept = runner.sweep(settings(OURS), night="n2")
    assert asked(at_hub) == {"/api/models"}
    assert (swept.models, swept.audited) == (30, 0)
    first, second = (results(settings(OURS), night) for night in ("n1", "n2"))
    assert {name: one.outcome for name, one in first.items()} == {
        name: one.outcome for name, one in second.items()
    }


def test_a_commit_that_moved_is_audited_anew_and_no_other(at_hub, settings):
    add(at_hub, 12)
    runner.sweep(settings(OURS), night="n1")
    at_hub.push("sweep/m00003", healthy(3))
    at_hub.reset_log()
    swept = runner.sweep(settings(OURS), night="n2")
    assert swept.audited == 1
    assert {record.path.split("/")[2] for record in at_hub.log if "resolve" in record.path} == {
        "m00003"
    }
    assert found(settings(OURS), "n1")["sweep/m00003"] == {"missing"}
    assert found(settings(OURS), "n2")["sweep/m00003"] == set()


def test_a_new_version_audits_what_is_stored_and_fetches_nothing(at_hub, settings, monkeypatch):
    faults = add(at_hub, 30)
    runner.sweep(settings(OURS), night="n1")
    newer = current_versions()._replace(catalogue="another")
    monkeypatch.setattr(runner, "current_versions", lambda **_: newer)
    at_hub.reset_log()
    swept = runner.sweep(settings(OURS), night="n2")
    assert asked(at_hub) == {"/api/models"}
    assert swept.audited == 30
    assert found(settings(OURS), "n2") == as_planted(faults)
    before, after = (results(settings(OURS), night) for night in ("n1", "n2"))
    for name, one in before.items():
        free = {"requests": 0, "bytes": 0, "seconds": 0.0}
        assert {**one.outcome, "fetched": free} == {**after[name].outcome, "fetched": free}
    assert {one.outcome["fetched"]["requests"] for one in after.values()} == {0}


def test_one_slow_huge_gated_or_hostile_model_never_stops_the_others(at_hub, settings):
    faults = add(at_hub, 20)
    at_hub.add("sweep/gated", healthy(1), gated="manual")
    at_hub.add("sweep/no-config", {"model.safetensors": healthy(1)["model.safetensors"]})
    at_hub.add("sweep/empty", {"README.md": b""})
    at_hub.add("sweep/torch-alone", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    for name in ("slow", "stalls", "endless", "moves"):
        at_hub.add(f"sweep/{name}", healthy(1))
    at_hub.add("sweep/huge", HUGE)
    at_hub.misbehave(path="/sweep/slow/*", fault=Drip(seconds=0.2))
    at_hub.misbehave(path="/sweep/stalls/*", fault=Stall())
    at_hub.misbehave(path="/sweep/endless/*", fault=EndlessBody())
    swept = runner.sweep(settings(OURS, deadline=2.0, max_bytes=4_000_000), night="n1")
    observed = results(settings(OURS), "n1")
    expected = {
        "sweep/gated": "gated",
        "sweep/no-config": "no-config",
        "sweep/empty": "empty-repo",
        "sweep/slow": "timed-out",
        "sweep/stalls": "timed-out",
        "sweep/endless": "too-large",
        "sweep/huge": "too-large",
        "sweep/moves": None,
    }
    assert {name: observed[name].reason for name in expected} == expected
    usual = {name: alarms(observed[name]) for name in faults}
    assert usual == as_planted(faults)
    assert swept.alarms.unaudited >= 7


def test_reasons_that_pass_are_tried_again_and_others_are_not(at_hub, settings):
    add(at_hub, 2)
    at_hub.add("sweep/gated", healthy(1), gated="manual")
    at_hub.add("sweep/away", healthy(1))
    at_hub.add("sweep/huge", HUGE)
    at_hub.misbehave(path="/sweep/away/*", fault=Stall())
    runner.sweep(settings(OURS, deadline=1.0), night="n1")
    at_hub.behave()
    at_hub.reset_log()
    runner.sweep(settings(OURS), night="n2")
    assert {record.path.split("/")[2] for record in at_hub.log if "resolve" in record.path} == {
        "away",
        "gated",
    }
    first, second = (results(settings(OURS), night) for night in ("n1", "n2"))
    assert (first["sweep/away"].reason, second["sweep/away"].reason) == ("timed-out", None)
    assert first["sweep/huge"].reason == "too-large"
    assert first["sweep/huge"].outcome == second["sweep/huge"].outcome


def test_a_sweep_within_a_small_quota_waits_is_never_refused_and_no_wait_counts(at_hub, settings):
    faults = add(at_hub, 20)
    at_hub.limit(Quota(api=50, resolvers=25, window=3))
    runner.sweep(settings(OURS, deadline=2.0), night="n1")
    assert found(settings(OURS), "n1") == as_planted(faults)
    assert 429 not in {record.status for record in at_hub.log}


def test_a_refusal_that_outlasts_the_deadline_is_waited_for_all_the_same(at_hub, settings):
    faults = add(at_hub, 2)
    at_hub.misbehave(fault=TooMany(reset=2), path="*config.json", times=1)
    runner.sweep(settings(OURS, deadline=1.0), night="n1")
    assert found(settings(OURS), "n1") == as_planted(faults)


def test_a_failed_list_is_an_error_and_the_night_can_continue(at_hub, settings):
    add(at_hub, 3)
    at_hub.misbehave(path="/api/models", fault=ServerError())
    with pytest.raises(SourceError, match="answered 500"):
        runner.sweep(settings(OURS, deadline=60.0), night="n1")
    at_hub.behave()
    assert runner.sweep(settings(OURS), night="n1").models == 3


def test_an_adapter_is_audited_with_the_config_of_its_base(at_hub, settings):
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 2,
        "vocab_size": 40,
        "n_positions": 10,
    }
    lora = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "org/base",
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ["c_attn"],
        "fan_in_fan_out": True,
    }
    below = "base_model.model.transformer.h.0.attn.c_attn"
    tensors = {
        f"{below}.lora_A.weight": ("F32", (2, 8)),
        f"{below}.lora_B.weight": ("F32", (24, 2)),
    }
    at_hub.add("org/base", {"config.json": json.dumps(config).encode()})
    files = {
        "adapter_config.json": json.dumps(lora).encode(),
        "adapter_model.safetensors": safetensors_bytes(tensors),
    }
    at_hub.add("sweep/lora", files)
    at_hub.add(
        "sweep/orphan",
        {
            **files,
            "adapter_config.json": json.dumps(
                lora | {"base_model_name_or_path": "org/gone"}
            ).encode(),
        },
    )
    runner.sweep(settings(OURS), night="n1")
    said = results(settings(OURS), "n1")
    assert said["sweep/lora"].verdict == "clean"
    assert said["sweep/lora"].outcome["observed"]["parameters"] == 2 * (8 + 24)
    assert (said["sweep/orphan"].verdict, said["sweep/orphan"].reason) == ("unaudited", "not-found")
