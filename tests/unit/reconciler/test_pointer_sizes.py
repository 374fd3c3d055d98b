"""Git LFS pointers in the place of torch files."""

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.sharding import CONFIG, kinds, pointer, shard_names
from support.torch_files import torch_bytes

from auditor import audit

BERT = expect("BertModel", vocab_size=3000)
TABLE = {one.name: ("F32", one.shape or ()) for one in stored_by(BERT)}


@pytest.fixture
def folder(tmp_path):
    config = config_bytes(architectures=["BertModel"], vocab_size=3000, dtype="float32")
    (tmp_path / CONFIG).write_bytes(config)
    return tmp_path


def test_a_pointer_to_a_torch_file_has_the_size_of_the_model(folder):
    (folder / "pytorch_model.bin").write_bytes(torch_bytes(TABLE))
    pointer(folder / "pytorch_model.bin")
    [note] = [note for note in audit(str(folder)).notes if "behind" in note]
    assert f"fits {BERT.parameters:,} x 4 bytes (F32) and a header" in note


def test_pointers_to_a_torch_copy_are_an_info(folder):
    (folder / "model.safetensors").write_bytes(safetensors_bytes(TABLE))
    torch = shard_names(2, "pytorch_model", "bin")
    for name in torch:
        (folder / name).write_bytes(torch_bytes(TABLE))
        pointer(folder / name)
    report = audit(str(folder))
    assert (report.verdict, kinds(report)) == ("clean", [])
    [finding] = [one for one in report.findings if one.kind == "other-weights"]
    assert finding.names == tuple(torch)


def test_a_torch_copy_on_the_hub_that_is_a_pointer_is_a_fault_of_the_repository(folder, at_hub):
    (folder / "model.safetensors").write_bytes(safetensors_bytes(TABLE))
    (folder / "pytorch_model.bin").write_bytes(torch_bytes(TABLE))
    pointer(folder / "pytorch_model.bin")
    at_hub.add("o/n", {path.name: path.read_bytes() for path in folder.iterdir()})
    assert kinds(audit("o/n", source="hub", torch_copies=True)) == ["copy-differs"]
