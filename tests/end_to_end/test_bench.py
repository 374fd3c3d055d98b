"""The bench runs to its end, and what it counts of requests holds."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benching import formats, peers
from benching.measure import Run
from support.programs import TOOLS, environment

BENCH = TOOLS / "bench.py"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """One small run: what it printed, and its figures."""
    folder = tmp_path_factory.mktemp("bench")
    figures = folder / "figures.json"
    sizes = ["--runs", "1", "--layers", "20", "--experts", "2", "--peers", str(folder / "none")]
    options = [*sizes, "--markdown", "--json", str(figures)]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, str(BENCH), *options],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(figures.read_text())


def test_it_prints_a_table_for_each_model(ended):
    printed, _ = ended
    assert "**bert-base-chinese: one file of 411,553,788 bytes, 206 tensors**" in printed
    assert "**BertModel of 20 layers: 20 shards, 327 tensors**" in printed
    assert printed.count("\n| wall time |") == 2
    assert printed.count("\n|  | says | wall time |") == 3


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


# --- other formats, other tools -------------------------------------------------------------------

LLAMA_2, LLAMA_3 = 6_738_415_616, 8_030_261_248  # as published; test_published_figures.py


def sides(figures, number):
    """By the tool's name without its version."""
    return {side["name"].split()[0]: side for side in figures["formats"][number]["sides"]}


def test_every_format_is_counted_as_the_model_was_published(ended):
    _, figures = ended
    models = [one["model"] for one in figures["formats"]]
    assert models == [formats.TORCH, formats.GGUF, formats.GPTQ]
    said = [sides(figures, number)["audit"]["says"] for number in range(3)]
    assert said == [LLAMA_2, LLAMA_3, LLAMA_2]


def test_a_format_is_served_with_all_its_tensors_in_the_bytes_that_its_title_tells(ended):
    _, figures = ended
    torch, gguf, gptq = (
        sides(figures, number)["audit"]["runs"][0]["stdout"] for number in range(3)
    )
    plain = 3 + 32 * 9
    assert f"2 files, {plain + 32} tensors in {2 * LLAMA_2 + 32 * 64 * 4:,} bytes" in torch
    assert f"1 file, {plain + 1} tensors in 4,9" in gguf
    assert f"1 file, {plain + 3 * 7 * 32} tensors in 3,89" in gptq


def test_a_format_costs_few_requests_and_none_of_the_weights(ended):
    _, figures = ended
    answered = [
        run["requests"] - run["redirects"] - run["api"]
        for number in range(3)
        for run in sides(figures, number)["audit"]["runs"]
    ]
    config, index, shards, ends, growing, header = 1, 1, 2, 2, 4, 2
    assert answered == [config + index + shards * ends, growing, config + header]
    torch, gguf, gptq = (sides(figures, n)["audit"]["runs"][0]["bytes"] for n in range(3))
    assert max(torch, gptq) < 500_000
    assert gguf < 2 * 7_800_000


def test_a_tool_that_counts_elements_is_wrong_on_packed_weights_and_that_is_shown(ended):
    printed, figures = ended

    # A linear of (out, in): in/8 * out words, and for each 128 inputs out/8 words and out scales;
    # and of each input the group.
    def packed(outputs, inputs):
        return outputs * inputs // 8 + inputs // 128 * (outputs // 8 + outputs) + inputs

    layer = 4 * packed(4096, 4096) + 2 * packed(11_008, 4096) + packed(4096, 11_008) + 2 * 4096
    elements = 2 * 32_000 * 4096 + 4096 + 32 * layer
    (version,) = [line for line in printed.splitlines() if f"| {elements:,} |" in line]
    assert version.startswith("| huggingface_hub ")
    assert sides(figures, 2)["huggingface_hub"]["says"] == elements


def test_a_tool_that_cannot_read_a_format_is_quoted(ended):
    printed, figures = ended
    for number in (0, 1):
        assert sides(figures, number)["huggingface_hub"]["says"] is None
    lines = [line for line in printed.splitlines() if "is not a safetensors repo" in line]
    assert [line.split(" on ")[1].split(":")[0] for line in lines] == [formats.TORCH, formats.GGUF]


def test_a_tool_that_is_not_installed_is_skipped_with_one_line(ended):
    printed, _ = ended
    lines = [line for line in printed.splitlines() if line.startswith("Not measured")]
    hf_mem, gguf = lines
    assert "hf-mem; `pip install --target " in hf_mem
    assert "@huggingface/gguf; `npm install --prefix " in gguf


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, peers.Peer]:
    """Both peers as far as they are looked at, by name."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    facts = tmp_path / "hf-mem" / "hf_mem-1.2.dist-info" / "METADATA"
    package = tmp_path / "node_modules" / "@huggingface" / "gguf" / "package.json"
    for path, content in ((facts, "Name: hf-mem\nVersion: 1.2\n"), (package, '{"version": "3.4"}')):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    found, absent = peers.find(tmp_path)
    assert absent == ()
    return {peer.name: peer for peer in found}


def test_a_tool_that_is_given_a_url_is_asked_about_gguf_alone(installed):
    command = installed["@huggingface/gguf 3.4"].command
    assert command("o/n", "http://h/o/n/m.gguf")[-1] == "http://h/o/n/m.gguf"
    assert command("o/n", "http://h/o/n/model.safetensors") is None
    assert command("o/n", None) is None


def test_parameters_are_summed_over_the_components_of_every_file(installed):
    two = {"components": {"a": {"param_count": 3}, "b": {"param_count": 4}}}
    says = installed["hf-mem 1.2"].says
    assert says(json.dumps({"memory": {"bytes": 9, **two}})) == 7
    assert says(json.dumps({"memory": {"m.gguf": two, "n.gguf": two}})) == 14


def test_the_ratio_is_of_pairs_and_there_is_none_for_what_read_nothing():
    def took(wall):
        whole = dict.fromkeys(("cpu", "memory", "requests", "redirects", "api", "bytes"), 1)
        return Run(wall=wall, stdout="", **whole)

    compared = formats.Compared(
        title="t",
        model="o/n",
        sides=(
            formats.Side(name="audit", says=5, runs=(took(1.0), took(3.0), took(2.0))),
            formats.Side(name="slow", says=6, runs=(took(2.0), took(3.0), took(1.0))),
            formats.Side(name="blind", says=None, runs=(), refusal="no such file"),
        ),
    )
    cells = {row[0]: row[1:4] for row in compared.rows()}
    assert cells == {
        "audit": ("5", "2,000 ms", "-"),
        "slow": ("6", "2,000 ms", "1.00 (0.50 to 2.00)"),
        "blind": ("nothing", "-", "-"),
    }
    assert {len(row) for row in compared.rows()} == {len(compared.headings)}
    assert compared.notes() == ["blind on o/n: no such file"]
    assert set(compared.as_json()["ratios"]) == {"slow"}
