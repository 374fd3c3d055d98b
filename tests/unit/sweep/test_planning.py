"""The estimate of a sweep: its requests are those that the sweep then makes."""

import json
import os
import subprocess
import sys

import pytest
from support.builders import safetensors_bytes
from support.sweep_models import healthy

from auditor.sweep import planning, runner
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.planning import SweepLoad
from auditor.sweep.settings import ModelSelection

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
    assert (load.api, load.files) == requests(models)
    assert (load.models, load.fetched, load.known) == (12, 12, 0)


@pytest.mark.slow
def test_what_the_store_has_costs_nothing(models, settings, monkeypatch):
    runner.sweep(settings(OURS), night="n1")
    before = settings(OURS).output.store.read_bytes()
    models.push("sweep/m3", healthy(30))
    assert planning.expected_load(settings(OURS)) == SweepLoad(models=12, known=11, api=1, files=2)
    newer = current_versions()._replace(catalogue="another")
    with monkeypatch.context() as patch:
        patch.setattr(planning, "current_versions", lambda **_: newer)
        load = planning.expected_load(settings(OURS))
    # m3 is fetched again; nothing is stored of the model without weights.
    assert load == SweepLoad(models=12, stored=10, api=1, files=2)
    assert settings(OURS).output.store.read_bytes() == before
    asked = settings(OURS, companions=True)  # reads two models with their companions again
    load = planning.expected_load(asked)
    models.reset_log()
    runner.sweep(asked, night="n2")
    assert (load.api, load.files) == requests(models)
    assert (load.known, load.stored, load.fetched) == (0, 8, 4)


@pytest.mark.slow
def test_ids_are_counted_without_asking_anybody(models, settings):
    named = settings(ModelSelection(ids=("sweep/m1", "sweep/m2", "sweep/m1")))
    assert planning.expected_load(named) == SweepLoad(models=2, api=2, files=4)
    runner.sweep(named, night="n1")
    models.reset_log()
    assert planning.expected_load(named) == SweepLoad(models=2, known=2, api=2)
    assert models.log == ()


def plan(tmp_path, *options, **env):
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", START, "sweep", *options, "--plan"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **env},
    )


@pytest.mark.slow
def test_three_million_models_are_planned_in_a_line_without_a_request(at_hub, tmp_path):
    done = plan(tmp_path, "--top", "3000000")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "3,000,000 models, 3,000,000 to fetch: 3,000 API requests, 6,000,000 file requests; "
        "101.3 hours with a free token\n"
    )
    assert list(tmp_path.iterdir()) == []
    assert at_hub.log == ()


@pytest.mark.slow
def test_a_failed_list_is_reported_in_one_line(at_hub, tmp_path):
    del at_hub
    done = plan(tmp_path, "--author", "o", "-q", HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


def test_the_line_counts_what_is_stored_and_divides_by_max_requests():
    load = SweepLoad(models=9, known=3, stored=5, api=1, files=2)
    assert load.in_words(36).startswith(
        "9 models, 3 known, 5 with stored headers, 1 to fetch: 1 API request, 2 file requests; "
    )
    assert SweepLoad(files=2400).in_words(200).endswith("; 1.0 hours with these --max-requests")
