"""The size in a Git LFS pointer, compared with the model that the config implies."""

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.sharding import CONFIG, INDEX, alarms, kinds, pointer, shard_names, sharded, write
from support.torch_files import torch_bytes

from auditor import audit

BERT = expect("BertModel", vocab_size=3000)
PARAMETERS = BERT.parameters


def table(dtype: str = "F32") -> dict[str, tuple[str, tuple[int, ...]]]:
    return {one.name: (dtype, one.shape or ()) for one in stored_by(BERT)}


@pytest.fixture
def folder(tmp_path):
    config = config_bytes(architectures=["BertModel"], vocab_size=3000, dtype="float32")
    (tmp_path / CONFIG).write_bytes(config)
    return tmp_path


def size_note(folder) -> str:
    [note] = [note for note in audit(str(folder)).notes if "behind" in note]
    return note


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("F32", f"fits {PARAMETERS:,} x 4 bytes (F32)"),
        ("BF16", f"fits {PARAMETERS:,} x 2 bytes (BF16)"),
        ("F64", f"fits {PARAMETERS:,} x 8 bytes (F64)"),
    ],
)
def test_a_pointer_to_the_model_has_its_size_in_some_dtype(folder, dtype, words):
    pointer(write(folder / "model.safetensors", table(dtype)))
    note = size_note(folder)
    assert words in note
    assert note.endswith("; the config declares F32") == (dtype != "F32")


def test_a_pointer_to_a_torch_file_has_the_size_of_the_model(folder):
    (folder / "pytorch_model.bin").write_bytes(torch_bytes(table()))
    pointer(folder / "pytorch_model.bin")
    assert f"fits {PARAMETERS:,} x 4 bytes (F32) and a header" in size_note(folder)


@pytest.mark.parametrize("pointers", [slice(1), slice(1, 3), slice(3)])
def test_pointers_among_shards_have_the_size_of_what_they_hide(folder, pointers):
    names = shard_names(3)
    sharded(folder, table(), None, count=3)
    for name in names[pointers]:
        pointer(folder / name)
    hidden = sum(tensor.elements for one in alarms(audit(str(folder))) for tensor in one.hidden)
    assert f"fits {hidden:,} x 4 bytes (F32) and" in size_note(folder)


@pytest.mark.parametrize(
    ("parts", "words"), [(3, "a third of"), (2, "half of"), (0.25, "4 times"), (10, "10% of")]
)
def test_a_pointer_to_something_else_has_another_size(folder, parts, words):
    size = int(4 * PARAMETERS / parts)
    (folder / "model.safetensors").write_bytes(b"x" * size)
    pointer(folder / "model.safetensors")
    note = size_note(folder)
    assert f"has {size:,} bytes, {words} the {4 * PARAMETERS:,}" in note
    assert note.endswith(("a part of the model, or another one", "or another one"))


@pytest.mark.parametrize("has_index", [True, False])
def test_a_file_that_is_broken_as_well_needs_an_index(folder, has_index):
    sharded(folder, table(), None, count=2)
    first, second = shard_names(2)
    pointer(folder / first)
    (folder / second).write_bytes(b"x" * 100)
    if not has_index:
        (folder / INDEX).unlink()
    notes = [note for note in audit(str(folder)).notes if "behind" in note]
    assert len(notes) == has_index
    assert all(" x 4 bytes (F32) and a header" in note for note in notes)


@pytest.mark.parametrize("torch", [["pytorch_model.bin"], shard_names(2, "pytorch_model", "bin")])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_pointer_to_a_torch_copy_is_an_info(folder, torch, shards):
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors_bytes(table()))
    else:
        sharded(folder, table(), None, count=shards, index=INDEX)
    for name in torch:
        (folder / name).write_bytes(torch_bytes(table()))
        pointer(folder / name)
    report = audit(str(folder))
    assert (report.verdict, kinds(report)) == ("clean", [])
    [finding] = [one for one in report.findings if one.kind == "other-weights"]
    assert finding.names == tuple(torch)


def test_a_torch_copy_on_the_hub_that_is_a_pointer_is_a_fault_of_the_repository(folder, at_hub):
    (folder / "model.safetensors").write_bytes(safetensors_bytes(table()))
    (folder / "pytorch_model.bin").write_bytes(torch_bytes(table()))
    pointer(folder / "pytorch_model.bin")
    at_hub.add("o/n", {path.name: path.read_bytes() for path in folder.iterdir()})
    assert kinds(audit("o/n", source="hub", torch_copies=True)) == ["copy-differs"]
