"""What files contradict by themselves is found whatever the architecture: no config is needed."""

import json
from pathlib import Path

import pytest
from support.checkpoints import config_bytes, expect, stored_by
from support.running import run
from support.sharding import INDEX, alarms, kinds, pointer, reindexed, shard_names, sharded

from auditor import Report, audit

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
    "a class of diffusers": b'{"_class_name": "Kandinsky3UNet"}',
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


@pytest.mark.parametrize("state", STATES)
def test_a_wrong_index_is_found_whatever_the_type(state: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, state)
    sound = audit(str(folder))
    assert kinds(sound) == (["bad-config"] if state == "a broken config" else [])
    assert isinstance(sound, Report) == (state in {"a broken config", "a known class"})
    original = (folder / INDEX).read_bytes()
    for how, spoil in SPOILED.items():
        (folder / INDEX).write_bytes(original)
        spoil(folder)
        outcome = audit(str(folder))
        assert "bad-index" in kinds(outcome), how
        assert outcome.verdict == ("findings" if isinstance(sound, Report) else "unaudited")
        if how == "a total of twice the bytes":
            (wrong,) = (one for one in alarms(outcome) if one.kind == "bad-index")
            assert wrong.reason == (
                f"total_size is {2 * TOTAL:,}, the shards hold {TOTAL:,} bytes of tensors: "
                f"+{TOTAL:,}"
            )


@pytest.mark.parametrize("state", STATES)
def test_a_pointer_or_a_lost_shard_and_a_wrong_total_are_two_findings(
    state: str, tmp_path: Path
) -> None:
    """Without the shards a total cannot be less than a byte a name."""
    folder = folder_of(tmp_path, state)
    original = (folder / INDEX).read_bytes()
    pointer(folder / ONE)
    for pointers, totals in ((1, (0, 2 * TOTAL, 10**12)), (2, (0, 2 * TOTAL, 10**12)), (0, (0, 5))):
        if pointers == 2:
            pointer(folder / TWO)
        for name in (ONE, TWO) if pointers == 0 else ():
            (folder / name).unlink()
        (folder / INDEX).write_bytes(original)
        other = kinds(audit(str(folder)))
        assert other.count("bad-header") == pointers
        assert pointers == 0 or "bad-index" not in other
        for total in totals:
            reindexed(folder, total_size=total)
            assert sorted([*other, "bad-index"]) == kinds(audit(str(folder))), (pointers, total)


@pytest.mark.slow
def test_what_alarms_comes_before_what_could_not_be_audited(
    tmp_path: Path, hub_env: dict[str, str]
) -> None:
    folder = folder_of(tmp_path, "a class that nobody knows")
    assert run(str(folder), env=hub_env).returncode == 3
    reindexed(folder, total_size=0)
    for args, code in (((), 1), (("--fail-on", "never"), 3), (("--ignore", "bad-index"), 3)):
        done = run(str(folder), "--format", "json", *args, env=hub_env)
        outcome = json.loads(done.stdout)
        assert (done.returncode, outcome["verdict"]) == (code, "unaudited")
        assert outcome["reason"] == "unknown-architecture"
        assert outcome["observed"]["parameters"] == BERT.parameters
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
