"""The estimate of a sweep: its requests are those that the sweep of usual models then makes."""

import pytest
from support.running import run
from support.sweep_models import healthy

from auditor.sweep import planning, runner
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.planning import SweepLoad
from auditor.sweep.settings import ModelSelection

OURS = ModelSelection(author="sweep")


@pytest.fixture
def models(at_hub):
    for number in range(7):
        at_hub.add(f"sweep/m{number}", healthy(number))
    return at_hub


def requests(hub):
    """The SweepLoad of the requests that the Hub meters, without those about who pushed."""
    paths = [record.path for record in hub.log if record.origin == "hub"]
    paths = [path for path in paths if "/commits/" not in path]
    files = sum("/resolve/" in path for path in paths)
    hub.reset_log()
    return SweepLoad(api=len(paths) - files, files=files)


@pytest.mark.slow
def test_the_plan_has_the_requests_that_the_sweep_sends(models, settings, monkeypatch):
    ours = settings(OURS)
    assert planning.expected_load(ours) == SweepLoad(models=7, api=1, files=14)
    assert requests(models) == SweepLoad(api=1)  # the list, and nothing else
    assert not ours.output.store.exists()
    runner.sweep(ours, night="n1")
    assert requests(models) == SweepLoad(api=1, files=14)
    before = ours.output.store.read_bytes()
    models.push("sweep/m3", healthy(30))
    assert planning.expected_load(ours) == SweepLoad(models=7, known=6, api=1, files=2)
    newer = current_versions()._replace(catalogue="another")
    monkeypatch.setattr(planning, "current_versions", lambda **_: newer)
    assert planning.expected_load(ours) == SweepLoad(models=7, stored=6, api=1, files=2)
    companions = settings(OURS, companions=True)
    load = planning.expected_load(companions)
    assert load == SweepLoad(models=7, api=8, files=35)  # the most that companion files take
    assert ours.output.store.read_bytes() == before


@pytest.mark.slow
def test_ids_are_counted_without_asking_anybody(models, settings):
    named = settings(ModelSelection(ids=("sweep/m1", "sweep/m2", "sweep/m1")))
    assert planning.expected_load(named) == SweepLoad(models=2, api=2, files=4)
    runner.sweep(named, night="n1")
    models.reset_log()
    assert planning.expected_load(named) == SweepLoad(models=2, known=2, api=2)
    assert models.log == ()


@pytest.mark.slow
def test_three_million_models_are_planned_in_a_line_without_a_request(at_hub, tmp_path):
    done = run("sweep", "--top", "3000000", "--plan", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "3,000,000 models, 3,000,000 to fetch: about 3,000 API requests, 6,000,000 file requests; "
        "101.3 hours with a free token\n"
    )
    assert list(tmp_path.iterdir()) == []
    assert at_hub.log == ()


def test_the_line_counts_what_is_stored_and_divides_by_max_requests():
    load = SweepLoad(models=9, known=3, stored=5, api=1, files=2399)
    assert load.in_words(200) == (
        "9 models, 3 known, 5 with stored headers, 1 to fetch: about 1 API request, "
        "2,399 file requests; 1.0 hours with these --max-requests"
    )
