"""What a sweep will cost, said before any work: the requests are those that it then makes."""

import json
import os
import subprocess
import sys

import measure_store
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import safetensors_bytes
from support.sweep_models import healthy

from auditor.sweep import costs, planning, runner
from auditor.sweep.costs import QUOTAS, CompanionLoad, Quota, SweepLoad, hours_of_requests
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.selection import ModelSelection
from auditor.sweep.workers.budget import Budget

OURS = ModelSelection(author="sweep")
START = "import sys; from auditor.cli import main; sys.argv[0] = 'audit'; main()"


COMPANIONS = {
    "tokenizer.json": b'{"model": {"vocab": {"a": 0}}}',
    "tokenizer_config.json": b"{}",
    "generation_config.json": b"{}",
    "special_tokens_map.json": b"{}",
}


def sharded():
    """A model in two files, and a third that the index does not name."""
    whole = healthy(1)
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    files = {
        shard: safetensors_bytes({f"{shard}.weight": ("F32", (number,))})
        for number, shard in enumerate(shards, 1)
    }
    index = {"metadata": {}, "weight_map": {f"{shard}.weight": shard for shard in shards}}
    beside = {"consolidated.safetensors": whole["model.safetensors"]}
    return {
        "config.json": whole["config.json"],
        "model.safetensors.index.json": json.dumps(index).encode(),
        **files,
        **beside,
    }


@pytest.fixture
def models(at_hub):
    for number in range(7):
        at_hub.add(f"sweep/m{number}", healthy(number))
    at_hub.add("sweep/sharded", sharded())
    at_hub.add("sweep/companions", {**healthy(8), **COMPANIONS})
    at_hub.add("sweep/template", {**healthy(9), "chat_template.jinja": b"{{ messages }}"})
    at_hub.add("sweep/no-weights", {"config.json": b"{}", "README.md": b"hello"})
    at_hub.add("sweep/no-config", {"model.safetensors": healthy(1)["model.safetensors"]})
    return at_hub


def requests(hub):
    """(API, resolver) requests, as the Hub meters them, without those about who pushed."""
    paths = [record.path for record in hub.log if record.origin == "hub"]
    paths = [path for path in paths if "/commits/" not in path]
    resolved = sum("/resolve/" in path for path in paths)
    return len(paths) - resolved, resolved


@pytest.mark.slow
@pytest.mark.parametrize("companions", [False, True])
def test_the_plan_has_the_requests_that_the_sweep_sends(models, settings, companions):
    asked = settings(OURS, companions=companions)
    load = planning.expected_load(asked)
    assert requests(models) == (1, 0)  # the list, and nothing else
    assert not asked.output.store.exists()
    models.reset_log()
    runner.sweep(asked, night="n1")
    more = load.companions if companions else CompanionLoad()
    assert (load.listing + more.listing, load.resolvers + more.reads) == requests(models)
    assert (load.models, load.fetched, load.known) == (12, 12, 0)
    assert load.companions == CompanionLoad(models=2, listing=2, reads=4)


@pytest.mark.slow
def test_the_plan_has_the_bytes_that_companion_files_add_to_a_store(models, settings):
    runner.sweep(settings(OURS), night="n1")
    more = planning.expected_load(settings(OURS)).companions
    asked = settings(OURS, companions=True)
    load = planning.expected_load(asked)
    models.reset_log()
    runner.sweep(asked, night="n2")
    assert requests(models) == (
        load.listing + load.companions.listing,
        load.resolvers + load.companions.reads,
    )
    assert more == CompanionLoad(models=2, listing=2, reads=8)
    assert requests(models) == (1 + more.listing, more.reads)
    # Nothing is stored of the model without weights.
    assert (load.known, load.stored, load.fetched) == (0, 9, 3)
    models.reset_log()
    runner.sweep(asked, night="n3")
    assert requests(models) == (1, 0)


@pytest.mark.slow
def test_what_the_store_has_costs_nothing(models, settings, monkeypatch):
    runner.sweep(settings(OURS), night="n1")
    before = settings(OURS).output.store.read_bytes()
    models.push("sweep/m3", healthy(30))
    load = planning.expected_load(settings(OURS))
    assert (load.models, load.known, load.fetched, load.resolvers) == (12, 11, 1, 2)
    newer = current_versions()._replace(catalogue="another")
    monkeypatch.setattr(planning, "current_versions", lambda **_: newer)
    load = planning.expected_load(settings(OURS))
    # m3 is to be fetched; of the one without weights nothing is stored, and nothing to be had.
    assert (load.known, load.stored, load.resolvers) == (0, 10, 2)
    assert settings(OURS).output.store.read_bytes() == before


@pytest.mark.slow
def test_ids_are_counted_without_asking_anybody(models, settings):
    named = settings(ModelSelection(ids=("sweep/m1", "sweep/m2", "sweep/m1")))
    load = planning.expected_load(named)
    assert (load.models, load.listing, load.resolvers) == (2, 2, 4)
    runner.sweep(named, night="n1")
    models.reset_log()
    load = planning.expected_load(named)
    assert (load.models, load.known, load.listing, load.resolvers) == (2, 2, 2, 0)
    assert models.log == ()


@pytest.mark.slow
def test_three_million_models_are_planned_without_a_request(at_hub, tmp_path):
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", START, "sweep", "--top", "3000000", "--plan"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "3,000 API, 6,000,000 resolver" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []
    assert at_hub.log == ()


@pytest.mark.slow
def test_a_failed_list_is_reported_in_one_line(at_hub, tmp_path):
    del at_hub
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", START, "sweep", "--author", "o", "--plan", "-q"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


class Window:
    """A Hub that counts, and a clock that moves where a budget sleeps."""

    def __init__(self, quota, most=None):
        self.now, self.quota = 0.0, quota
        self.budget = Budget(most, clock=lambda: self.now)

    def rest(self, _wait, step):
        self.now += step


@pytest.mark.slow
@given(windows=st.integers(1, 5), plan=st.sampled_from(QUOTAS[:2]))
def test_the_hours_are_those_that_the_budget_takes(windows, plan):
    window = Window(plan.resolvers)
    usable = plan.resolvers - 50
    left, ends = plan.resolvers, 300.0
    for _ in range(windows * usable):
        turn = window.budget.take("/o/n/resolve/main/config.json", window.rest)
        if window.now >= ends:
            left, ends = plan.resolvers, window.now // 300 * 300 + 300
        left -= 1
        window.budget.note(
            turn,
            200,
            {
                "ratelimit": f'"resolvers";r={left};t={round(ends - window.now)}',
                "ratelimit-policy": f'"fixed window";"resolvers";q={plan.resolvers};w=300',
            },
        )
    last = window.now / 3600  # when the last window's requests go, all at once
    assert hours_of_requests(0, windows * usable, plan) - 300 / 3600 == pytest.approx(
        last, abs=0.01 * windows
    )


@given(
    models=st.integers(0, 10**7),
    known=st.integers(0, 10**7),
    headers=st.integers(0, 10**8),
    most=st.none() | st.integers(1, 10**6),
    companions=st.booleans(),
)
def test_any_load_is_printed_in_80_columns_with_a_row_for_each_plan(
    models, known, headers, most, companions
):
    load = SweepLoad(
        models=models + known,
        known=known,
        listing=models,
        texts=models,
        headers=headers,
        companions=CompanionLoad(models=models, listing=models, reads=3 * models),
    )
    lines = costs.cost_estimate(load, most, companions=companions).splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if line.startswith(tuple(quota.plan for quota in QUOTAS))]
    assert len(rows) == 6
    assert ("--max-requests" in costs.cost_estimate(load, most)) == (most is not None)


@pytest.mark.slow
def test_the_bytes_of_the_estimate_are_those_that_a_store_takes():
    found = measure_store.measured(fine_tunes=50, bases=4)
    assert found.alike == pytest.approx(costs.ALIKE, rel=0.1)
    assert found.unlike == pytest.approx(costs.UNLIKE, rel=0.1)
    assert found.night == pytest.approx(costs.NIGHT, rel=0.1)


def test_a_free_token_audits_eight_models_a_second():
    free = Quota(plan="free", api=1_000, resolvers=5_000)
    assert free in QUOTAS
    an_hour = 8.25 * 3600  # 4,950 of 5,000 requests in 300 seconds, two a model
    assert hours_of_requests(0, 2 * int(an_hour), free) == pytest.approx(1)
