"""The bench of sweeps runs to its end, and what it counts of requests holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benching.sweep_server import NGINX
from support.programs import environment

MODELS = 30

pytestmark = pytest.mark.skipif(
    not Path(NGINX).is_file(), reason="no nginx here (Debian: nginx-light)"
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """One small run: what it printed, and its figures."""
    figures = tmp_path_factory.mktemp("bench") / "figures.json"
    options = ["--runs", "1", "--models", str(MODELS), "--sizes", str(MODELS)]
    options += ["--far-sizes", str(MODELS), "--lists", "3000"]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "benching", "sweep", *options, "--json", str(figures)],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(figures.read_text())


def test_it_prints_both_kinds_of_models_and_the_memory(ended):
    printed, _ = ended
    assert f"{MODELS} models of 20 bases\n" in printed
    assert f"{MODELS} models, all different\n" in printed
    assert f"cold sweep of     {MODELS} models: " in printed
    assert f"memory,     {MODELS} models, all different, far away: " in printed
    assert "list of     3,000 models: " in printed


def test_a_model_costs_its_config_and_its_header_and_the_list_one_request(ended):
    _, figures = ended
    config, redirect, header = 1, 1, 1
    for cold in figures["cold"]:
        assert cold["requests"] == 1 + MODELS * (config + redirect + header)


def test_a_night_without_changes_costs_the_list_alone(ended):
    _, figures = ended
    assert {cold["second_requests"] for cold in figures["cold"]} == {1}


def test_every_side_took_time_and_memory(ended):
    _, figures = ended
    for cold in figures["cold"]:
        (ours,), (peer,), (second,) = (cold[side] for side in ("ours", "peer", "second"))
        assert min(one["cpu"] for one in (ours, peer, second)) > 0
    for sizes in ("memory", "far"):
        assert figures[sizes][str(MODELS)] > 20e6  # of one interpreter
    assert figures["lists"]["3000"]["peak"] > 20e6  # of one
