"""An index of shards that are not there, beside weights that are: the Hub, snapshots, pointers."""

import json
import shutil

import pytest
from support.cases import PLACE, build, cases_of
from support.sharding import INDEX, alarms, kinds, pointer, reindexed, shard_names

from auditor import audit
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch

OF_THREE = shard_names(3)
CASES = list(cases_of(PLACE / "listing" / "shards-not-in-the-index.yaml"))


@pytest.fixture
def folder(tmp_path):
    """An index of two shards, without them, and the model in three shards."""
    return build(CASES[0], tmp_path / "m")


def test_pointers_are_weights(folder):
    """A clone without Git LFS of a model that was pushed again."""
    for name in OF_THREE:
        pointer(folder / name)
    report = audit(str(folder))
    assert kinds(report) == ["bad-header"] * 3 + ["bad-index"]
    assert report.residual == 0
    assert len({tensor.name for one in alarms(report) for tensor in one.hidden}) == 42


def test_an_index_of_other_names_hides_nothing_that_is_stored(folder):
    names = [one.name for one in fetch(str(folder)).headers[0].parsed.tensors]
    reindexed(folder, renamed={name: f"old.{name}" for name in names})
    report = audit(str(folder))
    assert {one.kind for one in alarms(report)} == {"bad-index"}
    assert all(not one.hidden for one in alarms(report))
    assert report.residual == 0


def test_an_index_given_by_name_is_its_folders(folder):
    for_folder, for_index = audit(str(folder)), audit(str(folder / INDEX))
    assert (kinds(for_index), for_index.residual) == (kinds(for_folder), 0)
    assert for_index.observed == for_folder.observed


def test_the_hub_and_a_snapshot_say_what_the_folder_says(at_hub, tmp_path, subtests):
    for number, case in enumerate(CASES):
        with subtests.test(case=case.name):
            folder = build(case, tmp_path / f"{number}")
            local, snapshot = audit(str(folder)), tmp_path / f"{number}.json"
            snapshot.write_bytes(dump(fetch(str(folder)), "m.json"))
            files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
            at_hub.add(f"o/m{number}", files)
            shutil.rmtree(folder)
            for again in (audit(f"o/m{number}"), audit(str(snapshot))):
                assert (kinds(again), again.residual) == (kinds(local), local.residual)
                assert again.observed.parameters == local.observed.parameters


def test_a_component_of_a_pipeline_is_read_in_the_same_way(tmp_path):
    build(CASES[0], tmp_path / "text_encoder")
    pipeline = {"_class_name": "P", "text_encoder": ["transformers", "BertForMaskedLM"]}
    (tmp_path / "model_index.json").write_text(json.dumps(pipeline))
    report = audit(str(tmp_path))
    assert (kinds(report), report.residual, report.observed.tensors) == (["bad-index"], 0, 42)
