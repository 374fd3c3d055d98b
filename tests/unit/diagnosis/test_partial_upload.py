"""A partial upload on the Hub and in a snapshot has the cause that it has in a folder."""

import pytest
from support.cases import PLACE, build, cases_of

from auditor import audit
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch

NAMES = (
    "Shards of the middle and the end that a consistent index leaves out were not uploaded",
    "Torch shards without an index have a gap in their numbers",
    "An index without any of its files is partial",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_hub_and_a_snapshot_have_the_cause_of_the_folder(at_hub, tmp_path, name):
    every = {case.name: case for case in cases_of(PLACE / "causes" / "partial-upload.yaml")}
    folder = build(every[name], tmp_path / "model")
    local = audit(str(folder)).diagnosis
    at_hub.add("o/n", {path.name: path.read_bytes() for path in folder.iterdir()})
    hub = audit("o/n", source="hub").diagnosis
    content = dump(fetch(str(folder)), "m.json")
    again = examine(load(content, "m.json"), Options(requested="again")).diagnosis
    for found in (local, hub, again):
        assert [one.cause for one in found] == ["partial-upload"]
        assert found[0].summary == local[0].summary
