"""What files contradict by themselves is found whatever the architecture: no config is needed."""

import json
import shutil
from pathlib import Path

import pytest
from support.checkpoints import config_bytes, expect, stored_by
from support.running import run
from support.sharding import INDEX, alarms, kinds, pointer, reindexed, shard_names, sharded

from auditor import Report, audit
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch

BERT = expect("BertModel")
TABLE = {tensor.name: (tensor.dtype, tensor.shape) for tensor in stored_by(BERT)}
TOTAL = 4 * BERT.parameters
ONE, TWO = shard_names(2)

# Nothing can be expected, each time for another reason.
STATES = {
    "a class that nobody knows": config_bytes(architectures=["NoSuch"], model_type="nosuch"),
    "a layout that nobody knows": config_bytes(
        architectures=["BertModel"], quantization_config={"quant_method": "zipnn"}
    ),
    "a class of diffusers": b'{"_class_name": "UNet3DConditionModel"}',
    "no config": None,
    "a broken config": b"{",
    "a known class": config_bytes(architectures=["BertModel"]),
}

SPOILED = {
    "a total of twice the bytes": lambda folder: reindexed(folder, total_size=2 * TOTAL),
    "a total of nothing": lambda folder: reindexed(folder, total_size=0),
    "a name that no shard stores": lambda folder: reindexed(folder, renamed={FIRST: "a.weight"}),
    "a total that is no number": lambda folder: reindexed(folder, total_size="many"),
}
FIRST = next(iter(TABLE))


def folder_of(path: Path, state: str) -> Path:
    return sharded(path / "m", TABLE, STATES[state])


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> str:
    return request.param


def test_healthy_files_raise_no_alarm(state: str, tmp_path: Path) -> None:
    outcome = audit(str(folder_of(tmp_path, state)))
    assert kinds(outcome) == (["bad-config"] if state == "a broken config" else [])
    assert isinstance(outcome, Report) == (state in {"a broken config", "a known class"})


@pytest.mark.parametrize("how", SPOILED)
def test_a_wrong_index_is_found_whatever_the_type(state: str, how: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, state)
    SPOILED[how](folder)
    outcome = audit(str(folder))
    assert "bad-index" in kinds(outcome)
    assert outcome.verdict == ("findings" if isinstance(outcome, Report) else "unaudited")


def test_the_arithmetic_is_that_of_the_headers(state: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, state)
    reindexed(folder, total_size=2 * TOTAL)
    (wrong,) = (one for one in alarms(audit(str(folder))) if one.kind == "bad-index")
    assert wrong.reason == (
        f"total_size is {2 * TOTAL:,}, the shards hold {TOTAL:,} bytes of tensors: +{TOTAL:,}"
    )


@pytest.mark.parametrize("pointers", [(ONE,), (ONE, TWO)], ids=["one pointer", "pointers alone"])
@pytest.mark.parametrize("total", [0, 2 * TOTAL, 10**12])
def test_a_pointer_and_a_wrong_total_are_two_findings(
    state: str, pointers: tuple[str, ...], total: int, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, state)
    for name in pointers:
        pointer(folder / name)
    other = kinds(audit(str(folder)))
    assert other.count("bad-header") == len(pointers)
    assert "bad-index" not in other
    reindexed(folder, total_size=total)
    assert sorted([*other, "bad-index"]) == kinds(audit(str(folder)))


@pytest.mark.parametrize("total", [0, 5])
def test_an_index_alone_cannot_have_less_than_a_byte_a_name(
    state: str, total: int, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, state)
    for name in (ONE, TWO):
        (folder / name).unlink()
    before = kinds(audit(str(folder)))
    reindexed(folder, total_size=total)
    assert kinds(audit(str(folder))) == sorted([*before, "bad-index"])


def test_a_snapshot_gives_the_same_findings(state: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, state)
    pointer(folder / ONE)
    reindexed(folder, total_size=3 * TOTAL, renamed={FIRST: "a.weight"})
    before = audit(str(folder), companions=False)
    file = tmp_path / "m.json"
    file.write_bytes(dump(fetch(str(folder)), "m.json"))
    shutil.rmtree(folder)
    after = audit(str(file))
    assert (after.findings, after.unchecked) == (before.findings, before.unchecked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((), 1),
        (("--fail-on", "error"), 1),
        (("--fail-on", "never"), 3),
        (("--ignore", "bad-index"), 3),
    ],
    ids=["as it is", "errors", "never", "ignored"],
)
def test_what_alarms_comes_before_what_could_not_be_audited(
    args: tuple[str, ...], code: int, tmp_path: Path, hub_env: dict[str, str]
) -> None:
    folder = folder_of(tmp_path, "a class that nobody knows")
    assert run(str(folder), *args, env=hub_env).returncode == 3
    reindexed(folder, total_size=0)
    done = run(str(folder), "--format", "json", *args, env=hub_env)
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["verdict"]) == (code, "unaudited")
    assert (outcome["reason"], outcome["observed"]["parameters"]) == (
        "unknown-architecture",
        BERT.parameters,
    )
    kept = outcome["ignored"] if "--ignore" in args else outcome["findings"]
    assert [one["kind"] for one in kept] == ["bad-index"]


@pytest.mark.slow
def test_the_terminal_shows_both(tmp_path: Path, hub_env: dict[str, str]) -> None:
    folder = folder_of(tmp_path, "no config")
    (folder / INDEX).write_text("{")
    done = run(str(folder), env=hub_env)
    assert done.returncode == 1
    assert "(no-config)" in done.stdout
    assert "; and 1 finding." in " ".join(done.stdout.split())
    assert done.stderr == ""
    assert "error: bad-index (model.safetensors.index.json)" in done.stdout
