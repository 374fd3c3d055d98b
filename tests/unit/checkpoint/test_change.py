"""A change of a checkpoint: what follows from it for headers, index and texts."""

import json

from msgspec.structs import replace
from support.checkpoints import stored
from support.small_snapshots import snapshot_of

from auditor.checkpoint.change import Change, replacing, shaped
from auditor.checkpoint.json_edits import ABSENT, Edit
from auditor.checkpoint.snapshot import TextFile, WeightHeader
from auditor.containers.weight_formats import Table

A, B = stored("a", (2, 3)), stored("b", (4,))
FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def indexed(content=None):
    """A checkpoint of two tensors with an index."""
    values = {"metadata": {"total_size": 40}, "weight_map": {"a": FILE, "b": FILE}, "x": 1e400}
    text = json.dumps(values).encode() if content is None else content
    return replace(snapshot_of([A, B], size=1), index=TextFile(name=INDEX, content=text))


def names_of(snapshot):
    return {tensor.name for head in snapshot.headers for tensor in head.parsed.tensors}


def test_a_name_changes_in_the_header_and_in_the_index_which_keeps_its_total():
    changed = Change(renames={"a": "b", "b": "a"}).applied_to(indexed())
    assert names_of(changed) == {"a", "b"}
    index = json.loads(changed.index.content)
    assert (index["metadata"], index["weight_map"]) == ({"total_size": 40}, {"b": FILE, "a": FILE})
    assert changed.index.as_index.total_size == 40


def test_an_index_loses_its_total_if_a_tensor_is_replaced():
    change = replacing([A, B], {"a": (shaped(A, (3, 2), "c"), shaped(A, (6,), "d")), "b": ()})
    assert change.needs_other_weights
    changed = change.applied_to(indexed())
    assert names_of(changed) == {"c", "d"}
    assert changed.index.as_index.weight_map == {"c": FILE, "d": FILE}
    assert changed.index.as_index.total_size is None


def test_a_replacement_that_only_renames_needs_no_other_weights():
    change = replacing([A, B], {"a": (A._replace(name="c"),)})
    assert (change.renames, change.tensors) == ({"a": "c"}, {})
    assert not change.needs_other_weights


def test_an_unreadable_index_is_unchanged_until_it_is_made_anew():
    broken = indexed(b"{")
    assert Change(renames={"a": "c"}).applied_to(broken).index == broken.index
    made = Change(renames={"a": "c"}, is_reindexed=True).applied_to(broken)
    assert made.index.as_index.weight_map == {"c": FILE, "b": FILE}


def test_a_file_is_gone_or_added():
    head = WeightHeader(name="z.safetensors", size=None, known=Table(file="z", tensors=(B,)))
    changed = Change(files={FILE: None, "z.safetensors": head}).applied_to(indexed())
    assert [one.name for one in changed.headers] == ["z.safetensors"]


def test_names_of_one_storage_are_renamed_with_it():
    table = Table(file=FILE, tensors=(A, B), shared={"b": "a"})
    head = WeightHeader(name=FILE, size=None, known=table)
    changed = Change(renames={"a": "c"}).applied_to(replace(indexed(), headers=(head,)))
    assert changed.headers[0].parsed.shared == {"b": "c"}


def test_values_of_the_config_are_edited():
    edits = (Edit(("size",), 1, 2), Edit(("dtype",), "float32", ABSENT))
    changed = Change(edits=edits).applied_to(indexed())
    assert json.loads(changed.config.content) == {"size": 2}
    assert Change(edits=edits).applied_to(replace(indexed(), config=None)).config is None
