"""What is said of an index that is of its files' own save, and wrong as it is written."""

import json
from pathlib import Path

import pytest
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Hub
from support.sharding import INDEX, shard_names, sharded

from auditor import audit

TABLE = {one.name: (one.dtype, one.shape) for one in stored_by(expect("BertModel"))}
FIRST, *_ = SHARDS = shard_names(2)
DOTTED = f"{INDEX} writes './{FIRST}' for '{FIRST}': from_pretrained finds it in a folder, and not"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sharded(tmp_path / "m", TABLE, config_bytes(architectures=["BertModel"]))


def dot(folder: Path) -> None:
    """Write ./ before the names of the files."""
    values = json.loads((folder / INDEX).read_bytes())
    values["weight_map"] = {name: f"./{shard}" for name, shard in values["weight_map"].items()}
    (folder / INDEX).write_text(json.dumps(values))


def add(hub: Hub, folder: Path) -> None:
    hub.add("o/n", {path.name: path.read_bytes() for path in folder.iterdir()})


def test_names_that_only_a_folder_has_are_an_error_of_a_repository_alone(at_hub, folder):
    """As from_pretrained has it, which joins a folder and a name."""
    dot(folder)
    here = audit(str(folder))
    assert (here.verdict, here.residual) == ("clean", 0)
    assert [note for note in here.notes if note.startswith(DOTTED)]
    add(at_hub, folder)
    there = audit("o/n", source="hub")
    [found] = there.findings
    assert (found.kind, found.reason.startswith(DOTTED), there.residual) == ("bad-index", True, 0)
    [why] = there.diagnosis
    assert (why.cause, why.summary.startswith(DOTTED)) == ("stale-index", True)


def test_a_name_that_is_written_twice_is_no_wrong_total(folder):
    text = (folder / INDEX).read_text()
    name = next(iter(TABLE))
    twice = f'"weight_map": {{"{name}": "{FIRST}", '
    (folder / INDEX).write_text(text.replace('"weight_map": {', twice))
    [why] = audit(str(folder)).diagnosis
    assert why.summary.startswith(
        f"{INDEX} repeats keys, and the last value of each counts: '{name}'"
    )
