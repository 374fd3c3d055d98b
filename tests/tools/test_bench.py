"""The bench runs to its end, and what it counts of requests and parameters holds."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from benching import checkpoints, headers
from benching.checkpoints import Checkpoint
from benching.comparing import Compared, Side
from benching.measure import Run
from benching.server import serving
from support import deepseek_v3
from support.hub.client import ask
from support.programs import ROOT, environment

SPEED = (ROOT / "docs" / "speed.md").read_text()
LAYERS, EXPERTS = 20, 8


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """One small run: what it printed, and its figures by the checkpoint's id."""
    folder = tmp_path_factory.mktemp("bench")
    figures = folder / "figures.json"
    sizes = ["--runs", "1", "--layers", str(LAYERS), "--experts", str(EXPERTS)]
    options = [*sizes, "--peers", str(folder / "none"), "--markdown", "--json", str(figures)]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "benching", *options],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())["checkpoints"]
    return done.stdout, {one["model"]: one for one in found}


def side(figures: dict[str, Any], model: str, tool: str = "audit") -> dict[str, Any]:
    """What a tool did on a checkpoint; tools are named without their versions."""
    (found,) = [one for one in figures[model]["sides"] if one["name"].split()[0] == tool]
    return found


def runs(figures: dict[str, Any], model: str, tool: str = "audit") -> list[dict[str, Any]]:
    """Its runs, at every distance."""
    return [run for runs in side(figures, model, tool)["runs"] for run in runs]


def answered(run: dict[str, Any]) -> int:
    """Requests for files, each with the redirects that it took."""
    return run["requests"] - run["redirects"] - run["api"]


SAFETENSORS = (checkpoints.BERT, checkpoints.LLAMA, checkpoints.DEEPSEEK, checkpoints.MANY_LAYERS)
PACKED = (checkpoints.TORCH, checkpoints.GGUF, checkpoints.GPTQ)


def test_it_prints_every_checkpoint_and_safetensors_at_two_distances(ended):
    printed, figures = ended
    assert tuple(figures) == (*SAFETENSORS, *PACKED)
    far = "|  | says | at 0 ms | audit by it | at 50 ms | audit by it | CPU time | peak memory |"
    near = "|  | says | at 0 ms | audit by it | CPU time | peak memory | requests | body bytes |"
    _, tables, notes = re.split(f"{headers.BEGIN}|{headers.END}", printed)
    first, second = tables.split(near)
    assert (first.count(far), second.count(far)) == (1, 0)
    for one in figures.values():
        at_two = one["model"] in SAFETENSORS
        assert f"\n| **{one['title']}** |" in (first if at_two else second)
        assert one["distances"] == ([0.0, 0.05] if at_two else [0.0])
    assert "Medians of 1 runs" in notes


def test_the_readme_has_a_place_for_the_tables():
    assert re.search(f"\n{headers.BEGIN}\n\n(\\|.*\n|\n)+{headers.END}\n", SPEED)


def test_answers_are_late_while_a_wait_is_set():
    with serving(layers=1, experts=EXPERTS) as served:
        faults = []
        for seconds in (0.0, 0.001, 0.0):
            served.wait(seconds)
            for path in ("config.json", "model.safetensors"):
                ask(f"{served.url}/{checkpoints.BERT}/resolve/main/{path}", method="HEAD")
            faults.append([record.fault for record in served.log()])
    assert faults == [[None] * 2, ["Late"] * 2, [None] * 2]


def test_a_single_file_costs_one_request_of_the_api_and_two_of_the_resolver(ended):
    _, figures = ended
    for run in runs(figures, checkpoints.BERT):
        assert run["api"] == 1
        assert answered(run) <= 2


def test_a_sharded_model_costs_as_many_requests_as_it_has_files_and_one_of_the_api(ended):
    _, figures = ended
    config, index, in_vain = 1, 1, 1  # the last: the weights of a plain model
    for model, shards in ((checkpoints.LLAMA, 4), (checkpoints.MANY_LAYERS, checkpoints.SHARDS)):
        for run in runs(figures, model):
            assert run["api"] == 1
            assert answered(run) == config + index + shards + in_vain


# --- what is served is what was published -----------------------------------------------------

LLAMA_2, LLAMA_3 = 6_738_415_616, 8_030_261_248  # test_published_figures.py


def test_deepseek_v3_is_served_with_the_figures_that_the_hub_shows_of_it():
    (one,) = [one for one in checkpoints.listed() if one.model == checkpoints.DEEPSEEK]
    # By dtype: BF16 and F8_E4M3; those in F32 are scales, and 256 biases of each of 59 routers.
    assert one.parameters == 3_918_786_560 + 680_571_043_840
    assert one.others == (deepseek_v3.ELEMENTS, one.parameters + 59 * 256)
    assert one.title == "DeepSeek-V3: 163 shards, 91,991 tensors in fp8 with scales"


def test_every_tool_reports_the_parameters_or_elements_that_are_served(ended):
    _, figures = ended
    every = (*checkpoints.listed(LAYERS, EXPERTS), *checkpoints.packed())
    for one in every:
        assert side(figures, one.model)["says"] == one.parameters
        if one.model not in {checkpoints.TORCH, checkpoints.GGUF}:
            says = side(figures, one.model, "huggingface_hub")["says"]
            assert says in (one.parameters, *one.others)
    published = [figures[model]["parameters"] for model in (checkpoints.LLAMA, *PACKED)]
    assert published == [LLAMA_3, LLAMA_2, LLAMA_3, LLAMA_2]
    assert figures[checkpoints.MANY_LAYERS]["parameters"] == 44 + 24 + 8 + 8 + 20 * 172 + 20


def test_a_checkpoint_is_served_with_all_its_tensors(ended):
    _, figures = ended
    stdout = {model: runs(figures, model)[0]["stdout"] for model in figures}
    read = {model: " ".join(said.split()) for model, said in stdout.items()}
    # A layer: attention 5 linears in fp8 and 2 norms, 2 norms around; a dense one 3 linears more;
    # one of experts the router, 3 linears of each expert, shared or not.
    dense = 5 + 2 + 2 + 3
    mixed = 5 + 2 + 2 + 1 + (EXPERTS + 1) * 3
    plain = 3 + 32 * 9
    served = {
        checkpoints.BERT: ("1 file, 392 MiB", 202),
        checkpoints.LLAMA: ("4 files, 15.0 GiB", plain),
        checkpoints.DEEPSEEK: (" files, ", 3 + 3 * dense + 58 * mixed),
        checkpoints.MANY_LAYERS: ("20 files, ", 327),
        checkpoints.TORCH: ("2 files, 12.6 GiB", plain),
        checkpoints.GGUF: ("1 file, 4.5", plain),
        checkpoints.GPTQ: ("1 file, 3.6", plain),
    }
    for model, (files, needed) in served.items():
        assert files in read[model]
        assert f"OK All {needed:,} tensors that" in read[model]


def test_a_format_costs_few_requests_and_reads_no_weights(ended):
    _, figures = ended
    torch, gguf, gptq = (runs(figures, model)[0] for model in PACKED)
    config, index, shards, ends, growing, header = 1, 1, 2, 2, 4, 2
    assert answered(torch) == config + index + shards * ends + 1  # in vain, of a plain model
    assert (answered(gguf), answered(gptq)) == (growing + 2, config + header)
    assert max(torch["bytes"], gptq["bytes"]) < 500_000
    assert gguf["bytes"] < 2 * 7_800_000


def test_a_tool_that_counts_elements_is_shown_as_it_counts(ended):
    printed, figures = ended
    (elements,) = figures[checkpoints.GPTQ]["others"]
    assert elements < LLAMA_2 // 5
    (line,) = [line for line in printed.splitlines() if f"| {elements:,} |" in line]
    assert line.startswith("| huggingface_hub ")


def test_a_tool_that_cannot_read_a_format_is_quoted(ended):
    printed, figures = ended
    for model in (checkpoints.TORCH, checkpoints.GGUF):
        assert side(figures, model, "huggingface_hub")["says"] is None
    lines = [line for line in printed.splitlines() if "is not a safetensors repo" in line]
    models = [line.split(" on ")[1].split(":")[0] for line in lines]
    assert models == [checkpoints.TORCH, checkpoints.GGUF]


# --- other tools ------------------------------------------------------------------------------


def test_a_tool_that_is_not_installed_is_skipped_with_one_line(ended):
    printed, _ = ended
    lines = [line for line in printed.splitlines() if line.startswith("Not measured")]
    hf_mem, hub, gguf = lines
    assert "hf-mem; `pip install --target " in hf_mem
    assert "@huggingface/hub; `npm install --prefix " in hub
    assert "@huggingface/gguf; `npm install --prefix " in gguf


def test_the_ratio_is_of_pairs_and_empty_for_a_tool_that_read_nothing():
    def took(wall):
        whole = dict.fromkeys(("cpu", "memory", "requests", "redirects", "api", "bytes"), 1)
        return Run(wall=wall, stdout="", **whole)

    compared = Compared(
        checkpoint=Checkpoint("o/n", "t", 5, (6,)),
        distances=(0.0, 0.05),
        sides=(
            Side(name="audit", says=5, runs=((took(1.0), took(3.0), took(2.0)), (took(4.0),) * 3)),
            Side(name="slow", says=6, runs=((took(2.0), took(3.0), took(1.0)), (took(8.0),) * 3)),
            Side(name="odd", says=7, runs=((took(2.0),) * 3, (took(8.0),) * 3)),
            Side(name="blind", says=None, runs=(), refusal="no such file"),
        ),
    )
    cells = {row[0]: row[1:6] for row in compared.rows()}
    assert cells == {
        "audit": ("5", "2,000 ms", "-", "4,000 ms", "-"),
        "slow": ("6", "2,000 ms", "1.00 (0.50 to 2.00)", "8,000 ms", "0.50"),
        "odd": ("7", "2,000 ms", "1.00 (0.50 to 1.50)", "8,000 ms", "0.50"),
    }
    assert {len(row) for row in compared.rows()} == {len(compared.headings)}
    assert compared.notes() == ["odd on o/n: 7 is wrong", "blind on o/n: no such file"]
    assert set(compared.as_json()["ratios"]) == {"slow", "odd"}
