"""A partial upload, known by the index or by the numbers in the names of the files."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.checkpoints import TINY, stored_by
from support.sharding import CONFIG, INDEX, Table, alarms, bytes_of, shard_names, write
from support.torch_files import torch_bytes

from auditor import Report, Unaudited, audit
from auditor.analytic import catalogue, read_config
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch

TORCH_INDEX = "pytorch_model.bin.index.json"
LLAMA = {
    "model_type": "llama",
    "vocab_size": 12,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
}
CONFIGS: Mapping[str, dict] = {
    "BertModel": {**TINY, "num_hidden_layers": 4, "architectures": ["BertModel"]},
    "LlamaForCausalLM": {**LLAMA, "architectures": ["LlamaForCausalLM"]},
}


@pytest.fixture(params=sorted(CONFIGS))
def config(request, tmp_path) -> dict:
    values = CONFIGS[request.param]
    (tmp_path / CONFIG).write_text(json.dumps(values))
    return values


def runs(config: dict, names: list[str]) -> dict[str, Table]:
    """The model's tensors in as many files, one run of layers after another."""
    read = read_config(CONFIG, json.dumps(config).encode())
    tensors = stored_by(catalogue.expect(read, config["architectures"][0]))
    tensors.sort(key=lambda one: one.name)
    length = -(-len(tensors) // len(names))
    return {
        name: {
            one.name: (one.dtype or "", one.shape or ())
            for one in tensors[at * length : (at + 1) * length]
        }
        for at, name in enumerate(names)
    }


def put(folder: Path, tables: Mapping[str, Table], index: str | None = None) -> None:
    """Write the files, and an index of them if it has a name."""
    for name, table in tables.items():
        if name.endswith(".bin"):
            (folder / name).write_bytes(torch_bytes(dict(table)))
        else:
            write(folder / name, table)
    if index:
        weight_map = {key: name for name, table in tables.items() for key in table}
        total = {"total_size": sum(map(bytes_of, tables.values()))}
        (folder / index).write_text(json.dumps({"metadata": total, "weight_map": weight_map}))


def without(tables: Mapping[str, Table], *numbers: int) -> dict[str, Table]:
    return {name: table for at, (name, table) in enumerate(tables.items(), 1) if at not in numbers}


def cause_of(folder: Path, *words: str, kinds: set[str]) -> None:
    """Expect that a partial upload explains all alarms, in these words."""
    outcome = audit(str(folder))
    assert {finding.kind for finding in alarms(outcome)} == kinds
    [diagnosis] = outcome.diagnosis
    assert diagnosis.cause == "partial-upload"
    assert len(diagnosis.findings) == len(alarms(outcome))
    for word in words:
        assert word in diagnosis.summary + diagnosis.fix


NUMBERED = {
    "safetensors": (shard_names(9), INDEX),
    "torch": (shard_names(9, "pytorch_model", "bin"), TORCH_INDEX),
}


@pytest.mark.parametrize("lost", [(1, 8, 9), (4,), (7, 8, 9)])
@pytest.mark.parametrize("names", NUMBERED)
def test_shards_that_a_consistent_index_leaves_out_were_not_uploaded(tmp_path, config, names, lost):
    files, index = NUMBERED[names]
    put(tmp_path, without(runs(config, files), *lost), index)
    absent = [files[number - 1] for number in lost]
    cause_of(tmp_path, *absent, f"{index} does not name", kinds={"missing"})


@pytest.mark.parametrize("names", NUMBERED)
def test_shards_without_an_index_have_gaps_in_their_numbers(tmp_path, config, names):
    files, index = NUMBERED[names]
    put(tmp_path, without(runs(config, files), 4))
    cause_of(tmp_path, files[3], index, kinds={"bad-index", "missing"})


@pytest.mark.parametrize("names", NUMBERED)
def test_complete_shards_without_an_index_lack_the_index_alone(tmp_path, config, names):
    files, index = NUMBERED[names]
    put(tmp_path, runs(config, files))
    cause_of(tmp_path, "the 9 files are there", index, kinds={"bad-index"})


@pytest.mark.parametrize(
    ("names", "lost", "word"),
    [
        (["model-1.safetensors", "model-2.safetensors", "model-3.safetensors"], 2, "model-2."),
        (["model.0.safetensors", "model.1.safetensors", "model.2.safetensors"], 2, "model.1."),
        (["model-01.safetensors", "model-02.safetensors", "model-03.safetensors"], 3, "lack"),
        (["model_a.safetensors", "model_b.safetensors", "model_c.safetensors"], 2, "lack"),
    ],
)
def test_files_without_an_index_and_a_total_lack_a_file(tmp_path, config, names, lost, word):
    put(tmp_path, without(runs(config, names), lost))
    cause_of(tmp_path, word, INDEX, kinds={"bad-index", "missing"})


def test_two_copies_of_a_model_are_not_its_shards(tmp_path, config):
    [table] = runs(config, ["model_best.safetensors"]).values()
    put(tmp_path, {"model_best.safetensors": table, "model_ema.safetensors": table})
    assert "partial-upload" not in {one.cause for one in audit(str(tmp_path)).diagnosis}


@pytest.mark.parametrize("index", [None, TORCH_INDEX])
def test_an_incomplete_safetensors_copy_of_torch_files_is_partial(tmp_path, config, index):
    files = shard_names(3)
    torch = shard_names(2, "pytorch_model", "bin") if index else ["pytorch_model.bin"]
    put(tmp_path, without(runs(config, files), 3))
    put(tmp_path, runs(config, torch), index)
    cause_of(tmp_path, "2 of the 3 files", files[2], kinds={"copy-differs"})


def test_a_complete_safetensors_copy_of_torch_files_is_no_alarm(tmp_path, config):
    put(tmp_path, runs(config, shard_names(3)))
    put(tmp_path, runs(config, ["pytorch_model.bin"]))
    assert alarms(audit(str(tmp_path))) == []


@pytest.mark.parametrize("total", [0, 8])
@pytest.mark.parametrize("names", NUMBERED)
def test_an_index_without_any_of_its_files_is_partial(tmp_path, config, names, total):
    """Names and totals are compared nevertheless."""
    files, index = NUMBERED[names]
    put(tmp_path, runs(config, files), index)
    for file in files:
        (tmp_path / file).unlink()
    values = json.loads((tmp_path / index).read_text())
    values["metadata"]["total_size"] += total
    (tmp_path / index).write_text(json.dumps(values))
    outcome = audit(str(tmp_path))
    reasons = [finding.reason for finding in alarms(outcome)]
    assert sum("none of the 9 files" in reason for reason in reasons) == 1
    assert sum("total_size" in reason for reason in reasons) == len(reasons) - 1 == bool(total)
    assert outcome.diagnosis[0].cause == "partial-upload"


def test_torch_files_beside_the_index_of_absent_safetensors_can_be_loaded(tmp_path, config):
    files = shard_names(3)
    put(tmp_path, runs(config, files), INDEX)
    for file in files:
        (tmp_path / file).unlink()
    put(tmp_path, runs(config, ["pytorch_model.bin"]))
    cause_of(tmp_path, f"delete {INDEX}", "none of the 3 files", kinds={"bad-index"})


def test_an_index_alone_on_the_hub_is_partial(at_hub, tmp_path, config):
    put(tmp_path, runs(config, shard_names(3)), INDEX)
    at_hub.add("o/n", {name: (tmp_path / name).read_bytes() for name in (CONFIG, INDEX)})
    outcome = audit("o/n", source="hub")
    assert [finding.kind for finding in alarms(outcome)] == ["bad-index"]
    assert outcome.diagnosis[0].cause == "partial-upload"


@pytest.mark.parametrize("names", NUMBERED)
@pytest.mark.parametrize("has_index", [True, False])
def test_the_hub_and_a_snapshot_have_the_cause_of_the_folder(
    at_hub, tmp_path, config, names, has_index
):
    files, index = NUMBERED[names]
    put(tmp_path, without(runs(config, files), 2, 9), index if has_index else None)
    local = audit(str(tmp_path))
    at_hub.add("o/n", {path.name: path.read_bytes() for path in tmp_path.iterdir()})
    for outcome in (audit("o/n", source="hub"), examine_again(str(tmp_path))):
        assert [(one.cause, one.summary) for one in outcome.diagnosis] == [
            (one.cause, one.summary) for one in local.diagnosis
        ]


def examine_again(folder: str) -> Report | Unaudited:
    """The audit of the folder's snapshot, written and read."""
    content = dump(fetch(folder), "m.json")
    return examine(load(content, "m.json"), Options(requested=folder))
