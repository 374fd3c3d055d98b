"""The bench runs to its end, and what it counts of requests holds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).with_name("bench.py")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """One small run: what it printed, and its figures."""
    figures = tmp_path_factory.mktemp("bench") / "figures.json"
    sizes = ["--runs", "1", "--layers", "20", "--experts", "2"]
    options = [*sizes, "--markdown", "--json", str(figures)]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, str(BENCH), *options], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(figures.read_text())


def test_it_prints_a_table_for_each_model(ended):
    printed, _ = ended
    assert "**bert-base-chinese: one file of 411,553,788 bytes, 206 tensors**" in printed
    assert "**BertModel of 20 layers: 20 shards, 327 tensors**" in printed
    assert printed.count("| wall time |") == 2


def test_a_single_file_costs_one_request_of_the_api_and_two_of_the_resolver(ended):
    _, figures = ended
    for run in figures["models"][0]["ours"]:
        assert run["api"] == 1
        assert run["requests"] - run["redirects"] - run["api"] <= 2


def test_a_sharded_model_costs_as_many_requests_as_it_has_files_and_one_of_the_api(ended):
    _, figures = ended
    config, index, shards = 1, 1, 20
    for run in figures["models"][1]["ours"]:
        assert run["api"] == 1
        assert run["requests"] - run["redirects"] - run["api"] == config + index + shards


def test_both_sides_read_the_same_tensors(ended):
    _, figures = ended
    single, sharded = figures["models"]
    assert "206 tensors, 102,882,442 parameters stored" in single["ours"][0]["stdout"]
    assert single["peer"][0]["stdout"] == "102882442\n"
    parameters = 11 * 4 + 6 * 4 + 2 * 4 + 2 * 4 + 20 * (8 * 4**2 + 11 * 4) + 4 * 4 + 4
    assert f"327 tensors, {parameters:,} parameters stored" in sharded["ours"][0]["stdout"]
    assert sharded["peer"][0]["stdout"] == f"{parameters}\n"


def test_what_is_beside_json_loads_are_as_many_tensors_as_the_config_implies(ended):
    printed, figures = ended
    # Attention has seven tensors, a layer two norms, a dense or shared feed-forward three, a
    # router two, each of two experts three; around them the embeddings, the last norm, the head.
    attention, norms, mlp = 7, 2, 3
    dense = 3 * (attention + norms + mlp)
    mixed = attention + norms + mlp + 2 + 2 * mlp
    drafting = mixed + 4 + 2  # three norms and a projection, copies of the embeddings and the head
    tensors = dense + 58 * mixed + 3 + drafting
    assert f"**DeepSeek-V3 of 61 layers and 2 experts: {tensors:,} tensors, " in printed
    assert "| both |" in printed
    (once,) = figures["mixture"]["runs"]
    assert min(once.values()) >= 0
    steps = {"the expectation", "matched and reconciled", "both"}
    assert set(figures["mixture"]["ratios"]) == steps
